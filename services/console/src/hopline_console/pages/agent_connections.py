"""`/agents/<id>/connections`: other agents under names of the agent's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import agent_pb2 as pb
from hopline_rpc.errors import HoplineError
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.blocks import Ask, Cell, Code, Link, Links, Press, Table
from hopline_console.context import ConsoleContext
from hopline_console.forms import Field, Filled, Form
from hopline_console.visit import Visit, routed
from hopline_console.words import ADMIN

_FIELDS: Final = tuple(
    each.within(pb.Connection.DESCRIPTOR)
    for each in (
        Field(
            "name",
            "Name",
            hint="Its tools are offered under it: weather__ask. A letter, then a-z, 0-9, _ and -.",
        ),
        Field("agent", "Agent", hint="Id, slug or name of the other agent."),
        Field("description", "When to use it", "area", "For the agent's model.", rows=2),
    )
)


def routes(context: ConsoleContext) -> list[Route]:
    """Return the pages of connections."""
    return [
        *routed(context, "/agents/{agent}/connections", get=show, post=add),
        *routed(context, "/agents/{agent}/connections/remove", post=remove),
    ]


async def _agent(visit: Visit) -> pb.Agent:
    found = await visit.mesh.agents.GetAgent(pb.GetAgentRequest(agent=visit.path("agent")))
    visit.require(found.role, ADMIN, f"the agent {found.agent.slug!r}")
    return found.agent


async def show(visit: Visit) -> Response:
    """Show an agent's connections, and a form for a further one."""
    agent = await _agent(visit)
    return await _page(visit, agent, _form(agent).empty(name="", agent="", description=""))


def _form(agent: pb.Agent) -> Form:
    return Form(f"/agents/{agent.id}/connections", "A further connection", "Add", _FIELDS)


async def _page(visit: Visit, agent: pb.Agent, filled: Filled) -> Response:
    slugs = await visit.slugs()
    at = f"/agents/{agent.id}/connections/remove"
    rows: list[list[Cell]] = [
        [
            Code(each.name),
            Link(slugs.get(each.agent, each.agent), f"/agents/{each.agent}"),
            each.description,
            Press(at, "Remove", each.name, {"name": each.name}),
        ]
        for each in agent.connections
    ]
    columns = ("Name", "Agent", "When to use it", "Remove")
    back = Links("This agent", [Link("Back to the agent", f"/agents/{agent.id}")])
    table = Table("Connections", columns, rows, "It has no connections.")
    lead = "They give no reach: one that leads to an agent it may not use is not offered."
    return await visit.page(
        f"Connections of {agent.name}", [back, table, Ask(filled)], lead=lead, filled=filled
    )


async def add(visit: Visit) -> Response:
    """Add a connection."""
    posted = await visit.posted()
    agent = await _agent(visit)
    filled = _form(agent).read(posted)

    async def act() -> Response:
        if any(each.name == filled.values["name"] for each in agent.connections):
            raise HoplineError("failed_precondition", "", violations=(("name", "is taken"),))
        await _set(visit, agent, [*agent.connections, pb.Connection(**filled.values)])
        return visit.done(f"/agents/{agent.id}/connections", f"{filled.values['name']} is added.")

    return await visit.answer(filled, act, lambda: _page(visit, agent, filled))


async def remove(visit: Visit) -> Response:
    """Remove a connection; one that is gone is no error."""
    posted = await visit.posted()
    agent = await _agent(visit)
    name = str(posted.get("name", ""))
    kept = [each for each in agent.connections if each.name != name]
    if len(kept) < len(agent.connections):
        await _set(visit, agent, kept)
    return visit.done(f"/agents/{agent.id}/connections", f"{name} is removed.")


async def _set(visit: Visit, agent: pb.Agent, connections: Sequence[pb.Connection]) -> None:
    request = pb.UpdateAgentRequest(
        agent_ref=agent.id,
        agent=pb.Agent(connections=connections),
        update_mask=FieldMask(paths=["connections"]),
    )
    await visit.mesh.agents.UpdateAgent(request)
