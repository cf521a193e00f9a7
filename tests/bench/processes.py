"""The processes of a run: everything measured, and everything that measures, is one of its own.

A child speaks lines of JSON: one on its standard output when it is ready, then one for each line on its
standard input. It ends when its standard input does, so nothing outlives the run.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "build" / "bench"
_READY_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 20.0
_LOG_LINES: Final = 8


class BenchError(Exception):
    """Something could not be measured; the text says what and why."""


def compile_once() -> None:
    """Let every process of this run use modules compiled by an earlier one, as on anybody's machine.

    Where nothing may be written beside the sources, starts would be measured with the compiler in them.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(FOLDER / "compiled")


class Child:
    """A process that answers each line of JSON with one."""

    def __init__(
        self, name: str, module: str, config: Mapping[str, Any], python: str = sys.executable
    ) -> None:
        self.name = name
        self._log = FOLDER / f"{name}.log"
        self._buffer = b""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, "-m", module, json.dumps(config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                bufsize=0,
            )
        try:
            self.ready = self._read(_READY_SECONDS)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any], seconds: float = 60.0) -> dict[str, Any]:
        """Send a request and return its answer; waits at most `seconds`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            raise BenchError(f"{self.name} has ended: {tail(self._log)}") from None
        return self._read(seconds)

    def _read(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise BenchError(f"{self.name} said nothing for {seconds:.0f} s: {tail(self._log)}")
            piece = os.read(self._process.stdout.fileno(), 65536)
            if not piece:
                raise BenchError(f"{self.name} has ended: {tail(self._log)}")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchError(f"{self.name}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        stop(self._process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and end it when it does not."""
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tail(log: Path) -> str:
    """Return the last lines of a log, for an error."""
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:] if log.exists() else []
    return "\n".join(lines) or "it logged nothing"
