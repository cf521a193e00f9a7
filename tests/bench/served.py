"""The mesh as processes of their own on one PostgreSQL, as `hopline serve` runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tests.bench.mesh import HOPLINE, Mesh
from tests.bench.processes import FOLDER, BenchError, stop, tail
from tests.support.postgres_server import Server

_SERVICES: Final = ("registry", "quota", "relay", "gateway")
# What is committed is on disk, as it is on SQLite.
_DURABLE: Final = ("fsync=on", "synchronous_commit=on", "full_page_writes=on")
_START_SECONDS: Final = 60.0


class Served(Mesh):
    """Four services and a database server, each a process, on loopback."""

    def __init__(self, name: str) -> None:
        self.data = FOLDER / name
        shutil.rmtree(self.data, ignore_errors=True)
        self._stack = ExitStack()
        self.endpoints: dict[str, Any] = {}
        try:
            server = Server(Path(tempfile.mkdtemp(prefix="hopline-postgres-")), *_DURABLE)
            self._stack.callback(server.close)
            server.make()
            server.start()
            for service in _SERVICES:
                self._serve(service, server.url())
        except BaseException:
            self.close()
            raise

    def _serve(self, service: str, url: str) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "HOPLINE_"))}
        env = kept | {f"HOPLINE_{each.upper()}": at for each, at in self.endpoints.items()}
        env["HOPLINE_DATABASE_URL"] = url
        if self.endpoints:
            token = self.data / f"{service}.token"
            made = ("token", "create", "--service", service, "--token-file", token, "--data", self.data)
            subprocess.run([HOPLINE, *made], env=kept, check=True, stdout=subprocess.DEVNULL)
            env["HOPLINE_SERVICE_TOKEN_FILE"] = str(token)
        log = FOLDER / f"{self.data.name}-{service}.log"
        words = ("serve", service, "--data", self.data, "--bind", "127.0.0.1:0")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [HOPLINE, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env
            )
        self._stack.callback(stop, process)
        until = time.monotonic() + _START_SECONDS
        said = f"the {service} listens on "
        while said not in (text := log.read_text(encoding="utf-8")):
            if process.poll() is not None or time.monotonic() > until:
                raise BenchError(f"`hopline serve {service}` does not start: {tail(log)}")
            time.sleep(0.01)
        self.endpoints[service] = text.partition(said)[2].split()[0]

    def close(self) -> None:
        """Stop all of it."""
        self._stack.close()
