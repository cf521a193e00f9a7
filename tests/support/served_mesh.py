"""A mesh of four processes: `hopline serve` for each service, set up as its operator does it."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping

from tests.support.mesh_process import HOPLINE, SECONDS, MeshProcess, Process, Processes

SERVICES = ("registry", "quota", "relay", "gateway")
_POLL = 0.05


class ServedMesh(MeshProcess):
    """The four services on one data directory, each a process that can be killed and started again."""

    def __init__(self, started: Processes, name: str = "data", env: Mapping[str, str] | None = None) -> None:
        super().__init__(started, name, env)
        self.running: dict[str, Process] = {}
        # How its HTTPS is spoken to, where it has TLS.
        self.https: ssl.SSLContext | None = None
        self._addresses: dict[str, str] = {}

    def start(self) -> None:
        """Start the registry, make each service's token, and start the services."""
        self.serve("registry")
        for name in SERVICES[1:]:
            made = self.hopline(
                "token", "create", "--service", name, "--token-file", str(self.token_of(name))
            )
            assert made.returncode == 0, made.stderr
            self.serve(name)
        self.wait_until_ready()

    @property
    def env(self) -> Mapping[str, str]:
        """Return what every service has in its environment."""
        return self._env or {}

    def token_of(self, name: str) -> object:
        """Return the file with a service's token."""
        return self.processes.folder / f"{name}.token"

    def serve(self, name: str) -> None:
        """Start one service, at the address it had before, and wait until it is announced."""
        env = {f"HOPLINE_{each.upper()}": address for each, address in self._addresses.items()}
        env |= self._env or {}
        env["HOPLINE_SERVICE_TOKEN_FILE"] = str(self.token_of(name))
        bind = self._addresses.get(name, "127.0.0.1:0").rpartition("/")[2]
        words = ("serve", name, "--data", str(self.data), "--bind", bind)
        process = self.running[name] = self.processes.start(name, HOPLINE, *words, env=env)
        ends = time.monotonic() + SECONDS
        while f"the {name} listens on" not in process.said or not self._announced(name):
            assert process.is_running, f"`hopline serve {name}` ended: {process.said}"
            assert time.monotonic() < ends, f"the {name} did not come up: {process.said}"
            time.sleep(_POLL)
        self._addresses[name] = self.endpoints[name]

    def _announced(self, name: str) -> bool:
        return self.endpoints_file.exists() and bool(self.endpoints[name])

    def wait_until_ready(self) -> None:
        """Wait until the gateway can serve."""
        ends = time.monotonic() + SECONDS
        while not self._is_ready():
            assert time.monotonic() < ends, json.dumps(self.endpoints)
            time.sleep(_POLL)

    def _is_ready(self) -> bool:
        try:
            url = f"{self.endpoints['gateway']}/readyz"
            with urllib.request.urlopen(url, timeout=5, context=self.https) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def complaints(self) -> list[str]:
        """Return what the services have logged as their own defects."""
        return [
            line
            for process in self.running.values()
            for line in process.said.splitlines()
            if '"level": "error"' in line or "Traceback" in line
        ]
