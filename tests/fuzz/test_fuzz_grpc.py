"""Every method of every service: whatever bytes come, the answer is a result or a refusal of the contract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.walk import METHODS, Method
from tests.fuzz import verdicts
from tests.fuzz.budget import inputs
from tests.fuzz.ground import Ground, unlike
from tests.fuzz.protos import encoded

Caller = tuple[tuple[str, str | bytes], ...]

SECONDS = 20.0
WAITING_SECONDS = 1.0
SERVED = {"registry": "registry", "relay": "relay", "quota": "quota", "runtime": "relay"}
# New keys take their time by design, and what they replace stays published.
KEPT_APART = {"/hopline.registry.v1.IdentityService/RotateKeys"}
UNARY = [
    method
    for method in METHODS
    if method.path not in KEPT_APART
    and not method.descriptor.client_streaming
    and not method.descriptor.server_streaming
]


@pytest.fixture(scope="module")
def channels(mesh: Ground) -> Iterator[dict[str, grpc.Channel]]:
    """A channel to each service."""
    found = {name: grpc.insecure_channel(mesh.mesh.endpoints[name]) for name in set(SERVED.values())}
    yield found
    for channel in found.values():
        channel.close()


def callers(mesh: Ground) -> st.SearchStrategy[Caller]:
    """Draw who calls: mostly somebody who may."""
    agent = (("authorization", f"Bearer {mesh.agent.token}"),)
    admin = (("authorization", f"Bearer {mesh.admin_token}"), ("hopline-workspace", mesh.workspace))
    service = (("authorization", f"Bearer {mesh.service_token}"),)
    nobody: list[Caller] = [(), (("authorization", "Bearer x"),), (("authorization", "Basic eDp5"),)]
    odd: Caller = (
        *agent,
        ("traceparent", "00-0-0-0"),
        ("hopline-request-id", "x" * 300),
        ("x-bin", b"\xff\0"),
    )
    return st.sampled_from([agent, agent, admin, admin, service, odd, *nobody])


def call(channel: grpc.Channel, method: Method, raw: bytes, caller: Caller) -> None:
    """Make a call with these bytes and judge what comes back."""
    waits = "wait_seconds" in method.request.DESCRIPTOR.fields_by_name
    rpc: Any = channel.unary_unary(method.path, None, method.response.FromString)
    try:
        rpc(raw, metadata=caller, timeout=WAITING_SECONDS if waits else SECONDS)
    except grpc.RpcError as error:
        failed: Any = error
        if waits and failed.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return  # damage made it a call that waits
        verdicts.grpc_error(failed, unlike(raw))


@pytest.mark.parametrize("method", UNARY, ids=lambda method: method.path)
def test_any_bytes_get_a_result_or_a_refusal(
    mesh: Ground, channels: dict[str, grpc.Channel], method: Method
) -> None:
    package = method.service.full_name.split(".")[1]
    if package not in SERVED:
        pytest.skip("served by plugins, not by the mesh")

    @inputs(8)
    @given(raw=encoded(method.request.DESCRIPTOR, mesh.known), caller=callers(mesh))
    def answered(raw: bytes, caller: Caller) -> None:
        call(channels[SERVED[package]], method, raw, caller)
        mesh.unharmed()

    answered()
