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
from collections.abc import Sequence
from typing import Any, Final

from hopline_rpc.errors import HoplineError, invalid

DEFAULT_SIZE: Final = 50
MAX_SIZE: Final = 200
_TAG: Final = 12
_MAX_TOKEN: Final = 2048

Position = list[str | int | float | None]


def page_size(requested: int, *, default: int = DEFAULT_SIZE, most: int = MAX_SIZE) -> int:
    """Return how many items a page has: 0 means the default, too many the most, less than 0 is refused."""
    if requested < 0:
        raise invalid("page_size", "must not be negative")
    return min(requested or default, most)


class Pager:
    """Makes and reads page tokens. Replicas that share tokens share the secret."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(32)

    def token(self, query: Sequence[Any], position: Sequence[Any]) -> str:
        """Write where the next page of `query` starts; `position` is the last item's sort key."""
        body = json.dumps(list(position), separators=(",", ":")).encode()
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
