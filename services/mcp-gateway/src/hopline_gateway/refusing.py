"""What a refusal is over plain HTTP: a status, the headers that go with it, and the error as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import grpc
from hopline_rpc.errors import REASONS, HoplineError
from starlette.responses import JSONResponse, Response

from hopline_gateway.limits import headers

_HEADERS: Final[Mapping[int, dict[str, str]]] = {
    401: {"WWW-Authenticate": "Bearer"},
    503: {"Retry-After": "1"},
}
# By the code that the contract gives a reason; what a caller may mend only by another call is 409.
_OF_CODE: Final[Mapping[grpc.StatusCode, int]] = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.INTERNAL: 500,
}
# Limits that waiting does not lift, and what the caller has to pay for.
_OF_REASON: Final[Mapping[str, int]] = {
    "credits_exhausted": 402,
    "limit_reached": 409,
    "root_exhausted": 409,
    "thread_full": 409,
}


def status_of(reason: str) -> int:
    """Return the HTTP status that goes with a reason of the contract."""
    return _OF_REASON.get(reason) or _OF_CODE[REASONS[reason].code]


def refuse(error: HoplineError, status: int = 0) -> Response:
    """Return an error outside MCP as JSON; its status is that of its reason, or the one given."""
    status = status or status_of(error.reason)
    return JSONResponse({"error": error.to_dict()}, status, {**_HEADERS.get(status, {}), **headers(error)})
