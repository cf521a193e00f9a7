"""The relay's settings, from `HOPLINE_*`. The limits themselves are the workspaces' policies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hopline_rpc.errors import HoplineError
from hopline_rpc.settings import ServiceSettings

DATABASE_FILE: Final = "relay.db"


class RelaySettings(ServiceSettings):
    """What can be set."""

    # Where the database is kept; whoever runs all services says where.
    data: Path = Path("~/.hopline")
    # Where the other services listen; not read where one process runs them all.
    registry: str = "127.0.0.1:7401"
    quota: str = "127.0.0.1:7403"
    # A file with this service's token, from `hopline token create --service relay`; read at every connect.
    service_token_file: Path | None = None

    def service_token(self) -> str:
        """Read the service token; `failed_precondition` says what is missing."""
        file = self.service_token_file
        if file is None:
            raise HoplineError(
                "failed_precondition", "HOPLINE_SERVICE_TOKEN_FILE: must name the token's file"
            )
        try:
            return file.read_text().strip()
        except OSError as error:
            text = f"HOPLINE_SERVICE_TOKEN_FILE: {file}: {error.strerror}"
            raise HoplineError("failed_precondition", text) from None
