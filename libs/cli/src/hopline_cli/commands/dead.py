"""`hopline dead`: messages that the mesh has given up; look at them, send them again, strike them off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Json, Output
from hopline_cli.verbs import Cursor, Limit, command

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

app = typer.Typer(help="Dead letters: messages that never got through.", no_args_is_help=True)

# What one call takes.
_AT_ONCE = 200

OfAgent = Annotated[
    str, typer.Option("--agent", metavar="A", help="Only those for this agent.", show_default=False)
]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID…", help="Turns, as `dead list` names them.")]
All = Annotated[bool, typer.Option("--all", help="All of them, or all for --agent.")]


@command(app, "list")
async def list_letters(
    mesh: Mesh, out: Output, agent: OfAgent = "", limit: Limit = 50, cursor: Cursor = ""
) -> None:
    """List them, newest first. Needs the role operator on the recipient."""
    items, rest = await _letters(mesh, agent, limit, cursor)
    columns = [("DIED", "died_at"), ("FOR", "agent.name"), ("FROM", "message.from"), ("WHY", "error.code")]
    columns += [("TRIED", "attempts"), ("BODY", "message.body"), ("ID", "id")]
    out.rows("dead_letters", items, columns, rest)


@command(app, "show")
async def show(mesh: Mesh, out: Output, identifier: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Show one."""
    from hopline.relay.v1 import dead_letter_pb2 as pb

    from hopline_cli import shapes

    found = await mesh.letters.GetDeadLetter(pb.GetDeadLetterRequest(turn_id=identifier))
    out.fields(shapes.dead_letter(found.dead_letter))


# What is wrong with one letter and not with all: its agent is deleted, its inbox full, somebody was first.
_ONE_ALONE = frozenset({"failed_precondition", "inbox_full", "not_found"})


@command(app, "retry")
async def retry(
    mesh: Mesh, out: Output, identifiers: Ids = None, agent: OfAgent = "", every: All = False
) -> None:
    """Send them again, as the same messages; nothing is charged."""
    from hopline_rpc.errors import HoplineError

    queued: list[str] = []
    refused: list[HoplineError] = []
    for part in await _named(mesh, identifiers, agent, every=every):
        try:
            queued += await _retry(mesh, part)
        except HoplineError as error:
            if not every or error.reason not in _ONE_ALONE:
                raise
            # One that cannot be sent keeps no other back.
            for each in part:
                try:
                    queued += await _retry(mesh, [each])
                except HoplineError as alone:
                    refused.append(alone)
    out.result(
        {"turn_ids": queued, "refused": len(refused)},
        f"{len(queued)} queued again",
        *queued,
        *([f"{len(refused)} stay: {refused[0].message}"] if refused else []),
    )


async def _retry(mesh: Mesh, turn_ids: list[str]) -> list[str]:
    from hopline.relay.v1 import dead_letter_pb2 as pb

    return list((await mesh.letters.RetryDeadLetters(pb.RetryDeadLettersRequest(turn_ids=turn_ids))).turn_ids)


@command(app, "purge")
async def purge(
    mesh: Mesh, out: Output, identifiers: Ids = None, agent: OfAgent = "", every: All = False
) -> None:
    """Strike them off; the messages stay in their threads. Needs the role admin on the recipient."""
    from hopline.relay.v1 import dead_letter_pb2 as pb

    purged = 0
    for part in await _named(mesh, identifiers, agent, every=every):
        purged += (await mesh.letters.PurgeDeadLetters(pb.PurgeDeadLettersRequest(turn_ids=part))).purged
    out.result({"purged": purged}, f"{purged} struck off")


async def _named(mesh: Mesh, identifiers: list[str] | None, agent: str, *, every: bool) -> list[list[str]]:
    """Return the ids that are meant, in parts of one call each."""
    if bool(identifiers) == every:
        raise typer.BadParameter("name them, or give --all (with --agent A: all for that agent)")
    if identifiers:
        ids = list(dict.fromkeys(identifiers))
    else:
        ids = [str(each["id"]) for each in (await _letters(mesh, agent, 0, ""))[0]]
    return [ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE)]


async def _letters(mesh: Mesh, agent: str, limit: int, cursor: str) -> tuple[list[Json], str]:
    from hopline.relay.v1 import dead_letter_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        request = pb.ListDeadLettersRequest(agent=agent, page_size=size, page_token=at)
        page = await mesh.letters.ListDeadLetters(request)
        return [shapes.dead_letter(each) for each in page.dead_letters], page.next_page_token

    return await pages(read, limit, cursor)
