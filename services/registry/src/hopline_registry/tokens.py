"""Credentials: made, listed, revoked."""

from __future__ import annotations

from typing import Final

from hopline.common.v1.options_pb2 import PrincipalKind
from hopline.registry.v1.identity_pb2 import CreateTokenRequest, Token
from hopline_directory import ADMIN
from hopline_rpc.clock import to_timestamp
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.principals import Principal, new_token

from hopline_registry.access import AgentAccess, require_installation, user_for
from hopline_registry.core import ITSELF, Core, Tx, filtered
from hopline_registry.domain.names import name_problem, slugify
from hopline_registry.domain.tokens import Kind, TokenRecord
from hopline_registry.plugin_rows import managed, manages
from hopline_registry.store import plugins as plugin_rows
from hopline_registry.store import tokens as rows

FIRST: Final = "first"
# Live ones of one subject; a supervisor that mints one a start and forgets to revoke must notice.
MAX_LIVE: Final = 1000
_EMBEDDED: Final = "embedded"


def mint(
    tx: Tx,
    workspace_id: str,
    kind: Kind,
    subject_id: str,
    *,
    name: str,
    expires_at: float | None = None,
    installation: bool = False,
    secret: str = "",
) -> tuple[TokenRecord, str]:
    """Make a token, of a secret that is given or of a new one; the secret is returned and nowhere kept."""
    if len(rows.live_tokens(tx.conn, workspace_id, kind, subject_id, tx.now)) >= MAX_LIVE:
        raise HoplineError("limit_reached", f"{MAX_LIVE} tokens of this holder are in use; revoke some")
    secret = secret or new_token(kind)
    token = TokenRecord(
        tx.ids.new_id("tok"), workspace_id, kind, subject_id, name, tx.now, expires_at, None, installation
    )
    rows.add_token(tx.conn, token, secret)
    tx.changed(workspace_id, "token.created", _details(token), token_created=message(token))
    return token, secret


def revoke(tx: Tx, token: TokenRecord) -> None:
    """End a token; one that is revoked already stays as it is."""
    if token.revoked_at is not None:
        return
    rows.mark_revoked(tx.conn, token, tx.now)
    ended = message(token)
    ended.revoked_at.CopyFrom(to_timestamp(tx.now))
    tx.changed(token.workspace_id, "token.revoked", _details(token), token_revoked=ended)


def _details(token: TokenRecord) -> dict[str, str]:
    return {"token": token.id, "kind": token.kind, "subject": token.subject_id, "name": token.name}


def message(token: TokenRecord) -> Token:
    """Write a token's description."""
    return Token(
        id=token.id,
        kind=PrincipalKind.Value(f"PRINCIPAL_KIND_{token.kind.upper()}"),
        subject_id=token.subject_id,
        name=token.name,
        created_at=to_timestamp(token.created_at),
        expires_at=None if token.expires_at is None else to_timestamp(token.expires_at),
        revoked_at=None if token.revoked_at is None else to_timestamp(token.revoked_at),
    )


class Tokens:
    """One method an RPC."""

    def __init__(self, core: Core) -> None:
        self._core = core
        # What this process runs with: without them the mesh stands still.
        self._embedded: set[str] = set()

    async def create(self, caller: Principal, request: CreateTokenRequest) -> tuple[TokenRecord, str]:
        """Make a further token for an agent, a user, a plugin or a service."""
        if request.name and (problem := name_problem(request.name)):
            raise invalid("name", problem)

        def op(tx: Tx) -> tuple[TokenRecord, str]:
            workspace_id, kind, subject_id = _subject(tx, request)
            seconds = request.expires_in_seconds
            expires_at = tx.now + seconds if seconds else None
            return mint(tx, workspace_id, kind, subject_id, name=request.name, expires_at=expires_at)

        return await self._core.write(caller, op)

    async def revoke(self, caller: Principal, token_id: str) -> None:
        """End a token. One that the caller may not manage is `not_found`, as one that never existed."""
        # Looked for among these alone: a look at another's token first would show in the time.
        own = [caller.id, *self._core.directory.for_person(caller, ADMIN).ids]

        def op(tx: Tx) -> None:
            installed = plugin_rows.ids_installed_by(tx.conn, caller.workspace_id, caller.id)
            subjects = None if tx.workspace_role() >= ADMIN else [*own, *installed]
            token = rows.token_by_id(tx.conn, caller.workspace_id, token_id, subjects)
            if token is None and caller.installation:
                token = rows.token_by_id(tx.conn, "", token_id)
            if token is None or not _Manager(tx).manages(token):
                raise HoplineError(
                    "not_found", f"there is no token {token_id!r}", details={"token": token_id}
                )
            if token.installation:
                raise HoplineError(
                    "failed_precondition",
                    "the installation's token is replaced by removing admin.token and starting again",
                )
            if token.id in self._embedded:
                raise HoplineError(
                    "failed_precondition",
                    "the services of this mesh work with this token: start the mesh again,"
                    " which makes a new one in place of it",
                )
            revoke(tx, token)

        await self._core.write(caller, op)

    async def list(
        self, caller: Principal, agent_ref: str, after: tuple[str, str], limit: int
    ) -> tuple[list[TokenRecord], bool]:
        """Return the tokens that the caller may manage, and whether more follow."""

        def look(tx: Tx) -> tuple[list[TokenRecord], bool]:
            manager = _Manager(tx)
            only = AgentAccess(tx).agent(agent_ref, ADMIN).id if agent_ref else ""
            workspaces = [caller.workspace_id, *([""] if caller.installation else [])]
            return filtered(
                lambda position, count: rows.tokens_after(tx.conn, workspaces, position, count),
                lambda token: only in ("", token.subject_id) and manager.manages(token),
                lambda token: (token.workspace_id, token.id),
                after,
                limit,
            )

        return await self._core.look(caller, look)

    async def renew_service(self, name: str) -> str:
        """Make the token of the processes of an embedded mesh, in place of the one of the last start."""

        def op(tx: Tx) -> str:
            for token in rows.live_tokens(tx.conn, "", "service", name, tx.now):
                if token.name == _EMBEDDED:
                    revoke(tx, token)
            token, secret = mint(tx, "", "service", name, name=_EMBEDDED)
            # Before it is told of: nobody can have revoked what nobody knows.
            self._embedded.add(token.id)
            return secret

        return await self._core.write(ITSELF, op)


class _Manager:
    """Tells which tokens the actor may manage."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._access = AgentAccess(tx)
        self._is_admin = tx.workspace_role() >= ADMIN

    def manages(self, token: TokenRecord) -> bool:
        actor = self._tx.actor
        if token.kind == "service" or token.installation:
            return actor.installation
        if self._is_admin or (token.kind == "user" and token.subject_id == actor.id):
            return True
        if token.kind == "plugin":
            plugin = plugin_rows.plugin_by_id(self._tx.conn, token.workspace_id, token.subject_id)
            return plugin is not None and manages(self._tx, plugin)
        return token.kind == "agent" and self._access.role_on_id(token.subject_id) >= ADMIN


def _subject(tx: Tx, request: CreateTokenRequest) -> tuple[str, Kind, str]:
    """Return workspace, kind and id of whom a token is for, if the actor may make one."""
    workspace_id = tx.actor.workspace_id
    which = request.WhichOneof("subject")
    if which == "service":
        require_installation(tx)
        if slugify(request.service) != request.service:
            raise invalid("service", "must be lower-case letters, digits and hyphens, such as relay")
        return "", "service", request.service
    if which == "agent":
        return workspace_id, "agent", AgentAccess(tx).agent(request.agent, ADMIN).id
    if which == "plugin":
        return workspace_id, "plugin", managed(tx, request.plugin).id
    user = user_for(tx, request.user)
    if user.id != tx.actor.id:
        tx.require(ADMIN)
    return workspace_id, "user", user.id
