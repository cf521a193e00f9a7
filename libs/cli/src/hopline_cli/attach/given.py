"""A credential that comes by descriptor: read once, closed, and so in nobody else's hands.

Under a supervisor a second descriptor stays open. On it come fresh tokens before the last one expires, and
its end tells that the supervisor is gone.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable
from typing import Final

from hopline_rpc.errors import HoplineError

_MOST: Final = 4096
_SECONDS: Final = 10.0
# Standard input, output and error.
_FIRST: Final = 3


def read_once(descriptor: int) -> str:
    """Return the token that an inherited descriptor holds, up to its end or the line's, and close it."""
    if descriptor < _FIRST:
        raise _wrong(descriptor, "is standard input, output or error; hand the token over on another one")
    text = b""
    try:
        os.set_inheritable(descriptor, False)
        while b"\n" not in text and len(text) <= _MOST:
            if not select.select([descriptor], [], [], _SECONDS)[0]:
                raise _wrong(descriptor, f"gave no token within {_SECONDS:.0f} s")
            piece = os.read(descriptor, _MOST)
            if not piece:
                break
            text += piece
    except (OSError, ValueError) as error:
        raise _wrong(descriptor, f"cannot be read: {error}") from None
    finally:
        _close(descriptor)
    token = text.partition(b"\n")[0].strip().decode("ascii", "replace")
    if not token or len(token.split()) > 1 or not token.isascii():
        raise HoplineError("unauthenticated", f"--token-fd: descriptor {descriptor} does not hold a token")
    return token


class GivenToken:
    """The token to use now; a supervisor may give another one."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._rest = b""

    async def current(self) -> str:
        """Return the token to connect with."""
        return self._token

    def follow(self, descriptor: int, gone: Callable[[], None]) -> Callable[[], None]:
        """Take fresh tokens from a descriptor; at its end `gone` is called. Returns what stops it."""
        loop = asyncio.get_running_loop()
        try:
            os.set_inheritable(descriptor, False)
            os.set_blocking(descriptor, False)
        except OSError as error:
            raise _wrong(descriptor, f"cannot be read: {error}") from None

        def stop() -> None:
            loop.remove_reader(descriptor)
            _close(descriptor)

        def readable() -> None:
            try:
                piece = os.read(descriptor, _MOST)
            except BlockingIOError:
                return
            except OSError:
                piece = b""
            if piece:
                self._take(piece)
            else:
                loop.remove_reader(descriptor)
                gone()

        loop.add_reader(descriptor, readable)
        return stop

    def _take(self, piece: bytes) -> None:
        *lines, rest = (self._rest + piece).split(b"\n")
        self._rest = rest[-_MOST:]
        for line in lines:
            if token := line.strip().decode("ascii", "replace"):
                self._token = token


def _wrong(descriptor: int, what: str) -> HoplineError:
    return HoplineError("invalid_argument", f"descriptor {descriptor} {what}")


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        return
