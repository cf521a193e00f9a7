"""`hopline held|release`: answers that leads do not give yet, and their drafts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Json, Output
from hopline_cli.verbs import Cursor, Limit, command
from hopline_cli.words import held_for

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

app = typer.Typer()


@command(app, "held")
async def held(
    mesh: Mesh,
    out: Output,
    session_id: Annotated[str, typer.Argument(metavar="[SESSION]", help="Only of this session.")] = "",
    agent: Annotated[
        str, typer.Option("--agent", metavar="A", help="Only of this agent.", show_default=False)
    ] = "",
    limit: Limit = 50,
    cursor: Cursor = "",
) -> None:
    """List the answers that are held, newest first, with what they wait for and their drafts."""
    from hopline.relay.v1 import draft_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        page = await mesh.drafts.ListHeld(pb.ListHeldRequest(agent=agent, page_size=size, page_token=at))
        return [shapes.hold(each) for each in page.holds], page.next_page_token

    if session_id:
        found = await mesh.drafts.GetHold(pb.GetHoldRequest(session_id=session_id))
        items, rest = [shapes.hold(each) for each in found.holds], ""
    else:
        items, rest = await pages(read, limit, cursor)
    if out.as_json:
        out.rows("held", items, [], rest)
        return
    for each in items:
        _show(out, each)
    if not items:
        out.line("no answer is held", "dim")
    if rest:
        out.line(f"there are more: --cursor {rest}", "dim")


def _show(out: Output, each: Json) -> None:
    why = {"waiting_on": [party["name"] for party in each["waiting_on"]], "open_todos": each["open_todos"]}
    out.line(f"{each['agent']['name']} to {each['prompted_by']['name']} · {held_for(why)}", "bold cyan")
    out.line(f"since {each['held_since']} · session {each['session_id']} · turn {each['turn_id']}", "dim")
    out.line(each["draft"] if each["draft"] is not None else "nothing is written yet")
    out.line("")


@command(app, "release")
async def release(
    mesh: Mesh,
    out: Output,
    session_id: Annotated[str, typer.Argument(metavar="SESSION")],
    turn: Annotated[
        str,
        typer.Option(
            "--turn", metavar="ID", help="Of several, the answer this turn owes.", show_default=False
        ),
    ] = "",
) -> None:
    """Send the draft of an answer that is held, as it is, and print it."""
    from hopline.relay.v1 import draft_pb2 as pb

    from hopline_cli import shapes

    request = pb.ReleaseDraftRequest(session_id=session_id, turn_id=turn)
    answered = (await mesh.drafts.ReleaseDraft(request)).turn
    out.result(shapes.turn_view(answered), answered.reply)
