"""How long it takes to start: the mesh, and the MCP server that a coding agent runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final

from mcp.types import LATEST_PROTOCOL_VERSION

from tests.bench.mesh import HOPLINE, Mesh
from tests.bench.processes import FOLDER, ROOT, BenchError, stop
from tests.bench.rig import STARTS, Rig, interleaved
from tests.bench.rows import Row, row

_IMPORTS: Final = "import grpc, sqlalchemy, starlette, mcp"


def up_start(rig: Rig) -> list[Row]:
    """Measure `hopline up` on a data directory that exists, beside importing the libraries it stands on."""
    found = interleaved({"imports": _imports, "up": _up}, rounds=STARTS)
    return [row("up_start", found["up"]["ms"], found["imports"]["ms"])]


def _imports(seconds: float) -> dict[str, float]:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", _IMPORTS], check=True, cwd=FOLDER)
    return {"ms": (time.perf_counter() - begun) * 1000}


def _up(seconds: float) -> dict[str, float]:
    with Mesh("up", fresh=False) as mesh:
        return {"ms": mesh.start_seconds * 1000}


def mcp_stdio_start(rig: Rig) -> list[Row]:
    """Measure `hopline mcp` until it has listed its tools, beside an empty server on the SDK."""
    token = FOLDER / "reader.token"
    url = rig.mesh.endpoints["gateway"]
    token.touch(mode=0o600)
    token.write_text(rig.tokens["reader"], encoding="utf-8")
    mesh = {**os.environ, "HOPLINE_URL": url, "HOPLINE_TOKEN_FILE": str(token)}

    def empty(seconds: float) -> dict[str, float]:
        return _until_listed([sys.executable, "-m", "tests.bench.floors.mcp_stdio"], os.environ)

    def hopline(seconds: float) -> dict[str, float]:
        return _until_listed([str(HOPLINE), "mcp"], mesh)

    found = interleaved({"empty": empty, "hopline": hopline}, rounds=STARTS)
    return [row("mcp_stdio_start", found["hopline"]["ms"], found["empty"]["ms"])]


def _until_listed(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, float]:
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=dict(environment)
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        hello = {
            "protocolVersion": LATEST_PROTOCOL_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        _write(process.stdin, "initialize", hello, number=1)
        _answer(process.stdout, command)
        _write(process.stdin, "notifications/initialized")
        _write(process.stdin, "tools/list", {}, number=2)
        _answer(process.stdout, command)
        return {"ms": (time.perf_counter() - begun) * 1000}
    finally:
        stop(process)


def _write(pipe: IO[bytes], method: str, params: Any = None, number: int | None = None) -> None:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if number is not None:
        message |= {"id": number, "params": params}
    pipe.write(json.dumps(message).encode() + b"\n")
    pipe.flush()


def _answer(pipe: IO[bytes], command: Sequence[str]) -> None:
    line = pipe.readline()
    if b'"result"' not in line:
        raise BenchError(f"`{' '.join(command)}` answered {line[:300]!r}")
