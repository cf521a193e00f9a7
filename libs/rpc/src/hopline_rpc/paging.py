"""Pages: how many items, and where the next page starts.

A page token is an encoded key position, bound to the query it came from and authenticated, so that it
can neither be made up nor used on another list. It is no promise about time: rows may come and go.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from binascii import Error as DecodeError
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

from hopline_rpc.errors import HoplineError, invalid

DEFAULT_SIZE: Final = 50
MAX_SIZE: Final = 200
# Far below what gRPC takes, since other surfaces write the same items in more bytes.
PAGE_BYTES: Final = 2 * 1024 * 1024
_TAG: Final = 12
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
        self._secret = secret or secrets.token_bytes(32)

    def token(self, query: Sequence[Any], position: Sequence[Any]) -> str:
        """Write where the next page of `query` starts; `position` is the last item's sort key."""
        body = json.dumps(list(position), ensure_ascii=False, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._tag(query, body) + body).rstrip(b"=").decode()

    def position(self, query: Sequence[Any], token: str) -> Position | None:
        """Return where the page starts, None for the first; `invalid_argument` for a foreign token."""
        if not token:
            return None
        if len(token) > _MAX_TOKEN:
            raise _bad()
        try:
            raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (DecodeError, ValueError):
            raise _bad() from None
        tag, body = raw[:_TAG], raw[_TAG:]
        if not hmac.compare_digest(tag, self._tag(query, body)):
            raise _bad()
        position: Position = json.loads(body)
        return position

    def _tag(self, query: Sequence[Any], body: bytes) -> bytes:
        bound = json.dumps(list(query), separators=(",", ":"), default=str).encode()
        return hmac.digest(self._secret, hashlib.sha256(bound).digest() + body, "sha256")[:_TAG]


def _bad() -> HoplineError:
    return invalid("page_token", "is not a token of this list; start again without one")
