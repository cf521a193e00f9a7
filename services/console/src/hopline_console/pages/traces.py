"""`/traces/<id>`: the spans of a chain of delegations, or where they are kept."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from hopline.relay.v1 import delegation_pb2
from hopline_rpc.errors import HoplineError
from hopline_rpc.spans import read_trace
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.page import Page

NAV: Final[tuple[Item, ...]] = ()
_TURN: Final = "hopline.turn.id"
_MOST: Final = 500
_ASKED: Final = 20
_WIDTH: Final = 1000.0
_LEAST: Final = 3.0
_DEEPEST: Final = 12
_TOLD: Final = ("gen_ai.agent.name", "hopline.agent.name", "gen_ai.tool.name", "error.type")


@dataclass(frozen=True, slots=True)
class Row:
    """A span with its place in the waterfall."""

    span: dict[str, Any]
    level: int
    begins: float
    width: float
    seconds: float
    told: str
    failed: bool


def routes(context: ConsoleContext) -> list[Route]:
    """Return the routes."""
    return [context.get("/traces/{trace}", trace)]


async def trace(page: Page) -> Response:
    """Show a trace to whoever may look at the whole workspace and at one of its turns."""
    trace_id, context = page.path("trace"), page.context
    if context.settings.trace_url:
        if not (len(trace_id) == 32 and trace_id.isalnum()):
            raise HoplineError("not_found", "no such trace")
        return RedirectResponse(context.settings.trace_url.replace("{trace_id}", trace_id), 303)
    me = await page.me()
    if context.spans is None or not me.workspace_role:
        why = "elsewhere" if context.spans is None else "role"
        return await page.render("traces/none.html", why=why)
    spans = await asyncio.to_thread(read_trace, context.spans, trace_id)
    if not spans or not (await _is_of(page, trace_id) or await _sees_one(page, spans)):
        # Also of one that is somebody else's: spans come in batches, and a link to one may be too early.
        return await page.render("traces/none.html", why="nothing")
    return await page.render(
        "traces/trace.html", trace_id=trace_id, rows=_rows(spans[:_MOST]), cut=len(spans) > _MOST
    )


async def _is_of(page: Page, trace_id: str) -> bool:
    """Tell whether the address names a turn of this trace: one that runs has not left its own span yet."""
    turn_id = page.query("turn")
    if not turn_id:
        return False
    found = await page.mesh.turns.GetTurn(delegation_pb2.GetTurnRequest(turn_id=turn_id))
    return found.turn.trace_id == trace_id


async def _sees_one(page: Page, spans: list[dict[str, Any]]) -> bool:
    """Tell whether one of the turns in it is this workspace's: spans themselves belong to no workspace."""
    turns = dict.fromkeys(str(span["attributes"][_TURN]) for span in spans if span["attributes"].get(_TURN))
    for turn_id in list(turns)[:_ASKED]:
        try:
            await page.mesh.turns.GetTurn(delegation_pb2.GetTurnRequest(turn_id=turn_id))
        except HoplineError as error:
            if error.reason not in {"not_found", "invalid_argument"}:
                raise
        else:
            return True
    return False


def _rows(spans: list[dict[str, Any]]) -> list[Row]:
    first = min(span["start_ns"] for span in spans)
    whole = max(max(span["end_ns"] for span in spans) - first, 1)
    by_id = {span["span_id"]: span for span in spans}
    below: dict[str, list[dict[str, Any]]] = {}
    for span in spans:
        above = (
            span["parent_id"] if span["parent_id"] in by_id and span["parent_id"] != span["span_id"] else ""
        )
        below.setdefault(above, []).append(span)
    rows: list[Row] = []
    stack = [(0, span) for span in reversed(below.get("", []))]
    while stack:
        level, span = stack.pop()
        took = max(0, span["end_ns"] - span["start_ns"])
        attributes = span["attributes"]
        rows.append(
            Row(
                span,
                min(level, _DEEPEST),
                round(_WIDTH * (span["start_ns"] - first) / whole, 1),
                max(round(_WIDTH * took / whole, 1), _LEAST),
                took / 1e9,
                " · ".join(str(attributes[key]) for key in _TOLD if attributes.get(key)),
                span["status"] == "error" or bool(attributes.get("error.type")),
            )
        )
        stack += [(level + 1, each) for each in reversed(below.get(span["span_id"], []))]
    return rows
