"""Every reason has one gRPC code, and is the same reason on both sides of a call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from hopline.common.v1 import errors_pb2
from hopline.registry.v1 import identity_pb2
from hopline.registry.v1.identity_pb2_grpc import (
    IdentityServiceStub,
    add_IdentityServiceServicer_to_server,
)
from hopline_rpc.channels import ClientChannel, dial
from hopline_rpc.clock import ManualClock
from hopline_rpc.errors import REASONS, HoplineError, from_rpc_error, to_status
from hopline_rpc.ids import seeded_ids
from hopline_rpc.serving import Server

# The list is closed: clients switch on it.
CODES = {
    "invalid_argument": "INVALID_ARGUMENT",
    "unauthenticated": "UNAUTHENTICATED",
    "permission_denied": "PERMISSION_DENIED",
    "not_found": "NOT_FOUND",
    "ambiguous": "FAILED_PRECONDITION",
    "receive_only": "PERMISSION_DENIED",
    "agent_paused": "FAILED_PRECONDITION",
    "request_id_conflict": "ALREADY_EXISTS",
    "depth_exceeded": "FAILED_PRECONDITION",
    "root_exhausted": "RESOURCE_EXHAUSTED",
    "thread_full": "RESOURCE_EXHAUSTED",
    "quota_exceeded": "RESOURCE_EXHAUSTED",
    "pair_budget_exceeded": "RESOURCE_EXHAUSTED",
    "inbox_full": "RESOURCE_EXHAUSTED",
    "limit_reached": "RESOURCE_EXHAUSTED",
    "credits_exhausted": "RESOURCE_EXHAUSTED",
    "cycle_refused": "FAILED_PRECONDITION",
    "would_deadlock": "ABORTED",
    "answer_instead": "FAILED_PRECONDITION",
    "session_closed": "FAILED_PRECONDITION",
    "failed_precondition": "FAILED_PRECONDITION",
    "overloaded": "RESOURCE_EXHAUSTED",
    "unavailable": "UNAVAILABLE",
    "deadline_exceeded": "DEADLINE_EXCEEDED",
    "internal": "INTERNAL",
}
RETRYABLE = {
    "quota_exceeded",
    "pair_budget_exceeded",
    "inbox_full",
    "overloaded",
    "unavailable",
    "deadline_exceeded",
}
VALUES = [value for value in errors_pb2.ErrorReason.DESCRIPTOR.values if value.number]


def reason_of(value: Any) -> str:
    return str(value.name).removeprefix("ERROR_REASON_").lower()


def test_the_list_of_reasons_is_the_one_that_clients_know() -> None:
    assert {reason_of(value) for value in VALUES} == set(CODES) == set(REASONS)


def test_the_numbers_of_reasons_are_without_gaps() -> None:
    assert sorted(value.number for value in VALUES) == list(range(1, len(VALUES) + 1))


@pytest.mark.parametrize("value", VALUES, ids=reason_of)
def test_every_reason_declares_exactly_one_grpc_code(value: Any) -> None:
    options = value.GetOptions()
    assert options.HasExtension(errors_pb2.grpc_code)
    code = options.Extensions[errors_pb2.grpc_code]
    assert grpc.StatusCode[CODES[reason_of(value)]].value[0] == code
    assert HoplineError(reason_of(value), "text").code is grpc.StatusCode[CODES[reason_of(value)]]


@pytest.mark.parametrize("value", VALUES, ids=reason_of)
def test_every_reason_says_whether_a_retry_may_help(value: Any) -> None:
    assert value.GetOptions().Extensions[errors_pb2.retryable] == (reason_of(value) in RETRYABLE)
    assert HoplineError(reason_of(value), "text").retryable == (reason_of(value) in RETRYABLE)


def full(reason: str) -> HoplineError:
    return HoplineError(
        reason,
        f"{reason}: what happened and what to do: déjà vu 🦊",
        details={"limit": 10, "used": 11, "agent": "planner", "ids": ["agt_1", "agt_2"]},
        violations=[("items[0].text", "must be at most 65536 bytes"), ("subject", "must not be empty")],
        quota=("ws_1/agt_1", "200 messages a day"),
        retry_after=12.5,
    )


def same(one: HoplineError, other: HoplineError) -> None:
    for name in ("reason", "message", "code", "retryable", "details", "violations", "quota", "retry_after"):
        assert getattr(one, name) == getattr(other, name), name


@pytest.mark.parametrize("reason", CODES)
def test_a_reason_written_as_a_status_is_read_as_the_same_error(reason: str) -> None:
    for error in (full(reason), HoplineError(reason, "no more than this")):
        wire = to_status(error)
        assert wire.code is grpc.StatusCode[CODES[reason]]
        metadata = grpc.aio.Metadata(*wire.trailing_metadata)
        read = from_rpc_error(grpc.aio.AioRpcError(wire.code, grpc.aio.Metadata(), metadata, wire.message))
        same(read, error)


class Refusing:
    """Refuses everything for the reason that comes in the place of a token."""

    async def Authenticate(self, request: identity_pb2.AuthenticateRequest, context: Any) -> Any:
        raise full(request.token)

    def __getattr__(self, name: str) -> Any:
        return self.Authenticate


@pytest.fixture(params=["socket", "in-process"])
async def channel(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    clock = ManualClock()
    server = Server("refusing", authenticator=None, clock=clock, ids=seeded_ids(clock, 1))
    servicer: Any = Refusing()
    server.add(add_IdentityServiceServicer_to_server, servicer)
    if request.param == "socket":
        async with dial(await server.start("127.0.0.1:0")) as found:
            yield found
    else:
        yield ClientChannel(server.channel())
    await server.stop()


async def test_every_reason_reaches_the_client_of_a_call_unchanged(channel: Any) -> None:
    for reason in CODES:
        with pytest.raises(HoplineError) as caught:
            await IdentityServiceStub(channel).Authenticate(identity_pb2.AuthenticateRequest(token=reason))
        same(caught.value, full(reason))
