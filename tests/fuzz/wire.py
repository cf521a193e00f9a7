"""HTTP with nothing in between: requests that no library would send, and all that comes back."""

from __future__ import annotations

import http.client
import io
import socket
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import verdicts
from tests.fuzz.ground import PATIENCE

Address = tuple[str, int] | Path


@dataclass(frozen=True)
class Answer:
    """What came back for one request."""

    status: int
    kind: str
    body: bytes
    headers: tuple[tuple[str, str], ...]


def connected(address: Address) -> socket.socket:
    """Return a connection on which nothing stays silent for long."""
    family = socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.settimeout(PATIENCE)
    found.connect(str(address) if isinstance(address, Path) else address)
    return found


def said(address: Address, raw: bytes) -> bytes:
    """Send bytes and hang up one's own side; returns all that comes until the other side hangs up too."""
    chunks = []
    with connected(address) as connection:
        try:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65536):
                chunks.append(chunk)
        except (ConnectionResetError, BrokenPipeError):
            pass  # refused before it was read to the end: an answer like any other
    return b"".join(chunks)


def answers(address: Address, raw: bytes, count: int) -> list[Answer]:
    """Send bytes that are so many whole requests; returns their answers, fewer if the other side hangs up."""
    found: list[Answer] = []
    with connected(address) as connection:
        try:
            connection.sendall(raw)
            reader = connection.makefile("rb")
            while len(found) < count:
                found.append(_answer(reader))
        except (ConnectionResetError, BrokenPipeError, http.client.BadStatusLine):
            pass
    return found


class _Kept:
    """Stands for a connection whose reader goes on with the next answer."""

    def __init__(self, reader: io.BufferedReader) -> None:
        self._reader = reader

    def makefile(self, _mode: str) -> io.BufferedReader:
        reader = self._reader

        class Unclosed:
            def __getattr__(self, name: str) -> object:
                return (lambda: None) if name == "close" else getattr(reader, name)

        return Unclosed()  # type: ignore[return-value]


def _answer(reader: io.BufferedReader) -> Answer:
    response = http.client.HTTPResponse(_Kept(reader))  # type: ignore[arg-type]
    response.begin()
    body = response.read()
    kind = response.getheader("Content-Type") or ""
    return Answer(response.status, kind, body, tuple(response.getheaders()))


class Door:
    """A kept connection to the gateway."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=PATIENCE)

    def post(self, body: bytes, headers: dict[str, str], path: str = "/mcp") -> Answer:
        """Post once, on a new connection where the last answer closed it."""
        return self._asked("POST", path, body, headers)

    def get(self, path: str, headers: dict[str, str]) -> Answer:
        """Get once, likewise."""
        return self._asked("GET", path, None, headers)

    def _asked(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        try:
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError):
            self._connection.close()
            raise
        kind = response.getheader("Content-Type") or ""
        return Answer(response.status, kind, response.read(), tuple(response.getheaders()))

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


def judged(found: Answer, asked: str) -> None:
    """Check one answer."""
    verdicts.http(found.status, found.kind, found.body, asked)
