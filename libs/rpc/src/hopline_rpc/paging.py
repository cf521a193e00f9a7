"""Pages: how many items, and where the next page starts.

A page token is a key position, encrypted and bound to the query it came from: it can neither be made up,
nor used on another list, nor read. Positions count what others do as well. It is no promise about time: rows
may come and go.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from binascii import Error as DecodeError
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from hopline_rpc.errors import HoplineError, invalid

DEFAULT_SIZE: Final = 50
MAX_SIZE: Final = 200
# Far below what gRPC takes, since other surfaces write the same items in more bytes.
PAGE_BYTES: Final = 2 * 1024 * 1024
# A position holds a name at most twice, of 200 characters.
_MAX_TOKEN: Final = 4096

Position = list[str | int | float | None]


class Sized(Protocol):
    """A message that knows its size on the wire."""

    def ByteSize(self) -> int:  # noqa: N802 - protobuf's own name
        """Return the bytes it takes."""
        ...


Item = TypeVar("Item", bound=Sized)


def page_size(requested: int, *, default: int = DEFAULT_SIZE, most: int = MAX_SIZE) -> int:
    """Return how many items a page has: 0 means the default, too many the most, less than 0 is refused."""
    if requested < 0:
        raise invalid("page_size", "must not be negative")
    return min(requested or default, most)


def fit(items: Iterable[Item], most: int = PAGE_BYTES) -> list[Item]:
    """Return the first of these items that fit into a page of `most` bytes, and one in any case.

    Takes no more from `items` than it needs to look at.
    """
    page: list[Item] = []
    size = 0
    for item in items:
        size += item.ByteSize()
        if page and size > most:
            break
        page.append(item)
    return page


class Pager:
    """Makes and reads page tokens. Replicas that share tokens share the secret."""

    def __init__(self, secret: bytes | None = None) -> None:
        # The same position of the same list is the same token: nothing is drawn, and nothing can repeat.
        self._cipher = AESSIV(hashlib.sha256(secret or secrets.token_bytes(32)).digest())

    def token(self, query: Sequence[Any], position: Sequence[Any]) -> str:
        """Write where the next page of `query` starts; `position` is the last item's sort key."""
        body = json.dumps(list(position), ensure_ascii=False, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._cipher.encrypt(body, _bound(query))).rstrip(b"=").decode()

    def position(self, query: Sequence[Any], token: str) -> Position | None:
        """Return where the page starts, None for the first; `invalid_argument` for a foreign token."""
        if not token:
            return None
        if len(token) > _MAX_TOKEN:
            raise _bad()
        try:
            raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
            position: Position = json.loads(self._cipher.decrypt(raw, _bound(query)))
        except (DecodeError, ValueError, InvalidTag):
            raise _bad() from None
        return position


def _bound(query: Sequence[Any]) -> list[bytes | bytearray | memoryview]:
    return [json.dumps(list(query), separators=(",", ":"), default=str).encode()]


def _bad() -> HoplineError:
    return invalid("page_token", "is not a token of this list; start again without one")
