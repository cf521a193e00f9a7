"""Any gRPC tool works with a token: reflection, health and a real call, by `buf curl` in grpcurl's place."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

BUF = Path(sys.executable).with_name("buf")
Curl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def curl(mesh_data: Path, tmp_path: Path) -> Curl:
    """Call a method with nothing but the server's own reflection to go by."""
    endpoints = json.loads((mesh_data / "endpoints.json").read_text())

    def curl(service: str, method: str, token: str = "", **request: Any) -> subprocess.CompletedProcess[str]:
        credential = ["--header", f"authorization: Bearer {token}"] if token else []
        words = [str(BUF), "curl", "--protocol", "grpc", "--http2-prior-knowledge", "-d", json.dumps(request)]
        url = f"http://{endpoints[service]}/{method}"
        return subprocess.run(
            [*words, *credential, url], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False
        )

    return curl


@pytest.mark.parametrize("service", ["registry", "relay", "quota"])
def test_every_service_says_whether_it_serves_without_a_credential(curl: Curl, service: str) -> None:
    answer = curl(service, "grpc.health.v1.Health/Check")
    assert json.loads(answer.stdout) == {"status": "SERVING"}


@pytest.mark.parametrize(
    ("service", "method", "field"),
    [
        ("registry", "hopline.registry.v1.VisibilityService/GetSelf", "workspace"),
        ("relay", "hopline.relay.v1.SessionService/GetContext", None),
        ("quota", "hopline.quota.v1.UsageService/GetUsage", "agentId"),
    ],
)
def test_every_service_answers_a_tool_that_knows_it_by_reflection_alone(
    curl: Curl, hopline: Run, service: str, method: str, field: str | None
) -> None:
    token = hopline("agent", "create", f"tool-{uuid.uuid4().hex[:8]}").json["token"]
    answer = curl(service, method, token)
    assert answer.returncode == 0, answer.stderr
    assert field is None or field in json.loads(answer.stdout)


def test_the_readmes_call_asks_an_agent(curl: Curl, hopline: Run) -> None:
    reviewer = hopline("agent", "create", f"reviewer-{uuid.uuid4().hex[:8]}").json["slug"]
    token = hopline("agent", "create", f"me-{uuid.uuid4().hex[:8]}").json["token"]
    ask = "hopline.relay.v1.MessageService/Ask"
    answer = curl("relay", ask, token, agent=reviewer, text="hello", wait_seconds=0)
    turn = json.loads(answer.stdout)["turn"]
    assert turn["status"] == "TURN_STATUS_QUEUED"
    assert turn["turnId"].startswith("trn_")


def test_without_a_credential_a_call_is_refused_with_the_meshs_reason(curl: Curl) -> None:
    answer = curl("relay", "hopline.relay.v1.MessageService/ListThreads")
    assert answer.returncode != 0
    assert json.loads(answer.stderr)["code"] == "unauthenticated"
