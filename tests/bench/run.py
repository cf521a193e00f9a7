"""`make bench`: measure the mesh beside its floors in one run, print a table, write `build/bench.json`.

`ROWS=a,b` picks rows by name or by the beginning of one, `FULL=1` adds the slow ones, `PEERS=1` installs
the peers and compares with them. A missed target is shown and is no failure; a row that could not be
measured is one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import FrameType
from typing import Final

from rich.console import Console
from rich.markup import escape

from tests.bench.measures import peers, sends, starts, tools
from tests.bench.measures.asks import asks
from tests.bench.measures.growth import growth
from tests.bench.measures.memory import memory
from tests.bench.measures.pages import pages
from tests.bench.processes import FOLDER, BenchError, compile_once
from tests.bench.rig import Rig
from tests.bench.rows import KINDS, PAGES, Row, save
from tests.bench.table import show

Measure = Callable[[Rig], list[Row]]
# In this order; the rows of one are measured together, interleaved with their floor.
MEASURES: Final[Mapping[Measure, tuple[str, ...]]] = {
    sends.sends: ("send_unary_embedded", "send_tunnel_embedded"),
    asks: ("ask_one_stream", "ask_own_streams", "ask_c1"),
    tools.mcp_send: ("mcp_send_legacy", "mcp_send_modern"),
    sends.wake: ("wake",),
    starts.mcp_stdio_start: ("mcp_stdio_start",),
    sends.trace_cost: ("trace_cost_100", "trace_cost_1"),
    starts.up_start: ("up_start",),
}
FULL: Final[Mapping[Measure, tuple[str, ...]]] = {
    sends.served: ("send_unary_mesh",),
    memory: ("memory_idle", "memory_worker"),
    growth: ("growth_send", "growth_inbox", "growth_threads", "growth_agents"),
    pages: tuple(f"page_{name}" for name in PAGES),
}
PEERS: Final[Mapping[Measure, tuple[str, ...]]] = {peers.peers: ("peer_a2a_memory", "peer_a2a_sqlite")}

console = Console(highlight=False)


def chosen(names: str, measures: Mapping[Measure, tuple[str, ...]]) -> dict[Measure, tuple[str, ...]]:
    """Return the measurements that give one of the named rows; all without a name."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if not any(known.startswith(name) for known in KINDS):
            raise BenchError(f"ROWS: there is no row {name!r}; the rows are {', '.join(KINDS)}")
    if not wanted:
        return dict(measures)
    return {
        measure: rows
        for measure, rows in measures.items()
        if any(row.startswith(name) for row in rows for name in wanted)
    }


def measure_all(rig: Rig, measures: Mapping[Measure, tuple[str, ...]]) -> tuple[list[Row], list[str]]:
    """Measure; return the rows, and the names of those that could not be measured."""
    rows: list[Row] = []
    failed: list[str] = []
    save(rows)
    for measure, names in measures.items():
        begun = time.monotonic()
        try:
            with console.status(f"measuring {', '.join(names)} …"):
                rows += measure(rig)
            save(rows)  # at once: a run that is ended keeps what it has measured
        except Exception as error:
            failed += names
            what = str(error) if isinstance(error, BenchError) else repr(error)
            console.print(f"[bold red]{', '.join(names)}[/]: {escape(what)}")
        else:
            console.print(f"[dim]{', '.join(names)}: {time.monotonic() - begun:.0f} s[/]")
    return rows, failed


def _ended(number: int, frame: FrameType | None) -> None:
    # As an exception, so that everything that was started is stopped.
    raise SystemExit(128 + number)


def main() -> int:
    """Run; return the exit status."""
    signal.signal(signal.SIGTERM, _ended)
    FOLDER.mkdir(parents=True, exist_ok=True)
    compile_once()
    with_peers, full = (bool(os.environ.get(name)) for name in ("PEERS", "FULL"))
    try:
        known = {**MEASURES, **(FULL if full else {}), **(PEERS if with_peers else {})}
        measures = chosen(os.environ.get("ROWS", ""), known)
        if with_peers:
            peers.install()
        with ExitStack() as stack:
            rows, failed = measure_all(Rig(stack, peers=with_peers), measures)
    except BenchError as error:
        console.print(f"[bold red]bench:[/] {escape(str(error))}")
        return 1
    except KeyboardInterrupt:
        return 130
    show(console, [row.as_json() for row in rows], failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
