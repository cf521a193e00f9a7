"""The exchange of a credential for an assertion, and the registry's own authentication by it."""

from __future__ import annotations

import logging
from typing import Final

from hopline_directory import Directory
from hopline_rpc.auth import Authenticator, Exchange
from hopline_rpc.errors import HoplineError, unauthenticated
from hopline_rpc.principals import AssertionVerifier, Principal
from sqlalchemy import Connection

from hopline_registry.core import Core
from hopline_registry.domain.tokens import TokenRecord
from hopline_registry.keys import Keys
from hopline_registry.store import agents, people, plugins, tokens, workspaces
from hopline_registry.workspaces import ADMIN_NAME, DEFAULT_NAME

log = logging.getLogger("hopline.registry")

_MAX_SECRET: Final = 512


class Identity:
    """Knows who holds which credential."""

    def __init__(self, core: Core, keys: Keys, mesh_id: str) -> None:
        self._core = core
        self._keys = keys
        self.mesh_id = mesh_id
        directory: Directory = core.directory
        self._verifier = AssertionVerifier(directory.public_key, mesh_id, core.clock, directory.is_revoked)
        self.authenticator = _Authenticator(self._verifier, self._exchange, core)

    async def authenticate(self, secret: str, workspace: str) -> Principal:
        """Exchange a token for a principal with its assertion.

        Every bad token is `unauthenticated`, in the same words. Only the installation's token may name
        another workspace than its own; to it alone, one that does not exist is `not_found`.
        """
        now = self._core.clock.now()
        found = await self._core.read(lambda conn: _holder(conn, secret[:_MAX_SECRET], workspace, now))
        if found is None:
            raise unauthenticated()
        # Verified once more, by the view: a token revoked since it was read is refused here.
        return self._verifier.verify(self._keys.sign(found))

    async def _exchange(self, secret: str, workspace: str) -> str:
        return (await self.authenticate(secret, workspace)).assertion


class _Authenticator(Authenticator):
    """Verifies by a view that holds what other registries have written, too."""

    def __init__(self, verifier: AssertionVerifier, exchange: Exchange, core: Core) -> None:
        super().__init__(verifier, exchange, core.clock)
        self._feed = core.feed

    async def principal(self, credential: str, workspace: str = "") -> Principal:
        """Return who a token or an assertion stands for; `unavailable` while the store cannot be read."""
        if not self._feed.current:
            await self._feed.look()
        return await super().principal(credential, workspace)

    def at_hand(self, credential: str, workspace: str = "") -> Principal | None:
        """Return who a token stands for where that is known and the view is current; else None."""
        return super().at_hand(credential, workspace) if self._feed.current else None


def _holder(conn: Connection, secret: str, workspace: str, now: float) -> Principal | None:
    """Return whose token it is; None when it cannot be used."""
    token = tokens.token_by_secret(conn, secret)
    if token is None or not token.live(now):
        return None
    if token.installation:
        return _installation(conn, token, workspace or DEFAULT_NAME)
    if workspace and not _is_own(conn, token, workspace):
        return None
    name = _name(conn, token)
    if name is None:
        return None
    return Principal(
        token.kind, token.subject_id, token.workspace_id, name, token.id, expires_at=token.expires_at or 0.0
    )


def _installation(conn: Connection, token: TokenRecord, ref: str) -> Principal:
    """Return the user `admin` of the workspace that the holder of the installation's token names."""
    workspace = workspaces.workspace_by_name(conn, ref) or workspaces.workspace_by_id(conn, ref)
    if workspace is None:
        raise HoplineError("not_found", f"there is no workspace {ref!r}", details={"workspace": ref})
    admin = people.find_user(conn, workspace.id, ADMIN_NAME)
    if admin is None:
        raise HoplineError("internal", "the workspace has no user 'admin'")
    return Principal("user", admin.id, workspace.id, ADMIN_NAME, token.id, installation=True)


def _is_own(conn: Connection, token: TokenRecord, ref: str) -> bool:
    """Tell whether a token names its own workspace; services belong to none."""
    if ref == token.workspace_id:
        return True
    own = workspaces.workspace_by_id(conn, token.workspace_id)
    return own is not None and own.name == ref


def _name(conn: Connection, token: TokenRecord) -> str | None:
    """Return the holder's name; None when there is no such holder any more."""
    if token.kind == "agent":
        agent = agents.agent_by_id(conn, token.workspace_id, token.subject_id)
        return None if agent is None or agent.deleted else agent.name
    if token.kind == "user":
        user = people.user_by_id(conn, token.workspace_id, token.subject_id)
        return None if user is None else user.name
    if token.kind == "plugin":
        plugin = plugins.plugin_by_id(conn, token.workspace_id, token.subject_id)
        return None if plugin is None or plugin.uninstalled_at is not None else plugin.manifest["name"]
    return token.subject_id
