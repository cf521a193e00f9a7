"""The quota service's settings, from `HOPLINE_*`. The limits themselves come with each call."""

from __future__ import annotations

from pathlib import Path

from hopline_rpc.errors import HoplineError
from hopline_rpc.settings import ServiceSettings


class Settings(ServiceSettings):
    """What can be set."""

    # Where the registry listens; not read where one process runs them all.
    registry: str = "127.0.0.1:7401"
    # A file with this service's token, from `hopline token create --service quota`; read at every connect.
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
