"""The signature of a webhook: who holds the secret sees that a body is the mesh's, and when it was sent."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

HEADER: Final = "Hopline-Signature"


def sign(secret: str, body: bytes, at: int) -> str:
    """Return the header's value for a body that is sent at this unix second."""
    return f"t={at},v1={_digest(secret, body, at)}"


def _digest(secret: str, body: bytes, at: int) -> str:
    return hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
