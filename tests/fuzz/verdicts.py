"""What holds for every answer, whatever was asked: a code of the closed list, and nothing of the inside."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import grpc
import grpc.aio
from hopline_rpc.errors import REASONS, from_rpc_error
from mcp import types as t

# Names of Python, of libraries, of files, of memory and of SQL: the words of a defect, never of a refusal.
_INSIDE: Final = re.compile(
    r"Traceback|site-packages|\bline \d+, in |\w\.py\b|/tmp/|0x[0-9a-f]{6,}|object at |<class |\bNoneType\b"
    r"|\b[A-Z][A-Za-z]+(?:Error|Exception|Warning)\b|\bhopline_[a-z]+\b|pydantic|validation error|protobuf"
    r"|google\.|grpc\.|asyncio|uvicorn|starlette|aiohttp|sqlite|\bSELECT\b|\bINSERT\b|UNIQUE constraint"
    r"|\bpb2?\b|_pb2|codec can't|Errno|\bself\b|Field required|Input should be|type=\w+_type"
)
_PROTOCOL_ERRORS: Final = {
    t.PARSE_ERROR,
    t.INVALID_REQUEST,
    t.METHOD_NOT_FOUND,
    t.INVALID_PARAMS,
    t.INTERNAL_ERROR,
    t.HEADER_MISMATCH,
    t.UNSUPPORTED_PROTOCOL_VERSION,
    t.MISSING_REQUIRED_CLIENT_CAPABILITY,
}


def no_inside(answer: str, asked: str = "") -> None:
    """Check that nothing of the inside is in an answer; what was asked may come back in it."""
    for found in _INSIDE.finditer(answer):
        assert found.group() in asked, f"{found.group()!r} is in the answer: {answer[:2000]}"


def refusal(error: Any) -> str:
    """Check the shape of a refusal, and return its code."""
    assert set(error) == {"code", "message", "retryable", "details"}, error
    assert error["code"] in REASONS, error
    assert error["code"] != "internal", error
    assert isinstance(error["message"], str)
    assert error["message"], error
    return str(error["code"])


def http(status: int, kind: str, body: bytes, asked: str = "") -> None:
    """Check an answer over HTTP: JSON-RPC, a refusal as JSON, or a plain word of the listener's."""
    text = body.decode()
    no_inside(text, asked)
    assert status < 500 or status == 503, f"{status} {text[:500]}"
    kind = kind.partition(";")[0]
    if kind == "text/event-stream":
        for event in _events(text):
            rpc(event)
    elif not body:
        # A notification has no answer, nor has HEAD; the SDK refuses a stream without a word.
        assert status in {200, 202, 405, 406}, status
    elif kind == "application/json":
        found = json.loads(text)
        if isinstance(found, dict) and found.get("jsonrpc") == "2.0":
            rpc(found)
        elif status >= 400:
            refusal(found["error"])
    else:
        assert kind == "text/plain"
        assert len(body) < 200, text


def _events(text: str) -> Iterator[Any]:
    # Only these end a line here; JSON may hold whatever else Unicode has.
    for line in re.split(r"\r\n|\n|\r", text):
        if line.startswith("data:") and line[5:].strip():
            yield json.loads(line[5:])


def rpc(message: Any) -> None:
    """Check a JSON-RPC message of the mesh."""
    assert message.get("jsonrpc") == "2.0", message
    if "method" in message:
        return
    if (error := message.get("error")) is not None:
        assert "result" not in message
        assert error["code"] in _PROTOCOL_ERRORS, error
        assert error["code"] != t.INTERNAL_ERROR, error
        return
    result = message["result"]
    if result.get("isError"):
        refusal(result["structuredContent"]["error"])


def grpc_error(error: Any, asked: str = "", *, bounded: bool = False) -> str:
    """Check a failed RPC: our own status, with a reason of the contract; returns the reason.

    `bounded`: the end of the caller's own time is no answer.
    """
    details = error.details() or ""
    no_inside(details, asked)
    assert not (bounded and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED), "no answer in time"
    keys = {key for key, _ in error.trailing_metadata() or ()}
    assert "grpc-status-details-bin" in keys, f"{error.code()} without a reason: {details}"
    found = from_rpc_error(error)
    assert found.code is error.code(), found
    assert found.reason != "internal", found
    no_inside(json.dumps(found.to_dict(), ensure_ascii=False), asked)
    return found.reason
