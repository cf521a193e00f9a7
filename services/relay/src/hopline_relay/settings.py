"""The relay's settings, from `HOPLINE_*`. The limits themselves are the workspaces' policies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hopline_rpc.settings import StoreSettings
from pydantic import Field

DATABASE_FILE: Final = "relay.db"


class RelaySettings(StoreSettings):
    """What can be set."""

    # Where the database is kept; whoever runs all services says where.
    data: Path = Path("~/.hopline")
    # How long a question to an owner may stay unanswered, and how many may be pending at once.
    escalation_seconds: float = Field(default=86_400, ge=1, le=31_536_000)
    escalations_per_agent: int = Field(default=20, ge=1, le=10_000)
    escalations_per_session: int = Field(default=5, ge=1, le=10_000)
    # Where other relays on the same record reach this one; needed where it listens on all addresses.
    relay_address: str = Field(default="", max_length=300)
    # Whether webhooks may call private networks; without it the mesh calls its own machine only where one
    # process is the whole of it.
    webhook_private: bool = False
