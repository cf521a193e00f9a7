"""What is measured: the rows by name, what each of them is to reach, and where the results are kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from tests.bench.processes import FOLDER, BenchError

RESULTS: Final = FOLDER.parent / "bench.json"


@dataclass(frozen=True)
class Target:
    """A bound on the ratio to the floor; on the value itself where there is no floor."""

    sign: Literal["≥", "≤"]
    bound: float

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:g}"

    def met(self, figure: float) -> bool:
        return figure >= self.bound if self.sign == "≥" else figure <= self.bound


@dataclass(frozen=True)
class Kind:
    """What a row is about. A row without a target is there to be compared with."""

    unit: str
    what: str
    target: Target | None = None


def _at_least(bound: float) -> Target:
    return Target("≥", bound)


def _at_most(bound: float) -> Target:
    return Target("≤", bound)


# Against AutoGen in the same run where the peers are installed; else against the echo floor, with the
# targets times what AutoGen reaches of that floor: 0.62 with 64 outstanding, 0.69 with one.
AUTOGEN_OF_ECHO: Final = 0.62
AUTOGEN_OF_ECHO_C1: Final = 0.69

KINDS: Final[dict[str, Kind]] = {
    "send_unary_embedded": Kind(
        "/s", "durable `Send`, unary, 64 outstanding, vs. a bare echo", _at_least(0.5)
    ),
    "send_tunnel_embedded": Kind("/s", "the same over one tunnel, vs. the unary echo", _at_least(2.0)),
    "send_unary_mesh": Kind("/s", "unary, a process a service, PostgreSQL", _at_least(0.35)),
    "ask_one_stream": Kind("/s", "agent → agent → answer, 64 outstanding, one stream", _at_least(1.0)),
    "ask_own_streams": Kind("/s", "the same, a stream for each of 128 agents", _at_least(0.5)),
    "ask_c1": Kind("/s", "the same, one outstanding", _at_least(0.4)),
    "mcp_send_legacy": Kind("/s", "tool `send_message`, 32 outstanding, vs. an echo tool", _at_least(0.5)),
    "mcp_send_modern": Kind("/s", "the same in the 2026-07-28 revision", _at_least(0.5)),
    "mcp_stdio_start": Kind("ms", "`hopline mcp` to its tool list, vs. an empty SDK server", _at_most(1.3)),
    "up_start": Kind("ms", "`hopline up` until ready, vs. only importing its libraries", _at_most(2.0)),
    "wake": Kind("ms", "send → a waiting inbox returns, vs. one echo", _at_most(4.0)),
    "trace_cost_100": Kind("/s", "sends with every trace kept, vs. tracing off", _at_least(0.75)),
    "trace_cost_1": Kind("/s", "sends with 1 % of the traces kept, vs. tracing off", _at_least(0.95)),
    "memory_idle": Kind("MB", "resident set of the idle mesh", _at_most(160)),
    "memory_worker": Kind("KB", "of it for each of 1000 attached workers", _at_most(100)),
    "growth_send": Kind("ms", "a send with 1 000 000 messages kept, vs. 1 000", _at_most(1.3)),
    "growth_inbox": Kind("ms", "`TakeInbox`, likewise", _at_most(1.3)),
    "growth_threads": Kind("ms", "`ListThreads`, likewise", _at_most(1.3)),
    "growth_agents": Kind("ms", "a page of `ListAgents` of 10 000 agents, vs. of 100", _at_most(1.3)),
    "peer_autogen": Kind("/s", "AutoGen Core over gRPC, in memory, 64 outstanding"),
    "peer_autogen_c1": Kind("/s", "the same, one outstanding"),
    "peer_a2a_memory": Kind("/s", "a2a-sdk over gRPC, tasks in memory, 64 outstanding"),
    "peer_a2a_sqlite": Kind("/s", "the same, tasks in SQLite"),
}


# The console's pages on a mesh with 100 000 messages, by what each shows.
PAGES: Final[Mapping[str, str]] = {
    "floor": "the floor, every message waiting",
    "window": "an agent's exchanges, the first page",
    "deep": "the same, 3 000 messages back",
    "search": "the same, a word of every message",
    "rare": "the same, a word of twenty messages",
    "activity": "the timeline",
    "threads": "the list of threads",
    "thread": "the end of a thread of 1 000",
    "turn": "a turn",
}
for _name, _what in PAGES.items():
    KINDS[f"page_{_name}"] = Kind("ms", f"console: {_what}, vs. a bare page", _at_most(100))
    KINDS[f"page_{_name}_p95"] = Kind("ms", "the same, the 95th of 100")
    KINDS[f"call_{_name}"] = Kind("ms", "the call behind it")


@dataclass(frozen=True)
class Row:
    """One result. `ratio` is value over floor; None where there is no floor."""

    name: str
    value: float
    unit: str
    floor: float | None
    ratio: float | None
    target: Target | None

    @property
    def ok(self) -> bool | None:
        """Whether it reaches its target; None without one."""
        if self.target is None:
            return None
        return self.target.met(self.value if self.ratio is None else self.ratio)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": round(self.value, 2),
            "unit": self.unit,
            "floor": None if self.floor is None else round(self.floor, 2),
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "target": None if self.target is None else str(self.target),
            "ok": self.ok,
        }


def row(name: str, value: float, floor: float | None = None, target: Target | None = None) -> Row:
    """Make the row of a name; `target` replaces the one that the name has."""
    kind = KINDS[name]
    ratio = None if floor is None else value / floor
    return Row(name, value, kind.unit, floor, ratio, target or kind.target)


def save(rows: Iterable[Row]) -> None:
    """Write the results."""
    found = json.dumps({"rows": [each.as_json() for each in rows]}, indent=1, ensure_ascii=False)
    RESULTS.write_text(found + "\n", encoding="utf-8")


def load() -> list[dict[str, Any]]:
    """Read the results of the last run."""
    try:
        rows: list[dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    except (OSError, ValueError, KeyError):
        raise BenchError(f"no results in {RESULTS}: run `make bench` first") from None
    return rows
