"""How much memory an idle mesh holds, and what a worker that is attached and does nothing adds."""

from __future__ import annotations

import time
from typing import Final

import psutil

from tests.bench.mesh import Mesh
from tests.bench.processes import Child
from tests.bench.rig import Rig
from tests.bench.rows import Row, row

_WORKERS: Final = 1000
# What a start leaves behind is given back by then.
_SETTLE_SECONDS: Final = 3.0


def memory(rig: Rig) -> list[Row]:
    """Measure the resident set of a mesh of its own, before and after 1000 workers attached."""
    with Mesh("idle") as mesh:
        idle = _resident(mesh)
        mesh.lift_limits()
        tokens = list(mesh.create_agents([f"worker-{number}" for number in range(_WORKERS)]).values())
        before = _resident(mesh)
        config = {"target": mesh.endpoints["relay"], "own_streams": True, "callers": tokens}
        with Child("load-idle", "tests.bench.load.host", config):
            after = _resident(mesh)
    return [row("memory_idle", idle / 1e6), row("memory_worker", (after - before) / 1e3 / _WORKERS)]


def _resident(mesh: Mesh) -> int:
    time.sleep(_SETTLE_SECONDS)
    return psutil.Process(mesh.pid).memory_info().rss
