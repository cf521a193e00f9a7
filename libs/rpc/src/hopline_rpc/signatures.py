"""The signature of a webhook, the mesh's own or one that comes in.

`t=UNIX,v1=HEX`: who holds the secret sees that a body comes from another who does, and when it was sent.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final, NamedTuple

HEADER: Final = "Hopline-Signature"
_SIGNATURE: Final = re.compile(r"t=([1-9][0-9]{0,11}),v1=([0-9a-fA-F]{64})\Z", re.ASCII)


class Signature(NamedTuple):
    """A header as it was read; `digest` is lower-case hex."""

    at: int
    digest: str


# What a body is held against where nothing that could be right was sent.
NONE: Final = Signature(0, "")


def read(header: str) -> Signature:
    """Read the header's value; `NONE` for what is no signature."""
    found = _SIGNATURE.match(header)
    return NONE if found is None else Signature(int(found[1]), found[2].lower())


def matches(signature: Signature, secret: str, body: bytes) -> bool:
    """Tell, in a time that says nothing, whether a body was signed so with this secret."""
    return hmac.compare_digest(_digest(secret, body, signature.at), signature.digest)


def sign(secret: str, body: bytes, at: int) -> str:
    """Return the header's value for a body that is sent at this unix second."""
    return f"t={at},v1={_digest(secret, body, at)}"


def _digest(secret: str, body: bytes, at: int) -> str:
    return hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
