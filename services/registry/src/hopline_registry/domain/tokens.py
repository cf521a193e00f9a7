"""Credentials as they are stored: everything but the secret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["agent", "user", "plugin", "service"]


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A credential. Times are unix seconds; `subject_id` is whose it is, of a service its name."""

    id: str
    workspace_id: str  # empty for a service of the mesh
    kind: Kind
    subject_id: str
    name: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    installation: bool = False

    def live(self, now: float) -> bool:
        """Tell whether it can be used."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
