"""Reads a request's body within its limits, and looks at it once before the SDK does.

The SDK's two paths parse with two parsers and report what they do not like in the parsers' words; what
is wrong with a body is said here, in ours, alike for every protocol revision.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import mcp.types as t
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

MAX_BODY: Final = 4 * 1024 * 1024
# The parsers of the SDK give up somewhere beyond; a body this deep is no request of anybody's.
MAX_NESTING: Final = 150
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class BadBody(Exception):  # noqa: N818 - what it is
    """A body that is answered without being served."""

    def __init__(self, status: int, message: str, code: int = t.INVALID_REQUEST) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


@dataclass(frozen=True, slots=True)
class Body:
    """A body that holds one JSON-RPC message."""

    raw: bytes
    message: dict[str, Any]
    # The tool that is called; empty for any other method.
    tool: str
    wants_progress: bool
    # True where halves of surrogate pairs were replaced by U+0000, which no argument may hold either.
    had_surrogates: bool


def check_is_json(headers: Headers) -> None:
    """Refuse a body that is said to be no JSON."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise BadBody(415, "Content-Type must be application/json")


async def read_body(scope: Scope, receive: Receive, seconds: float) -> Body:
    """Read and parse a body; raises BadBody, or ClientDisconnect when the client is gone."""
    return _parse(await read_raw(scope, receive, seconds))


async def read_json(scope: Scope, receive: Receive, seconds: float) -> tuple[Any, bool]:
    """Read a body that is plain JSON; and tell whether halves of surrogate pairs were replaced in it."""
    raw = await read_raw(scope, receive, seconds)
    value = _decode(raw)
    whole = _without_halves(raw, value)
    return (value, False) if whole is None else (json.loads(whole), True)


async def read_raw(scope: Scope, receive: Receive, seconds: float, most: int = MAX_BODY) -> bytes:
    """Read a body of at most so many bytes; raises BadBody, or ClientDisconnect when the client is gone."""
    try:
        async with asyncio.timeout(seconds):
            return await _read(scope, receive, most)
    except TimeoutError:
        raise BadBody(408, f"the body did not arrive within {seconds:g} s") from None


async def _read(scope: Scope, receive: Receive, most: int) -> bytes:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > most:
            _too_large(most)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > most:
            _too_large(most)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def _too_large(most: int) -> NoReturn:
    unit = f"{most >> 20} MiB" if most >= 1 << 20 else f"{most >> 10} KiB"
    raise BadBody(413, f"the body is larger than {most} bytes ({unit})")


def _parse(raw: bytes) -> Body:
    message = _decode(raw)
    if not isinstance(message, dict):
        raise BadBody(400, "the body must be one JSON-RPC object; batches are not served")
    params = message.get("params")
    _check_envelope(message, params)
    whole = _without_halves(raw, message)
    tool, wants_progress = "", False
    if message.get("method") == "tools/call" and isinstance(params, dict):
        name, meta = params.get("name"), params.get("_meta")
        tool = name if isinstance(name, str) else ""
        wants_progress = isinstance(meta, dict) and meta.get("progressToken") is not None
    return Body(raw if whole is None else whole, message, tool, wants_progress, whole is not None)


def _without_halves(raw: bytes, message: Any) -> bytes | None:
    """Return the body with U+0000 for each half of a surrogate pair; None where it holds none."""
    # Parsed text can hold one only where the body spells it: a cheap look spares the search.
    if b"\\u" in raw and _SURROGATE.search(text := json.dumps(message, ensure_ascii=False)):
        return _SURROGATE.sub("\\\\u0000", text).encode()
    return None


def _decode(raw: bytes) -> Any:
    try:
        message = json.loads(raw.decode(), parse_constant=_no_constant)
    except RecursionError:
        raise BadBody(400, _TOO_DEEP, t.PARSE_ERROR) from None
    except UnicodeDecodeError as error:
        text = f"the body is not UTF-8 (byte {error.start})"
        raise BadBody(400, text, t.PARSE_ERROR) from None
    except json.JSONDecodeError as error:
        text = f"the body is not JSON: {error.msg} at character {error.pos}"
        raise BadBody(400, text, t.PARSE_ERROR) from None
    except ValueError as error:
        text = (
            str(error) if isinstance(error, _NotJsonError) else "the body holds a number with too many digits"
        )
        raise BadBody(400, text, t.PARSE_ERROR) from None
    if raw.count(b"[") + raw.count(b"{") > MAX_NESTING and _is_deeper(message, MAX_NESTING):
        raise BadBody(400, _TOO_DEEP, t.PARSE_ERROR)
    return message


_TOO_DEEP: Final = f"the body is nested deeper than {MAX_NESTING} levels"


class _NotJsonError(ValueError):
    """A word that Python takes for a number and JSON does not."""


def _no_constant(name: str) -> NoReturn:
    raise _NotJsonError(f"the body is not JSON: {name} is no JSON value")


def _is_deeper(value: Any, levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        layer = [
            child
            for each in layer
            if isinstance(each, (dict, list))
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, (dict, list))
        ]
        if not layer:
            return False
    return True


def _check_envelope(message: dict[str, Any], params: Any) -> None:
    if message.get("jsonrpc") != "2.0":
        raise BadBody(400, 'jsonrpc must be "2.0"')
    if "method" not in message and ("result" in message or "error" in message):
        raise BadBody(400, "this server asks nothing, so it takes no responses")
    if not isinstance(message.get("method"), str):
        raise BadBody(400, "method must be a string")
    if "id" in message and (not isinstance(message["id"], (str, int)) or isinstance(message["id"], bool)):
        raise BadBody(400, "id must be a string or a whole number")
    if params is not None and not isinstance(params, dict):
        raise BadBody(400, "params must be an object")


def replay(raw: bytes, receive: Receive) -> Callable[[], Awaitable[Any]]:
    """Return a `receive` that gives a body that was read before, then whatever really comes."""
    pending = True

    async def again() -> Any:
        nonlocal pending
        if pending:
            pending = False
            return {"type": "http.request", "body": raw, "more_body": False}
        return await receive()

    return again
