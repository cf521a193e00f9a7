"""`/turns/<id>`: the tree of delegations that a turn is in, as a waterfall, with what open turns wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hopline.relay.v1 import delegation_pb2, floor_pb2
from hopline_rpc.clock import from_timestamp
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.page import Page

NAV: Final[tuple[Item, ...]] = ()
# The waterfall is this wide; in its own unit, the page stretches it.
_WIDTH: Final = 1000.0
_LEAST: Final = 4.0
_DEEPEST: Final = 12


@dataclass(frozen=True, slots=True)
class Row:
    """A turn with its place in the waterfall: where it begins to wait and to run, and how long each is."""

    node: floor_pb2.TreeNode
    level: int
    waits_from: float
    waits: float
    runs_from: float
    runs: float
    seconds: float
    is_open: bool


def routes(context: ConsoleContext) -> list[Route]:
    """Return the routes."""
    return [context.get("/turns/{turn}", tree), context.post("/turns/{turn}/cancel", cancel)]


async def tree(page: Page) -> Response:
    """Show who asked whom."""
    turn_id = page.path("turn")
    found = await page.mesh.floor.GetTree(floor_pb2.GetTreeRequest(turn_id=turn_id))
    rows = _rows(list(found.nodes), page.context.clock.now())
    focus = next((row for row in rows if row.node.turn.id == turn_id), None)
    blocked = [row for row in rows if row.node.HasField("wait") and row.node.wait.reason not in _ON_ANOTHER]
    return await page.render(
        "turns/tree.html",
        rows=rows,
        focus=focus,
        blocked=blocked,
        hooks=await _hooks(page, rows),
        cut=found.is_truncated,
        turn_id=turn_id,
    )


async def _hooks(page: Page, rows: list[Row]) -> Sequence[floor_pb2.FloorHook]:
    """Return the hooks that keep what is sent: a turn that waits for one tells nothing of it itself."""
    if not any(row.is_open for row in rows):
        return []
    return (await page.mesh.floor.GetFloor(floor_pb2.GetFloorRequest(page_size=1))).hooks


async def cancel(page: Page) -> Response:
    """End a turn and what only it waits for."""
    turn_id = page.path("turn")
    done = await page.mesh.turns.Cancel(delegation_pb2.CancelRequest(turn_id=turn_id))
    text = f"{done.canceled} turns were ended." if done.canceled != 1 else "One turn was ended."
    return page.go(f"/turns/{turn_id}", text if done.canceled else "It had ended already.")


_ON_ANOTHER: Final = frozenset(
    {floor_pb2.WAIT_REASON_ANSWER, floor_pb2.WAIT_REASON_SESSION, floor_pb2.WAIT_REASON_UNSPECIFIED}
)


def _rows(nodes: list[floor_pb2.TreeNode], now: float) -> list[Row]:
    if not nodes:
        return []
    begins = [from_timestamp(node.turn.created_at) for node in nodes]
    first = min(begins)
    ends = [_end(node, now) for node in nodes]
    whole = max(max(ends) - first, 0.001)

    def place(seconds: float) -> float:
        return round(_WIDTH * seconds / whole, 1)

    rows = []
    for node, begun, ended in zip(nodes, begins, ends, strict=True):
        turn = node.turn
        started = from_timestamp(turn.started_at) if turn.HasField("started_at") else ended
        rows.append(
            Row(
                node,
                min(node.level, _DEEPEST),
                place(begun - first),
                place(max(0.0, started - begun)),
                place(started - first),
                max(place(max(0.0, ended - started)), _LEAST if turn.HasField("started_at") else 0.0),
                ended - begun,
                not turn.HasField("ended_at"),
            )
        )
    return rows


def _end(node: floor_pb2.TreeNode, now: float) -> float:
    return from_timestamp(node.turn.ended_at) if node.turn.HasField("ended_at") else now
