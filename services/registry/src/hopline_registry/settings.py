"""The registry's settings, from `HOPLINE_*`."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, Self

from hopline_rpc.settings import Issuer, PublicUrl, StoreSettings
from pydantic import Field, model_validator

DATABASE_FILE: Final = "registry.db"
LOCK_FILE: Final = "registry.lock"


class RegistrySettings(StoreSettings):
    """What can be set."""

    # Where the database and the installation's token are kept; whoever runs all services says where.
    data: Path = Path("~/.hopline")
    # Where people and agents reach the gateway; without it, agents in the cloud have no connections.
    public_url: PublicUrl = ""
    # How many changes the feed keeps for readers that come back; a reader further behind gets a snapshot.
    registry_changes_kept: int = Field(default=100_000, ge=100, le=100_000_000)
    # Whether a start on a shared database makes a new admin.token where its folder has none, in place of the
    # one in force. Where a registry has its database alone, removing the file is enough.
    renew_admin_token: bool = False
    # A folder with tokens that were made elsewhere, honoured from the start on: `given.py`.
    tokens_dir: Path | None = None
    # The identity provider that people sign in with at the console, and whom it knows this mesh as.
    oidc_issuer: Issuer = ""
    oidc_client_id: str = Field(default="", max_length=500)
    # What of its word says who somebody is: an address it has verified, or its own name for them.
    oidc_claim: Literal["email", "sub"] = "email"
    # How long such a sign-in holds.
    oidc_session_seconds: int = Field(default=43_200, ge=60, le=2_592_000)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.oidc_issuer) != bool(self.oidc_client_id):
            raise ValueError("OIDC_ISSUER and OIDC_CLIENT_ID are given together, or neither")
        return self
