"""Peers, installed in an environment of their own: AutoGen Core and a2a-sdk."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench.processes import FOLDER, ROOT, BenchError, Child
from tests.bench.rig import Rig, interleaved, rounds_of
from tests.bench.rows import Row, row

_FOLDER: Final = FOLDER / "peers"
PYTHON: Final = _FOLDER / "bin" / "python"
_PACKAGES: Final = (
    "autogen-core==0.7.5",
    "autogen-ext[grpc]==0.7.5",
    "a2a-sdk[grpc,sqlite]==1.3.0",
    "uvloop",
)
_OUTSTANDING: Final = 64


def uv(*words: str) -> None:
    """Run a command of uv, the one in the checkout where there is one."""
    own = ROOT / ".uv" / "bin" / "uv"
    command = [str(own) if own.exists() else "uv", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"`{' '.join(command)}`: {done.stderr.strip()}")


def install() -> None:
    """Put the peers into their environment; quick when they are there."""
    uv("venv", "--quiet", "--allow-existing", "--python", "3.11", str(_FOLDER))
    uv("pip", "install", "--quiet", "--python", str(PYTHON), *_PACKAGES)


@contextmanager
def autogen() -> Iterator[Child]:
    """Run AutoGen's host and yield the driver that asks over it."""
    with Child("autogen-host", "tests.bench.peers.autogen_host", {}, str(PYTHON)) as host:
        config = {"target": host.ready["target"]}
        with Child("autogen-ask", "tests.bench.peers.autogen_ask", config, str(PYTHON)) as driver:
            yield driver


@contextmanager
def a2a(database: Path | None) -> Iterator[Child]:
    """Run an a2a agent, its tasks in memory or in SQLite, and yield the client that asks it."""
    if database is not None:
        database.unlink(missing_ok=True)
    kept = {} if database is None else {"database": str(database)}
    with Child("a2a-server", "tests.bench.peers.a2a_server", kept, str(PYTHON)) as server:
        config = {"target": server.ready["target"]}
        with Child("a2a-ask", "tests.bench.peers.a2a_ask", config, str(PYTHON)) as client:
            yield client


def peers(rig: Rig) -> list[Row]:
    """Measure a2a-sdk; AutoGen is measured together with the asks it is the floor of."""
    with a2a(None) as memory:
        in_memory = interleaved({"a2a": rounds_of(memory, outstanding=_OUTSTANDING)}, rounds=3)
    with a2a(FOLDER / "a2a.db") as sqlite:
        # Its calls are slow: a round has to be long enough for some to end.
        in_sqlite = interleaved({"a2a": rounds_of(sqlite, outstanding=_OUTSTANDING)}, rounds=3, seconds=3.0)
    return [
        row("peer_a2a_memory", in_memory["a2a"]["rate"]),
        row("peer_a2a_sqlite", in_sqlite["a2a"]["rate"]),
    ]
