"""The mesh that is measured: a real `hopline up`, its policy and its agents."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self

import grpc
from hopline.registry.v1 import agent_pb2, workspace_pb2
from hopline.registry.v1.agent_pb2_grpc import AgentServiceStub
from hopline.registry.v1.workspace_pb2_grpc import WorkspaceServiceStub

from tests.bench.processes import FOLDER, ROOT, BenchError, stop, tail

HOPLINE: Final = ROOT / ".venv" / "bin" / "hopline"
_START_SECONDS: Final = 60.0
# How often the file that says "ready" is looked for; small against a start.
_POLL_SECONDS: Final = 0.001
# How many agents are created at once: they share commits.
_CREATING: Final = 16
# Every rail is on, none of them bites.
_LIMITS: Final[Mapping[str, Any]] = {
    "max_depth": 32,
    "root_turns": 1_000_000,
    "messages_per_thread": 100_000,
    "sent_per_day": 100_000_000,
    "received_per_day": 100_000_000,
    "pair_budget": "100000000/300s",
    "concurrent_runs": 1_000_000,
    "inbox_backlog": 1_000_000,
    "agents": 1_000_000,
    "refuse_cycles": "on",
    "refusals": "100000000/60s",
}


class Mesh:
    """A running mesh on a data directory of its own; `fresh` removes what an earlier run left there.

    `settings` are added to its environment, which is otherwise without any of OpenTelemetry or Hopline.
    """

    def __init__(self, name: str, settings: Mapping[str, str] | None = None, *, fresh: bool = True) -> None:
        self.data = FOLDER / name
        self._log = FOLDER / f"{name}.log"
        if fresh:
            shutil.rmtree(self.data, ignore_errors=True)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "HOPLINE_"))}
        begun = time.perf_counter()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [HOPLINE, "up", "--data", self.data, "--any-port"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=kept | dict(settings or {}),
            )
        try:
            self.endpoints = self._wait()
        except BaseException:
            self.close()
            raise
        self.start_seconds = time.perf_counter() - begun

    def _wait(self) -> dict[str, Any]:
        path = self.data / "endpoints.json"
        until = time.monotonic() + _START_SECONDS
        while not path.exists():
            if self._process.poll() is not None:
                raise BenchError(f"`hopline up` ended while it was starting: {tail(self._log)}")
            if time.monotonic() > until:
                raise BenchError(f"the mesh was not ready within {_START_SECONDS:.0f} s: {tail(self._log)}")
            time.sleep(_POLL_SECONDS)
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop it, as an operator would."""
        stop(self._process)

    @property
    def pid(self) -> int:
        """The process it runs in."""
        return self._process.pid

    @property
    def admin_token(self) -> str:
        """The installation's token."""
        return (self.data / "admin.token").read_text(encoding="utf-8").strip()

    @property
    def _admin(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.admin_token}"), ("hopline-workspace", "default"))

    def lift_limits(self) -> None:
        """Set every limit so high that the run does not reach it."""
        policy = workspace_pb2.Policy(**_LIMITS)
        with grpc.insecure_channel(self.endpoints["registry"]) as channel:
            request = workspace_pb2.UpdatePolicyRequest(policy=policy)
            request.update_mask.paths.extend(_LIMITS)
            WorkspaceServiceStub(channel).UpdatePolicy(request, metadata=self._admin, timeout=30)

    def create_agents(self, names: Sequence[str]) -> dict[str, str]:
        """Create agents and return their tokens by name."""
        admin = self._admin
        with (
            grpc.insecure_channel(self.endpoints["registry"]) as channel,
            ThreadPoolExecutor(_CREATING) as pool,
        ):
            stub = AgentServiceStub(channel)

            def create(name: str) -> str:
                request = agent_pb2.CreateAgentRequest(agent=agent_pb2.Agent(name=name))
                return stub.CreateAgent(request, metadata=admin, timeout=30).token

            return dict(zip(names, pool.map(create, names), strict=True))
