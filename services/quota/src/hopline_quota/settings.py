"""The quota service's settings, from `HOPLINE_*`. The limits themselves are the workspaces' policies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hopline_rpc.settings import StoreSettings

DATABASE_FILE: Final = "quota.db"


class QuotaSettings(StoreSettings):
    """What can be set."""

    # Where the ledger is kept; whoever runs all services says where.
    data: Path = Path("~/.hopline")
