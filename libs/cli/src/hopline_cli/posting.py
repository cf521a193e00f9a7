"""One JSON-RPC message posted to the mesh's `/mcp`, and the answers that come back.

Standard library only, with a thread for each message: `hopline mcp` has to be up before a client
gets impatient, and every import counts.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

_CONNECT_SECONDS: Final = 5.0
# Longer than any wait in the mesh (50 s) and than the pause between two signs of life in a stream (15 s).
_ANSWER_SECONDS: Final = 120.0
_MAX_ANSWER: Final = 64 * 1024 * 1024
# How often a mesh that is being started again is tried.
_PAUSE_SECONDS: Final = 0.2


class UnreachableError(Exception):
    """The mesh gave no answer; the text says why and what to do."""


class RefusedError(Exception):
    """The mesh answered with something other than a JSON-RPC message; the text says what."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Route:
    """How to get to `/mcp`, looked up afresh for every message: a mesh may have moved meanwhile.

    Either a session's `socket`, or a base URL (`url`, or the one in `data`/endpoints.json) with the
    file that holds the agent's token.
    """

    socket: str = ""
    url: str = ""
    data: Path = Path()
    token_file: str = ""
    session: str = ""
    traceparent: str = ""

    def connect(self) -> tuple[http.client.HTTPConnection, str]:
        """Return an open connection and the path to post to."""
        if self.socket:
            return _opened(_UnixConnection(self.socket), "the session's socket"), "/mcp"
        base = urlsplit(self.url or self._local_url())
        if base.scheme not in {"http", "https"} or not base.hostname:
            raise UnreachableError(f"HOPLINE_URL: {self.url!r} is not an http:// or https:// address")
        connection: http.client.HTTPConnection
        if base.scheme == "https":
            connection = _secure(base.hostname, base.port)
        else:
            connection = http.client.HTTPConnection(base.hostname, base.port, timeout=_CONNECT_SECONDS)
        return _opened(connection, f"{base.scheme}://{base.netloc}"), base.path.rstrip("/") + "/mcp"

    def _local_url(self) -> str:
        file = self.data / "endpoints.json"
        try:
            return str(json.loads(file.read_text())["gateway"])
        except (OSError, ValueError, KeyError):
            raise UnreachableError(f"no mesh is running on {self.data} (start it: hopline up)") from None

    def headers(self) -> dict[str, str]:
        """Return who calls, from which session, in which trace."""
        found = {"traceparent": self.traceparent} if self.traceparent else {}
        if self.socket:
            return found  # whoever serves the socket knows whose it is
        try:
            token = Path(self.token_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UnreachableError(f"the token file {self.token_file} cannot be read: {error}") from None
        if not token.isascii() or not token.isprintable():
            raise UnreachableError(f"the token file {self.token_file} does not hold a token")
        found["Authorization"] = f"Bearer {token}"
        if self.session:
            found["Hopline-Session"] = self.session
        return found


def _secure(host: str, port: int | None) -> http.client.HTTPSConnection:
    from hopline_cli.tls import client_context  # plain connections start without it

    try:
        context = client_context()
    except OSError as error:
        raise UnreachableError(f"HOPLINE_TLS_*: the certificates cannot be read: {error}") from None
    return http.client.HTTPSConnection(host, port, timeout=_CONNECT_SECONDS, context=context)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_CONNECT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_CONNECT_SECONDS)
        self.sock.connect(self._path)


def _opened(connection: http.client.HTTPConnection, where: str) -> http.client.HTTPConnection:
    try:
        connection.connect()
    except OSError as error:
        connection.close()
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise UnreachableError(f"the mesh cannot be reached at {where}: {reason}; is it running?") from None
    return connection


class Post:
    """One message on its way. `answers` runs in a thread of its own; `cancel` may come from another.

    A mesh that takes no connection is tried again for `patience_seconds`: nothing was sent to it yet.
    """

    def __init__(
        self, route: Route, body: bytes, headers: Mapping[str, str], patience_seconds: float = 0.0
    ) -> None:
        self._route = route
        self._body = body
        self._headers = headers
        self._tries = 1 + int(patience_seconds / _PAUSE_SECONDS)
        self._socket: socket.socket | None = None
        self._given_up = threading.Event()

    @property
    def canceled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._given_up.is_set()

    def cancel(self) -> None:
        """Hang up: the mesh stops waiting, the work goes on."""
        self._given_up.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it had ended by itself
                self._socket.shutdown(socket.SHUT_RDWR)

    def answers(self) -> Iterator[bytes]:
        """Post, and yield each JSON-RPC message of the answer as one line without its end."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **self._route.headers(),
            **self._headers,
        }
        connection, path = self._connect()
        self._socket = connection.sock
        try:
            if self.canceled:
                return
            self._socket.settimeout(_ANSWER_SECONDS)
            connection.request("POST", path, self._body, headers)
            yield from _messages(connection.getresponse())
        except TimeoutError:
            raise UnreachableError("the mesh did not answer in time; what was started goes on") from None
        except (OSError, http.client.HTTPException):
            raise UnreachableError(
                "the connection to the mesh broke before the answer came; what was started goes on"
            ) from None
        finally:
            connection.close()

    def _connect(self) -> tuple[http.client.HTTPConnection, str]:
        for _ in range(self._tries - 1):
            try:
                return self._route.connect()
            except UnreachableError:
                if self._given_up.wait(_PAUSE_SECONDS):
                    break
        return self._route.connect()


def _messages(response: http.client.HTTPResponse) -> Iterator[bytes]:
    kind = (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        yield from _events(response)
        return
    body = response.read(_MAX_ANSWER + 1)
    if len(body) > _MAX_ANSWER:
        raise RefusedError("the mesh's answer is larger than 64 MiB", "invalid_argument")
    if response.status == 202 or not body.strip():
        if response.status >= 300:
            raise _refusal(response.status, None)
        return
    message = _parsed(body)
    if not isinstance(message, list) and not (isinstance(message, dict) and "jsonrpc" in message):
        raise _refusal(response.status, message)
    yield _one_line(body)


def _events(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Read server-sent events; only `data` matters, the rest is signs of life."""
    data: list[bytes] = []
    size = 0
    while line := response.readline(_MAX_ANSWER):
        text = line.rstrip(b"\r\n")
        size += len(line)
        if size > _MAX_ANSWER:
            raise RefusedError("an event of the mesh is larger than 64 MiB", "invalid_argument")
        if text.startswith(b"data:"):
            data.append(text[5:].removeprefix(b" "))
        elif not text:
            joined = b"\n".join(data)
            data, size = [], 0
            if joined and _parsed(joined) is not None:
                yield _one_line(joined)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _one_line(body: bytes) -> bytes:
    """Take out line ends; in JSON they can only stand between tokens."""
    return body.strip().replace(b"\r", b" ").replace(b"\n", b" ")


def _refusal(status: int, body: Any) -> RefusedError:
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return RefusedError(error["message"], str(error.get("code", "failed_precondition")))
    if status == 401:
        return RefusedError(
            "the mesh refused the credential: it is unknown, expired or revoked; make another with"
            " `hopline token create --agent NAME`",
            "unauthenticated",
        )
    codes = {403: "permission_denied", 404: "not_found", 413: "invalid_argument", 429: "overloaded"}
    code = codes.get(status, "unavailable" if status >= 500 else "failed_precondition")
    return RefusedError(f"the mesh answered with HTTP status {status}", code)
