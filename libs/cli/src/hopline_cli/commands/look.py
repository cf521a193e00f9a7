"""`hopline inbox|threads|thread|sessions|session|usage`: look at what goes on, without taking anything."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.following import follow, newest_seq
from hopline_cli.output import Json, Output
from hopline_cli.times import Since, set_times
from hopline_cli.verbs import Cursor, Limit, command
from hopline_cli.words import held_for

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

app = typer.Typer()
threads = typer.Typer()
_REMEMBERED = 1000

OfAgent = Annotated[str, typer.Option("--agent", metavar="A", help="Only of this agent.", show_default=False)]


@command(app, "inbox")
async def inbox(
    mesh: Mesh,
    out: Output,
    agent: Annotated[str, typer.Option("--agent", metavar="A", help="Whose inbox.")],
    limit: Limit = 50,
    cursor: Cursor = "",
) -> None:
    """Look at an agent's unread messages; they stay unread."""
    from hopline.relay.v1 import message_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        page = await mesh.messages.PeekInbox(pb.PeekInboxRequest(agent=agent, page_size=size, page_token=at))
        return [shapes.message(each) for each in page.messages], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    columns = [("AT", "created_at"), ("FROM", "from"), ("NEWER", "newer_from_sender")]
    columns += [("SUBJECT", "subject"), ("BODY", "body"), ("THREAD", "thread_id"), ("ID", "id")]
    out.rows("messages", items, columns, rest)


@command(threads)
async def list_threads(
    mesh: Mesh,
    out: Output,
    follow_on: Annotated[
        bool, typer.Option("--follow", help="Go on with messages as they are written, until Ctrl-C.")
    ] = False,
    agent: OfAgent = "",
    since: Since = "",
    limit: Limit = 50,
    cursor: Cursor = "",
) -> None:
    """List threads, newest activity first."""
    from hopline.relay.v1 import message_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        request = pb.ListThreadsRequest(agent=agent, page_size=size, page_token=at)
        set_times(request, since, "")
        page = await mesh.messages.ListThreads(request)
        return [shapes.thread(each) for each in page.threads], page.next_page_token

    after = await newest_seq(mesh) if follow_on else 0
    items, rest = await pages(read, limit, cursor)
    columns = [("LAST", "last_at"), ("MESSAGES", "message_count"), ("PARTICIPANTS", "participants")]
    out.rows("threads", items, [*columns, ("SUBJECT", "subject"), ("ID", "id")], rest)
    if follow_on:
        out.flush()
        await _follow_messages(mesh, out, agent, after)


async def _follow_messages(mesh: Mesh, out: Output, agent: str, after: int) -> None:
    """Print each message as it is written; of those of an agent, or all that the caller may see."""
    from hopline.relay.v1 import audit_pb2

    async def show(event: Any) -> None:
        found = await _message_of(mesh, event.thread_id, event.message_id)
        if found is None or event.message_id in shown:
            return  # it is deleted by now; or one event more tells of a recipient more
        shown[event.message_id] = None
        while len(shown) > _REMEMBERED:
            shown.pop(next(iter(shown)))
        if out.as_json:
            out.json(found)
        else:
            out.line(f"thread {found['thread_id']}", "dim")
            _show_message(out, found)
        out.flush()

    shown: dict[str, None] = {}
    request = audit_pb2.WatchEventsRequest(agent=agent, action="message.sent", after_seq=after)
    await follow(mesh, request, show)


async def _message_of(mesh: Mesh, thread_id: str, message_id: str) -> Json | None:
    from hopline.relay.v1 import message_pb2 as pb
    from hopline_rpc.errors import HoplineError

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        request = pb.ListMessagesRequest(thread_id=thread_id, page_size=size, page_token=at)
        page = await mesh.messages.ListMessages(request)
        return list(page.messages), page.next_page_token

    try:
        found, _ = await pages(read, 0, "")
    except HoplineError as error:
        if error.reason != "not_found":
            raise
        return None
    return next((shapes.message(each) for each in found if each.id == message_id), None)


@command(app, "thread")
async def thread(
    mesh: Mesh,
    out: Output,
    thread_id: Annotated[str, typer.Argument(metavar="ID")],
    limit: Limit = 50,
    cursor: Cursor = "",
) -> None:
    """Show a thread's messages in order."""
    from hopline.relay.v1 import message_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    marks: list[Json] = []

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        request = pb.ListMessagesRequest(thread_id=thread_id, page_size=size, page_token=at)
        page = await mesh.messages.ListMessages(request)
        marks[:] = [shapes.read_mark(each) for each in page.read]
        return [shapes.message(each) for each in page.messages], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    if out.as_json:
        out.rows("messages", items, [], rest, {"read": marks})
        return
    for each in items:
        _show_message(out, each)
    for mark in marks:
        through = mark["consumed_through"]
        out.line(f"{mark['agent']} has read " + (f"up to #{through}" if through else "nothing"), "dim")
    if rest:
        out.line(f"there are more: --cursor {rest}", "dim")


def _show_message(out: Output, each: Json) -> None:
    to = ", ".join(f"{delivery['agent']} ({delivery['status']})" for delivery in each["deliveries"])
    subject = f" · {each['subject']}" if each["subject"] else ""
    names = ", ".join(party["name"] for party in each["to"])
    head = f"#{each['seq']} {each['from']['display']} → {to or names}{subject}"
    out.line(head, "bold cyan")
    out.line(f"{each['created_at']} · depth {each['depth']} · {each['id']}", "dim")
    out.line(each["body"])
    out.line("")


@command(app, "sessions")
async def sessions(
    mesh: Mesh,
    out: Output,
    session_id: Annotated[str, typer.Argument(metavar="[ID]", help="Show this one's transcript.")] = "",
    agent: OfAgent = "",
    parent: Annotated[
        str, typer.Option("--of", metavar="ID", help="Only what this session has opened.", show_default=False)
    ] = "",
    children: Annotated[bool, typer.Option("--children", help="Only those of subagents.")] = False,
    channel: Annotated[
        str,
        typer.Option(help="Only of relay, mcp, human, schedule or webhook.", show_default=False),
    ] = "",
    limit: Limit = 50,
    cursor: Cursor = "",
) -> None:
    """List sessions, newest first, with whose children they are, or show the transcript of one."""
    if session_id:
        await _transcript(mesh, out, session_id, limit, cursor)
        return
    from hopline.relay.v1 import session_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        request = pb.ListSessionsRequest(
            agent=agent,
            opened_by_session_id=parent,
            children_only=children,
            channel=channel,
            page_size=size,
            page_token=at,
        )
        page = await mesh.sessions.ListSessions(request)
        return [shapes.session(each) for each in page.sessions], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    columns = [("AGENT", "agent"), ("TITLE", "title"), ("CHANNEL", "channel"), ("STATE", "state")]
    columns += [("OPENED BY", "opened_by.name"), ("OPENED", "opened_count")]
    # Whether a subagent works in it, and in which session its lead waits.
    columns += [("CHILD", "child.state"), ("OF", "child.parent_session_id"), ("LIVE", "live_children")]
    columns.append(("LAST", "last_at"))
    if any("held" in each for each in items):
        columns.append(("HELD", "held"))
    out.rows("sessions", items, [*columns, ("ID", "id")], rest)


@command(app, "session")
async def session(
    mesh: Mesh,
    out: Output,
    session_id: Annotated[str, typer.Argument(metavar="ID")],
    close: Annotated[
        bool, typer.Option("--close", help="Close it for good: a subagent's, with all that it has started.")
    ] = False,
) -> None:
    """Show a session: who opened it, from which session, and those that it opened on others."""
    from hopline.relay.v1 import delegation_pb2
    from hopline.relay.v1 import session_pb2 as pb

    from hopline_cli import shapes

    if close:
        await mesh.turns.CloseSubagent(delegation_pb2.CloseSubagentRequest(session_id=session_id))
    request = pb.GetSessionRequest(session_id=session_id)
    found = shapes.session((await mesh.sessions.GetSession(request)).session)
    opener, lines = found["opened_by"], [_linked_line(each) for each in found["opened"]]
    if found["opened_count"] > len(lines):
        lines.append(f"and {found['opened_count'] - len(lines)} more")
    shown = {**found, "agent": found["agent"]["display"], "opened": "\n".join(lines), "opened_count": None}
    shown["opened_by"] = " ".join(
        part for part in (opener["kind"], opener["name"], opener["session_id"] or "") if part
    )
    shown["child"] = _child_line(found["child"]) if found["child"] else None
    if "held" in found:
        shown["held"] = held_for(found["held"])
    out.fields(found, shown)


def _child_line(child: Json) -> str:
    owes = "owes a report" if child["owes_report"] else ""
    known = (child["state"], owes, child["parent"]["name"], child["parent_session_id"])
    return " · ".join(part for part in known if part)


def _linked_line(linked: Json) -> str:
    known = (linked["agent"]["name"], linked["title"], linked["state"], linked["session_id"])
    return " · ".join(part for part in known if part)


async def _transcript(mesh: Mesh, out: Output, session_id: str, limit: int, cursor: str) -> None:
    from hopline.relay.v1 import session_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        request = pb.ReadSessionRequest(session_id=session_id, page_size=size, page_token=at)
        page = await mesh.sessions.ReadSession(request)
        return [shapes.entry(each) for each in page.entries], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    if out.as_json:
        out.rows("entries", items, [], rest)
        return
    for each in items:
        out.line(
            f"{each['kind']} · {each['from']['display']} · {each['at']} · {each['turn_id']}", "bold cyan"
        )
        out.line(each["text"])
        out.line("")
    if rest:
        out.line(f"there are more: --cursor {rest}", "dim")


@command(app, "usage")
async def usage(mesh: Mesh, out: Output, agent: OfAgent = "", limit: Limit = 50, cursor: Cursor = "") -> None:
    """Show every limit and what is used of it: of one agent, or a line for each."""
    if agent:
        out.fields(await _usage(mesh, agent))
        return
    from hopline.registry.v1 import agent_pb2 as pb

    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        page = await mesh.agents.ListAgents(pb.ListAgentsRequest(page_size=size, page_token=at))
        found = [{"agent": each.slug, **await _usage(mesh, each.id)} for each in page.agents]
        return found, page.next_page_token

    items, rest = await pages(read, limit, cursor)
    columns = [("AGENT", "agent"), ("SENT", "sent_today"), ("OF", "limits.sent_per_day")]
    columns += [("RECEIVED", "received_today"), ("OF", "limits.received_per_day")]
    columns += [
        ("INBOX", "inbox"),
        ("OF", "limits.inbox_backlog"),
        ("DEPTH", "depth"),
        ("RESETS", "resets_at"),
    ]
    out.rows("agents", items, columns, rest)


async def _usage(mesh: Mesh, agent: str) -> Json:
    from hopline.quota.v1 import usage_pb2 as pb
    from hopline.relay.v1 import session_pb2

    from hopline_cli import shapes

    usage, where = await asyncio.gather(
        mesh.usage.GetUsage(pb.GetUsageRequest(agent=agent)),
        mesh.sessions.GetContext(session_pb2.GetContextRequest(agent=agent)),
    )
    return shapes.usage(usage, where)
