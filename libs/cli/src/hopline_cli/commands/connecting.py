"""`--connect` and `--disconnect` of `hopline agent`: other agents under names of an agent's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hopline.registry.v1 import agent_pb2 as pb

    from hopline_cli.mesh import Mesh

Connect = Annotated[
    list[str] | None,
    typer.Option(metavar="N=A[:TEXT]", help="Offer it agent A's tools as N__ask, …; TEXT says what for."),
]
Disconnect = Annotated[list[str] | None, typer.Option(metavar="N", help="Take connection N away.")]


def connections(
    before: Sequence[pb.Connection], connect: Sequence[str], disconnect: Sequence[str]
) -> list[pb.Connection]:
    """Return an agent's connections once some are made, or made anew, and others taken away."""
    found = {each.name: each for each in before}
    for name in disconnect:
        if name not in found:
            there = ", ".join(found) or "none"
            raise typer.BadParameter(
                f"there is no connection {name!r}; there are: {there}", param_hint="--disconnect"
            )
        del found[name]
    for text in connect:
        made = _parsed(text)
        found[made.name] = made
    return list(found.values())


def _parsed(text: str) -> pb.Connection:
    """Read `NAME=AGENT` or `NAME=AGENT:DESCRIPTION`."""
    from hopline.registry.v1 import agent_pb2 as pb

    name, equals, rest = text.partition("=")
    agent, _, description = rest.partition(":")
    if not (name.strip() and equals and agent.strip()):
        raise typer.BadParameter(
            f"{text!r} is not NAME=AGENT, e.g. weather=weather-agent", param_hint="--connect"
        )
    return pb.Connection(name=name.strip(), agent=agent.strip(), description=description.strip())


async def shown(mesh: Mesh, connected: Sequence[pb.Connection]) -> list[str]:
    """Return connections for people, `weather=weather-agent`; a peer that they may not see stays an id."""
    return [f"{each.name}={await _slug(mesh, each.agent)}" for each in connected]


async def _slug(mesh: Mesh, agent_id: str) -> str:
    from hopline.registry.v1 import agent_pb2 as pb
    from hopline_rpc.errors import HoplineError

    try:
        return (await mesh.agents.GetAgent(pb.GetAgentRequest(agent=agent_id))).agent.slug
    except HoplineError as error:
        if error.reason != "not_found":
            raise
        return agent_id
