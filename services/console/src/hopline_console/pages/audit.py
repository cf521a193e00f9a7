"""`/audit`: the log, narrowed down, taken along as JSON Lines, and proved to be what was written."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from google.protobuf.json_format import MessageToDict
from hopline.relay.v1 import audit_pb2 as pb
from hopline_files.audit_lines import line_of, plain
from hopline_rpc.clock import from_timestamp, parse_rfc3339, to_timestamp
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from hopline_console.blocks import Ask, Block, Cell, Code, Link, Links, Moment, Several, State, Table, Word
from hopline_console.context import ConsoleContext
from hopline_console.forms import Field, Filled, Form
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE as PAGE
from hopline_console.pages import audit_check
from hopline_console.visit import Visit, routed
from hopline_console.words import ADMIN

if TYPE_CHECKING:
    from hopline.relay.v1.audit_pb2_grpc import AuditServiceAsyncStub

NAV: Final = (Item("See", "Audit log", "/audit"),)

_EXPORTED: Final = 200
_SHOWN: Final = 2000
_FILTER: Final = Form(
    "/audit",
    "Which events",
    "Show",
    (
        Field("action", "Kind", hint="Such as message.", longest=64),
        Field("agent", "About the agent", hint="Id, slug or name.", longest=200),
        Field("actor", "Done by", hint="An agent or a person.", longest=200),
        Field("thread", "In the thread", hint="Its id.", longest=64),
        Field("from", "From", "moment", "UTC."),
        Field("to", "Before", "moment", "UTC."),
        Field("oldest", "Oldest first", "flag"),
    ),
    method="get",
)


def routes(context: ConsoleContext) -> list[Route]:
    """Return the pages of the log."""
    return [
        *routed(context, "/audit", get=show),
        *routed(context, "/audit/export", get=export),
        *audit_check.routes(context),
    ]


async def show(visit: Visit) -> Response:
    """Show a page of the log."""
    filled = _FILTER.read(visit.query)

    async def act() -> Response:
        request = _request(filled)
        request.page_size, request.page_token = PAGE, visit.asked("page")
        page = await visit.mesh.events.ListEvents(request)
        return await _page(visit, filled, page)

    return await visit.answer(filled, act, lambda: visit.page("Audit log", [Ask(filled)], filled=filled))


def _request(filled: Filled) -> pb.ListEventsRequest:
    values = filled.values
    request = pb.ListEventsRequest(
        action=values["action"],
        agent=values["agent"],
        actor=values["actor"],
        thread_id=values["thread"],
        descending=not values["oldest"],
    )
    for name in ("from", "to"):
        if values[name]:
            getattr(request, name).CopyFrom(to_timestamp(parse_rfc3339(values[name])))
    return request


async def _page(visit: Visit, filled: Filled, page: pb.ListEventsResponse) -> Response:
    kept = {name: typed for name, typed in filled.typed.items() if typed}
    links = [Link("Export these as JSON Lines", "/audit/export?" + urlencode(kept))]
    if visit.role >= ADMIN:
        links.append(Link("Check the chain", "/audit/check"))
    empty = "No events here." + (" Older pages may have some." if page.next_page_token else "")
    table = Table(
        "Events",
        ("Event", "When", "Kind", "By", "About", "Details"),
        [_row(each) for each in page.events],
        empty,
        more=page.next_page_token,
    )
    blocks: list[Block] = [Ask(filled), Links("This log", links), table]
    return await visit.page("Audit log", blocks)


def _row(event: pb.Event) -> list[Cell]:
    refused = "refused" in event.action or "failed" in event.action
    kind: Cell = State(event.action, "bad") if refused else Word(event.action)
    actor = event.actor_display or event.actor_name or event.actor_kind
    by: Cell = (
        Link(actor, f"/agents/{event.actor_id}") if event.actor_kind == "agent" and event.actor_id else actor
    )
    about: list[Cell] = [
        Link(text, f"/{place}/{id_}")
        for text, place, id_ in (
            # What happened to a person stands there too, and has no page.
            ("agent", "agents", event.agent_id if event.agent_id.startswith("agt_") else ""),
            ("thread", "threads", event.thread_id),
            ("session", "sessions", event.session_id),
            ("turn", "turns", event.turn_id),
            ("trace", "traces", event.trace_id),
        )
        if id_
    ]
    details = plain(MessageToDict(event.details))
    text = " ".join(f"{key}={_value(value)}" for key, value in sorted(details.items()))
    told = Code(text[:_SHOWN]) if text else "—"
    return [
        str(event.seq),
        Moment(from_timestamp(event.at)),
        kind,
        by,
        Several(about) if about else "—",
        told,
    ]


def _value(value: Any) -> str:
    """Return a detail on one line, as the command prints it."""
    is_line = isinstance(value, str) and "\n" not in value
    return str(value) if is_line else json.dumps(value, ensure_ascii=False)


async def export(visit: Visit) -> Response:
    """Hand over the events as a file, written as they are read: never more than a page at a time is held."""
    filled = _FILTER.read(visit.query)
    if not filled.good:
        return await visit.page("Audit log", [Ask(filled)], filled=filled)
    request = _request(filled)
    request.descending, request.page_size = False, _EXPORTED
    # What is refused is refused as a page, before the file begins.
    first = await visit.mesh.events.ListEvents(request)
    headers = {"Content-Disposition": 'attachment; filename="audit.jsonl"', "Cache-Control": "no-store"}
    return StreamingResponse(
        lines(visit.mesh.events, request, first), media_type="application/jsonl", headers=headers
    )


async def lines(
    log: AuditServiceAsyncStub, request: pb.ListEventsRequest, page: pb.ListEventsResponse
) -> AsyncIterator[bytes]:
    """Yield a page of lines at a time; where the log cannot be read on, the file breaks off."""
    while True:
        yield b"".join(
            json.dumps(line_of(each), ensure_ascii=False).encode(errors="replace") + b"\n"
            for each in page.events
        )
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token
        page = await log.ListEvents(request)
