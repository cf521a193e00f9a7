"""The relay's settings, from `HOPLINE_*`. The limits themselves are the workspaces' policies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hopline_rpc.settings import ServiceSettings

DATABASE_FILE: Final = "relay.db"


class RelaySettings(ServiceSettings):
    """What can be set."""

    # Where the database is kept; whoever runs all services says where.
    data: Path = Path("~/.hopline")
