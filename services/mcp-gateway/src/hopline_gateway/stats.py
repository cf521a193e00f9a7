"""How long MCP requests took, by method and by tool of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hopline_rpc.metrics import Family, Labels, Point, gauge, histogram
from hopline_rpc.stats import Histogram, MethodStats

# Any other word is a client's own: it counts, and has no series of its own.
_METHODS: Final = frozenset(
    {
        "initialize",
        "notifications/cancelled",
        "notifications/initialized",
        "ping",
        "server/discover",
        "tools/call",
        "tools/list",
    }
)
OTHER: Final = "other"


class McpStats:
    """Counts of one gateway's requests."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], MethodStats] = {}

    def record(self, method: str, tool: str, seconds: float, failure: str | None) -> None:
        """Count a request; `tool` is one of ours or empty."""
        key = (method, tool)
        found = self._found.get(key)
        if found is None:
            key = (method if method in _METHODS else OTHER, tool)
            found = self._found.setdefault(key, MethodStats())
        found.record(seconds, failure)

    def families(self, waits: int) -> Sequence[Family]:
        """Return them, and how many calls wait."""
        durations: list[tuple[Labels, Histogram]] = []
        failures: list[Point] = []
        for (method, tool), stats in sorted(self._found.items()):
            labels = {"mcp.method.name": method} | ({"gen_ai.tool.name": tool} if tool else {})
            durations.append((labels, stats))
            failures += [Point({**labels, "error.type": why}, count) for why, count in stats.errors.items()]
        return [
            histogram("mcp.server.operation.duration", "s", "How long MCP requests took.", durations),
            Family(
                "hopline.mcp.failures",
                "counter",
                "{request}",
                "MCP requests that were refused or failed.",
                failures,
            ),
            gauge("hopline.gateway.waits", "{call}", "Calls of clients that wait for something.", waits),
        ]
