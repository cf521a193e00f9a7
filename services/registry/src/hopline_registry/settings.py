"""The registry's settings, from `HOPLINE_*`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hopline_rpc.settings import PublicUrl, ServiceSettings
from pydantic import Field

DATABASE_FILE: Final = "registry.db"
LOCK_FILE: Final = "registry.lock"


class RegistrySettings(ServiceSettings):
    """What can be set."""

    # Where the database and the installation's token are kept; whoever runs all services says where.
    data: Path = Path("~/.hopline")
    # Where people and agents reach the gateway; without it, agents in the cloud have no connections.
    public_url: PublicUrl = ""
    # How many changes the feed keeps for readers that come back; a reader further behind gets a snapshot.
    registry_changes_kept: int = Field(default=100_000, ge=100, le=100_000_000)
