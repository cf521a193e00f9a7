"""The one way the mesh says no, and its two-way mapping to gRPC.

`HoplineError` carries a reason from the closed list in `hopline/common/v1/errors.proto`; the gRPC
code and whether a retry may help come from that list's options, so that the contract is the table.
On the wire it is a `google.rpc.Status` with `ErrorInfo` and, where they apply, `BadRequest`,
`QuotaFailure` and `RetryInfo`.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
from google.protobuf import duration_pb2, json_format, struct_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from hopline.common.v1 import errors_pb2

log = logging.getLogger("hopline.errors")

DOMAIN: Final = "hopline"
STATUS_KEY: Final = "grpc-status-details-bin"
_PREFIX: Final = "ERROR_REASON_"
# gRPC refuses trailing metadata of more than 8 KiB: the status counts there as base64, the message once
# more with three bytes for each that is not plain ASCII.
_MESSAGE_BYTES: Final = 800
_STATUS_BYTES: Final = 4000
_PART_BYTES: Final = 1500
_UNAUTHENTICATED: Final = "a valid credential is needed"


class _Reason(NamedTuple):
    code: grpc.StatusCode
    retryable: bool


def _reasons() -> dict[str, _Reason]:
    """Read the closed list of reasons out of the contract."""
    by_number: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
    table = {}
    for value in errors_pb2.ErrorReason.DESCRIPTOR.values:
        options = value.GetOptions()
        code = by_number[options.Extensions[errors_pb2.grpc_code]]
        retryable = options.Extensions[errors_pb2.retryable]
        table[value.name.removeprefix(_PREFIX).lower()] = _Reason(code, retryable)
    del table["unspecified"]
    return table


REASONS: Final = _reasons()

# What a status without our ErrorInfo means: from a proxy, from gRPC itself, or from a foreign server.
_FOREIGN: Final[Mapping[grpc.StatusCode, str]] = {
    grpc.StatusCode.CANCELLED: "unavailable",
    grpc.StatusCode.INVALID_ARGUMENT: "invalid_argument",
    grpc.StatusCode.DEADLINE_EXCEEDED: "deadline_exceeded",
    grpc.StatusCode.NOT_FOUND: "not_found",
    grpc.StatusCode.ALREADY_EXISTS: "failed_precondition",
    grpc.StatusCode.PERMISSION_DENIED: "permission_denied",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "overloaded",
    grpc.StatusCode.FAILED_PRECONDITION: "failed_precondition",
    grpc.StatusCode.ABORTED: "unavailable",
    grpc.StatusCode.OUT_OF_RANGE: "invalid_argument",
    grpc.StatusCode.UNIMPLEMENTED: "failed_precondition",
    grpc.StatusCode.UNAVAILABLE: "unavailable",
    grpc.StatusCode.UNAUTHENTICATED: "unauthenticated",
}


class HoplineError(Exception):
    """A refusal or failure with a reason from the contract and a sentence for whoever called."""

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        violations: Sequence[tuple[str, str]] = (),
        quota: tuple[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        if reason not in REASONS:
            raise ValueError(f"{reason!r} is not a reason of the contract")
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self.violations = tuple(violations)
        self.quota = quota
        self.retry_after = retry_after
        # Whether the service that refused has put it into its audit log already.
        self.noted = False

    @property
    def code(self) -> grpc.StatusCode:
        """The gRPC code that the contract gives this reason."""
        return REASONS[self.reason].code

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later without a change."""
        return REASONS[self.reason].retryable

    def to_dict(self) -> dict[str, Any]:
        """Return the shape that the outer surfaces show."""
        details = dict(self.details)
        if self.retry_after is not None:
            details.setdefault("retry_after_seconds", self.retry_after)
        if self.violations:
            details.setdefault("fields", {field: text for field, text in self.violations if field})
        return {
            "code": self.reason,
            "message": self.message,
            "retryable": self.retryable,
            "details": details,
        }

    def __repr__(self) -> str:
        return f"HoplineError({self.reason!r}, {self.message!r})"


def unauthenticated() -> HoplineError:
    """Return the refusal of a missing, unknown, expired or revoked credential: one text for all."""
    return HoplineError("unauthenticated", _UNAUTHENTICATED)


def too_late() -> HoplineError:
    """Return the failure of a call whose time is over."""
    return HoplineError("deadline_exceeded", "the time allowed for the call is over")


def invalid(field: str, description: str) -> HoplineError:
    """Return the refusal of one field, which names the field and what is wrong with it."""
    return HoplineError("invalid_argument", f"{field}: {description}", violations=((field, description),))


def renamed(error: HoplineError, names: Mapping[str, str]) -> HoplineError:
    """Name the caller's own arguments where a service has named the fields of its request."""
    if not error.violations:
        return error
    message, violations = error.message, []
    for theirs, text in error.violations:
        name, bracket, index = theirs.partition("[")
        ours = f"{names.get(name, name)}{bracket}{index}"
        message = message.replace(f"{theirs}: {text}", f"{ours}: {text}")
        violations.append((ours, text))
    return HoplineError(
        error.reason,
        message,
        details=error.details,
        violations=violations,
        quota=error.quota,
        retry_after=error.retry_after,
    )


def request_conflict(request_id: str) -> HoplineError:
    """Return the refusal of a `request_id` that stood for other content before."""
    return HoplineError(
        "request_id_conflict",
        "this request_id was used before with other content; use a new one",
        details={"request_id": request_id},
    )


def internal(error: BaseException, logger: logging.Logger = log) -> HoplineError:
    """Log an unexpected exception under an id, and return what the caller gets to see of it: the id."""
    identifier = secrets.token_hex(4)
    logger.error("internal error (id %s)", identifier, exc_info=error)
    return HoplineError("internal", f"internal error (id {identifier})", details={"id": identifier})


class WireStatus(NamedTuple):
    """What `context.abort` needs."""

    code: grpc.StatusCode
    message: str
    trailing_metadata: tuple[tuple[str, bytes], ...]


def to_status(error: HoplineError) -> WireStatus:
    """Write an error as gRPC code, message and the trailing metadata with the full status."""
    message = _clipped(error.message)
    status = status_pb2.Status(code=error.code.value[0], message=message)
    status.details.add().Pack(_error_info(error))
    if error.retry_after is not None:
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=_duration(error.retry_after)))
    if error.quota is not None:
        failure = error_details_pb2.QuotaFailure()
        failure.violations.add(subject=error.quota[0], description=error.quota[1])
        _add_if_room(status, failure)
    if any(not isinstance(value, str) for value in error.details.values()):
        # ErrorInfo holds text only; the typed values travel beside it for clients that look for them.
        typed = struct_pb2.Struct()
        json_format.ParseDict(json.loads(json.dumps(error.details)), typed)
        _add_if_room(status, typed)
    if error.violations:
        request = error_details_pb2.BadRequest()
        for field, description in error.violations:
            if request.ByteSize() + _size(field) + _size(description) < _PART_BYTES:
                request.field_violations.add(field=field, description=description)
        _add_if_room(status, request)
    return WireStatus(error.code, message, ((STATUS_KEY, status.SerializeToString()),))


def _clipped(message: str) -> str:
    """Cut a message that quotes more of a request than a trailer holds."""
    raw = message.encode(errors="replace")
    if len(raw) <= _MESSAGE_BYTES:
        return message
    return raw[:_MESSAGE_BYTES].decode(errors="ignore") + "…"


def _error_info(error: HoplineError) -> Any:
    info = error_details_pb2.ErrorInfo(reason=error.reason.upper(), domain=DOMAIN)
    for key, value in error.details.items():
        text = value if isinstance(value, str) else json.dumps(value)
        if info.ByteSize() + _size(key) + _size(text) < _PART_BYTES:
            info.metadata[key] = text
    return info


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))


def _duration(seconds: float) -> duration_pb2.Duration:
    nanos = round(seconds * 1_000_000_000)
    return duration_pb2.Duration(seconds=nanos // 1_000_000_000, nanos=nanos % 1_000_000_000)


def _add_if_room(status: Any, detail: Any) -> None:
    """Attach a detail unless the trailer would grow past what clients accept."""
    if status.ByteSize() + detail.ByteSize() <= _STATUS_BYTES:
        status.details.add().Pack(detail)


def from_rpc_error(error: grpc.aio.AioRpcError) -> HoplineError:
    """Read the error behind a failed call, whoever answered it."""
    for key, value in error.trailing_metadata() or ():
        if key == STATUS_KEY and isinstance(value, bytes):
            found = _from_status(value)
            if found is not None:
                return found
    return _from_foreign(error.code(), error.details() or "")


def _from_status(data: bytes) -> HoplineError | None:
    """Read our own status; None when somebody else's ErrorInfo or nothing of ours is in it."""
    try:
        status = status_pb2.Status.FromString(data)
    except DecodeError:
        return None
    reason: str | None = None
    details: dict[str, Any] = {}
    violations: list[tuple[str, str]] = []
    quota: tuple[str, str] | None = None
    retry_after: float | None = None
    for packed in status.details:
        if (info := _unpack(packed, error_details_pb2.ErrorInfo)) is not None and info.domain == DOMAIN:
            reason = info.reason.lower()
            details = {**info.metadata, **details}
        elif (request := _unpack(packed, error_details_pb2.BadRequest)) is not None:
            violations = [(item.field, item.description) for item in request.field_violations]
        elif (failure := _unpack(packed, error_details_pb2.QuotaFailure)) is not None:
            quota = (failure.violations[0].subject, failure.violations[0].description)
        elif (retry := _unpack(packed, error_details_pb2.RetryInfo)) is not None:
            retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1_000_000_000
        elif (typed := _unpack(packed, struct_pb2.Struct)) is not None:
            details.update({key: _plain(value) for key, value in json_format.MessageToDict(typed).items()})
    if reason not in REASONS:
        return None
    return HoplineError(
        reason,
        status.message,
        details=details,
        violations=violations,
        quota=quota,
        retry_after=retry_after,
    )


def _unpack(packed: Any, kind: Any) -> Any:
    if not packed.Is(kind.DESCRIPTOR):
        return None
    message = kind()
    packed.Unpack(message)
    return message


def _plain(value: Any) -> Any:
    """Turn a Struct's floats back into the whole numbers they were."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _from_foreign(code: grpc.StatusCode, text: str) -> HoplineError:
    """Give a status without our details the nearest reason, without repeating a foreign server's text."""
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text:
        return HoplineError("invalid_argument", "the message is larger than the other side accepts")
    reason = _FOREIGN.get(code, "internal")
    if reason == "unauthenticated":
        return unauthenticated()
    if reason == "deadline_exceeded":
        return too_late()
    sentences = {
        "unavailable": "the service cannot be reached just now",
        "overloaded": "the service is overloaded; try again later",
    }
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return HoplineError(reason, "the service does not know this method; its version may be older")
    return HoplineError(reason, sentences.get(reason, f"the call failed with {code.name}"))
