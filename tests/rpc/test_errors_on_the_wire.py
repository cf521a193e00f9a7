"""Errors and what they look like to callers of every kind."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2
from hopline.common.v1 import errors_pb2
from hopline_rpc.errors import (
    REASONS,
    STATUS_KEY,
    HoplineError,
    from_rpc_error,
    internal,
    invalid,
    to_status,
)


def received(error: HoplineError) -> HoplineError:
    wire = to_status(error)
    trailing = grpc.aio.Metadata(*wire.trailing_metadata)
    return from_rpc_error(grpc.aio.AioRpcError(wire.code, None, trailing, wire.message))


def foreign(code: grpc.StatusCode, text: str = "", status: bytes | None = None) -> HoplineError:
    trailing = grpc.aio.Metadata(*(((STATUS_KEY, status),) if status is not None else ()))
    return from_rpc_error(grpc.aio.AioRpcError(code, None, trailing, text))


def test_every_reason_of_the_contract_has_a_code() -> None:
    named = {value.name for value in errors_pb2.ErrorReason.DESCRIPTOR.values if value.number}
    assert {f"ERROR_REASON_{reason.upper()}" for reason in REASONS} == named
    assert all(reason.code is not grpc.StatusCode.OK for reason in REASONS.values())


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_reason_survives_the_way_there_and_back(reason: str) -> None:
    sent = HoplineError(reason, f"what {reason} says", details={"agent": "planner"})
    back = received(sent)
    assert back.to_dict() == sent.to_dict()
    assert back.code is REASONS[reason].code


def test_a_reason_outside_the_contract_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="not a reason"):
        HoplineError("no_such_reason", "x")


def test_the_wire_form_is_the_standard_one() -> None:
    error = HoplineError(
        "pair_budget_exceeded",
        "enough",
        details={"frees_in": "30"},
        violations=[("agent", "spoke too often")],
        quota=("pair", "30/300s"),
        retry_after=1.5,
    )
    status = status_pb2.Status.FromString(to_status(error).trailing_metadata[0][1])
    assert (status.code, status.message) == (8, "enough")
    found: dict[str, Any] = {}
    for kind in ("ErrorInfo", "BadRequest", "QuotaFailure", "RetryInfo"):
        message = getattr(error_details_pb2, kind)()
        assert any(detail.Unpack(message) for detail in status.details), kind
        found[kind] = message
    assert found["ErrorInfo"].reason == "PAIR_BUDGET_EXCEEDED"
    assert found["ErrorInfo"].domain == "hopline"
    assert dict(found["ErrorInfo"].metadata) == {"frees_in": "30"}
    assert found["BadRequest"].field_violations[0].field == "agent"
    assert found["QuotaFailure"].violations[0].subject == "pair"
    assert (found["RetryInfo"].retry_delay.seconds, found["RetryInfo"].retry_delay.nanos) == (1, 500_000_000)


def test_details_keep_their_types() -> None:
    details = {"limit": 5, "share": 0.5, "on": True, "ids": ["a", "b"], "more": {"n": 1}, "none": None}
    assert received(HoplineError("limit_reached", "x", details=details)).details == details


def test_a_status_never_outgrows_what_clients_accept() -> None:
    error = HoplineError(
        "ambiguous",
        "x",
        details={"ids": ["ag_" + "x" * 26] * 500},
        violations=[(f"field{n}", "y" * 400) for n in range(50)],
    )
    huge = sum(len(value) for _, value in to_status(error).trailing_metadata)
    assert huge < 7000
    assert received(error).reason == "ambiguous"
    assert len(received(error).violations) > 0


def test_the_outer_shape_names_code_message_retryable_and_details() -> None:
    assert invalid("page_size", "must not be negative").to_dict() == {
        "code": "invalid_argument",
        "message": "page_size: must not be negative",
        "retryable": False,
        "details": {"fields": {"page_size": "must not be negative"}},
    }
    assert HoplineError("overloaded", "busy", retry_after=2.0).to_dict() == {
        "code": "overloaded",
        "message": "busy",
        "retryable": True,
        "details": {"retry_after_seconds": 2.0},
    }


@pytest.mark.parametrize(
    ("code", "text", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses", "unavailable"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", "deadline_exceeded"),
        (grpc.StatusCode.CANCELLED, "", "unavailable"),
        (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "Received message larger than max (9 vs. 8)",
            "invalid_argument",
        ),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!", "overloaded"),
        (grpc.StatusCode.UNAUTHENTICATED, "who?", "unauthenticated"),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", "failed_precondition"),
        (grpc.StatusCode.UNKNOWN, "Traceback ...", "internal"),
        (grpc.StatusCode.DATA_LOSS, "", "internal"),
    ],
)
def test_a_status_of_somebody_else_gets_the_nearest_reason(
    code: grpc.StatusCode, text: str, reason: str
) -> None:
    error = foreign(code, text)
    assert error.reason == reason
    assert "Traceback" not in error.message


def test_a_foreign_error_info_is_not_taken_for_ours() -> None:
    status = status_pb2.Status(code=5, message="theirs")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="QUOTA_EXCEEDED", domain="example.com"))
    assert foreign(grpc.StatusCode.NOT_FOUND, "x", status.SerializeToString()).reason == "not_found"


@pytest.mark.parametrize("garbage", [b"", b"\xff\xff\xff", b"\x08"])
def test_a_garbled_status_falls_back_to_the_code(garbage: bytes) -> None:
    assert foreign(grpc.StatusCode.NOT_FOUND, "x", garbage).reason == "not_found"


def test_a_reason_that_this_version_does_not_know_falls_back_to_the_code() -> None:
    status = status_pb2.Status(code=9, message="newer")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="FROM_THE_FUTURE", domain="hopline"))
    error = foreign(grpc.StatusCode.FAILED_PRECONDITION, "x", status.SerializeToString())
    assert error.reason == "failed_precondition"


def test_an_internal_error_is_in_the_log_under_the_id_that_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    error = internal(RuntimeError("secret text"))
    assert "secret text" not in error.message
    assert error.details["id"] in error.message
    record = caplog.records[-1]
    assert error.details["id"] in record.getMessage()
    assert record.exc_info is not None
