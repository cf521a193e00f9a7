"""The console's pages on a mesh with 100 000 messages, beside a bare page."""

from __future__ import annotations

from typing import Final

from tests.bench.mesh import Mesh
from tests.bench.processes import Child
from tests.bench.rig import Rig, interleaved, rounds_of
from tests.bench.rows import PAGES, Row, row

_MESSAGES: Final = 100_000
_AGENTS: Final = 20
_FILL_SECONDS: Final = 900.0
# Long enough that each page is opened some dozens of times in a round.
_SECONDS: Final = 6.0
_WINDOW: Final = "/floor?agent=agent-0&channel=relay"


def pages(rig: Rig) -> list[Row]:
    """Measure each page, and the call behind it."""
    with Mesh("pages") as mesh, Child("bare-page", "tests.bench.floors.page", {}) as bare:
        mesh.lift_limits()
        tokens = mesh.create_agents([f"agent-{number}" for number in range(_AGENTS)])
        config = {
            "url": mesh.endpoints["console"],
            "relay": mesh.endpoints["relay"],
            "admin": mesh.admin_token,
            "agents": list(tokens.values()),
        }
        with (
            Child("reader", "tests.bench.load.pages", config) as reader,
            Child("reader-bare", "tests.bench.load.pages", {"url": bare.ready["url"]}) as floor,
        ):
            there = reader.ask({"fill": _MESSAGES}, _FILL_SECONDS)
            paths = {
                "floor": "/floor",
                "window": _WINDOW,
                "deep": f"{_WINDOW}&page={there['token']}",
                "search": f"{_WINDOW}&q=pears",
                "rare": f"{_WINDOW}&q=quince",
                "activity": "/activity",
                "threads": "/threads",
                "thread": f"/threads/{there['thread']}?end=1",
                "turn": f"/turns/{there['turn']}",
            }
            plays = {
                "mesh": rounds_of(reader, paths=paths, **there),
                "bare": rounds_of(floor, paths={"bare": "/"}),
            }
            found = interleaved(plays, seconds=_SECONDS)
    mesh_times, bare_times = found["mesh"], found["bare"]
    rows = []
    for name in PAGES:
        for suffix in ("", "_p95"):
            least = bare_times[f"page_bare{suffix}"] * 1000
            rows.append(row(f"page_{name}{suffix}", mesh_times[f"page_{name}{suffix}"] * 1000, least))
        rows.append(row(f"call_{name}", mesh_times[f"call_{name}"] * 1000))
    return rows
