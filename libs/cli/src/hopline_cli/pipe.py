"""`hopline mcp`: the platform MCP server on standard input and output, as a thin pipe.

Each line that comes in is posted to `/mcp`, each message of the answer goes out as a line; requests
run side by side. Nothing but protocol goes to standard output. While the mesh cannot be reached every
request is answered with an error that says so, after a moment where it was there before; the pipe lives on.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO, Final

from hopline_cli.posting import Post, RefusedError, Route, UnreachableError

_MAX_LINE: Final = 4 * 1024 * 1024
_MAX_IN_FLIGHT: Final = 256
# A mesh that has answered before is being started again when it takes no connection: it gets this long.
_PATIENCE_SECONDS: Final = 15.0
_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
# The parameter that the `Mcp-Name` header repeats, by method.
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_PARSE_ERROR, _INVALID_REQUEST, _SERVER_ERROR = -32700, -32600, -32000


class UsageError(Exception):
    """Nothing says where the mesh is; the text says what to set."""


def find_route(data: Path | None = None, token_file: Path | None = None) -> Route:
    """Say how the mesh is reached: the session's socket, else a URL with a token file."""
    traceparent = os.environ.get("TRACEPARENT", "")
    socket = os.environ.get("HOPLINE_SOCKET", "")
    if socket and data is None and token_file is None:
        return Route(socket=socket, traceparent=traceparent)
    url = "" if data else os.environ.get("HOPLINE_URL", "")
    folder = data or Path(os.environ.get("HOPLINE_DATA") or Path.home() / ".hopline")
    file = str(token_file or os.environ.get("HOPLINE_TOKEN_FILE", ""))
    if not file:
        raise UsageError(
            "no credential: set HOPLINE_TOKEN_FILE (or --token-file) to a file with the agent's token"
        )
    session = os.environ.get("HOPLINE_SESSION_ID", "")
    return Route(url=url, data=folder, token_file=file, session=session, traceparent=traceparent)


def run(data: Path | None = None, token_file: Path | None = None) -> int:
    """Serve standard input until it ends and everything asked is answered; returns the exit status."""
    try:
        route = find_route(data, token_file)
    except UsageError as error:
        print(f"hopline mcp: {error}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Pipe(route, sys.stdout.fileno()).serve(sys.stdin.buffer)
    return 0


class Pipe:
    """One client's connection."""

    def __init__(self, route: Route, out: int) -> None:
        self._route = route
        self._out = out
        self._writing = threading.Lock()
        self._version = ""
        self._has_connected = False
        self._posts: dict[str, Post] = {}
        self._answering: set[threading.Thread] = set()

    def serve(self, lines: BinaryIO) -> None:
        """Read lines to the end, then wait for the answers that are due."""
        while line := lines.readline(_MAX_LINE + 1):
            if len(line) > _MAX_LINE:
                self._skip_rest(line, lines)
                self._write_error(
                    None, _INVALID_REQUEST, "a message may be at most 4 MiB", "invalid_argument"
                )
            elif line.strip():
                self._take(line)
        for thread in self._answering.copy():
            thread.join()

    def _skip_rest(self, line: bytes, lines: BinaryIO) -> None:
        while line and not line.endswith(b"\n"):
            line = lines.readline(_MAX_LINE)

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._write_error(None, _PARSE_ERROR, "this line is not JSON", "invalid_argument")
            return
        if not isinstance(message, dict):
            self._write_error(None, _INVALID_REQUEST, "a line holds one JSON-RPC object", "invalid_argument")
            return
        method = message.get("method")
        if method == "notifications/cancelled":
            self._cancel(message)
        elif len(self._posts) >= _MAX_IN_FLIGHT:
            self._refuse(message, "too many requests at once; wait for answers", "overloaded")
        elif method == "initialize":
            self._version = ""
            self._exchange(message, self._post(message, line))  # what follows needs the version it settles
        else:
            self._start(message, self._post(message, line))

    def _post(self, message: dict[str, Any], line: bytes) -> Post:
        patience = _PATIENCE_SECONDS if self._has_connected else 0.0
        post = Post(self._route, line.strip(), self._headers(message), patience)
        self._posts[_key(message, post)] = post
        return post

    def _start(self, message: dict[str, Any], post: Post) -> None:
        thread = threading.Thread(target=self._exchange, args=(message, post), daemon=True)
        # A subscription ends when we do; everything else deserves its answer.
        if not str(message.get("method")).startswith("subscriptions/"):
            self._answering.add(thread)
        thread.start()

    def _cancel(self, message: dict[str, Any]) -> None:
        params = message.get("params")
        post = self._posts.get(json.dumps(params.get("requestId"))) if isinstance(params, dict) else None
        if post is not None:
            post.cancel()

    def _exchange(self, message: dict[str, Any], post: Post) -> None:
        try:
            self._relay(message, post)
        except UnreachableError as error:
            self._refuse(message, str(error), "unavailable", post)
        except RefusedError as error:
            self._refuse(message, str(error), error.code, post)
        finally:
            self._posts.pop(_key(message, post), None)
            self._answering.discard(threading.current_thread())

    def _relay(self, message: dict[str, Any], post: Post) -> None:
        answered = False
        for text in post.answers():
            self._has_connected = True
            answer = json.loads(text)
            if post.canceled:
                return
            if isinstance(answer, dict) and "method" not in answer:
                answered = True
                if not _is_request(message):
                    continue  # nobody waits for what a notification brings back
                text = self._settled(message, answer, text)
            self._write(text)
        if not answered:
            self._refuse(message, "the mesh gave no answer; what was started goes on", "unavailable", post)

    def _settled(self, message: dict[str, Any], answer: dict[str, Any], text: bytes) -> bytes:
        result = answer.get("result")
        if message.get("method") == "initialize" and isinstance(result, dict):
            self._version = str(result.get("protocolVersion", ""))
        if answer.get("id") == message["id"]:
            return text
        # A message refused before it was read comes back without its id; the client needs it.
        return json.dumps({**answer, "id": message["id"]}, separators=(",", ":")).encode()

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        """Return the headers that repeat what the body says, so that it can be routed unread."""
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        version = meta.get(_VERSION_KEY) if isinstance(meta, dict) else None
        if not isinstance(version, str):
            return {"MCP-Protocol-Version": self._version} if self._version else {}
        method = str(message.get("method", ""))
        headers = {"MCP-Protocol-Version": _header(version), "Mcp-Method": _header(method)}
        name = params.get(_NAMED[method]) if method in _NAMED and isinstance(params, dict) else None
        if isinstance(name, str):
            headers["Mcp-Name"] = _header(name)
        return headers

    def _refuse(self, message: dict[str, Any], text: str, code: str, post: Post | None = None) -> None:
        if _is_request(message) and not (post is not None and post.canceled):
            self._write_error(message["id"], _SERVER_ERROR, text, code)

    def _write_error(self, request_id: Any, number: int, text: str, code: str) -> None:
        data = {"code": code, "retryable": code in {"unavailable", "overloaded"}}
        error = {"code": number, "message": text, "data": data}
        self._write(json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode())

    def _write(self, text: bytes) -> None:
        line = memoryview(text + b"\n")
        with self._writing:
            try:
                while line:
                    line = line[os.write(self._out, line) :]
            except OSError:
                os._exit(0)  # the client has gone: nobody is left to answer


def _is_request(message: dict[str, Any]) -> bool:
    return "id" in message and "method" in message


def _key(message: dict[str, Any], post: Post) -> str:
    """Name what is in flight; ids differ as they do in JSON, where `1` is not `"1"`."""
    return json.dumps(message["id"]) if _is_request(message) else f"notification {id(post)}"


def _header(value: str) -> str:
    """Write a value so that a header can carry it; what is not plain ASCII goes as base64."""
    plain = value.isascii() and value.isprintable() and value == value.strip()
    if plain and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'surrogatepass')).decode()}?="
