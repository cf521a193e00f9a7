"""`hopline audit`: the append-only log of all that happened, as it happens with --follow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.following import follow
from hopline_cli.output import Json, Output, moment
from hopline_cli.times import Since, Until, set_times
from hopline_cli.verbs import Cursor, Limit, command

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

app = typer.Typer()


@command(app)
async def audit(
    mesh: Mesh,
    out: Output,
    follow_on: Annotated[
        bool, typer.Option("--follow", help="Go on with what happens, until Ctrl-C.")
    ] = False,
    agent: Annotated[
        str, typer.Option("--agent", metavar="A", help="Only what concerns it.", show_default=False)
    ] = "",
    action: Annotated[
        str,
        typer.Option(metavar="PREFIX", help="Only these: message., message.refused, …", show_default=False),
    ] = "",
    thread: Annotated[str, typer.Option(metavar="ID", help="Only of this thread.", show_default=False)] = "",
    since: Since = "",
    until: Until = "",
    limit: Limit = 50,
    cursor: Cursor = "",
) -> None:
    """Show the newest events of the audit log, oldest of them first."""
    from hopline.relay.v1 import audit_pb2 as pb

    from hopline_cli import shapes

    if follow_on and until:
        raise typer.BadParameter("what goes on has no end: leave out one of the two", param_hint="--follow")
    wanted = pb.ListEventsRequest(agent=agent, action=action, thread_id=thread, descending=True)
    set_times(wanted, since, until)
    events, rest = await _newest(mesh, wanted, limit, cursor)
    if not follow_on:
        if out.as_json:
            out.rows("events", events, [], rest)
            return
        for event in events:
            _show(out, event)
        if rest:
            out.line(f"there are older ones: --cursor {rest}", "dim")
        return
    for event in events:
        _show(out, event)
    following = pb.WatchEventsRequest(agent=agent, action=action, thread_id=thread)
    if since and not events:
        # None of them so far: what is older must not come either.
        events, _ = await _newest(mesh, pb.ListEventsRequest(agent=agent, descending=True), 1, "")
    following.after_seq = events[-1]["seq"] if events else 0

    async def show(event: Any) -> None:
        _show(out, shapes.event(event))

    await follow(mesh, following, show)


async def _newest(mesh: Mesh, wanted: Any, limit: int, cursor: str) -> tuple[list[Json], str]:
    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        wanted.page_size, wanted.page_token = size, at
        page = await mesh.events.ListEvents(wanted)
        return [shapes.event(each) for each in page.events], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    return items[::-1], rest


def _show(out: Output, event: Json) -> None:
    if out.as_json:
        out.json(event)
        out.flush()
        return
    who = _who(event["actor"])
    details = event.get("details", {})
    text = " ".join(f"{key}={_value(value)}" for key, value in details.items() if key != "root_id")
    ids = " ".join(event[key] for key in ("turn_id", "thread_id") if key in event)
    style = "red" if "refused" in event["action"] or details.get("state") == "failed" else ""
    at = moment(event["at"]) if out.is_terminal else event["at"]
    out.line(f"{at}  {event['action']:<20}  {who}  {text}  {ids}".rstrip(), style)
    out.flush()


def _who(actor: Json) -> str:
    """Return who did something: `agent planner (for Alice)`, a person by name."""
    shown = actor["display"] or actor["id"]
    if not shown:
        return str(actor["kind"])
    return f"agent {shown}" if actor["kind"] == "agent" and actor["id"] else str(shown)


def _value(value: Any) -> str:
    """Return a detail on one line: in the words of others, a line of their own could pass for an event."""
    plain = isinstance(value, str) and "\n" not in value
    return str(value) if plain else json.dumps(value, ensure_ascii=False)
