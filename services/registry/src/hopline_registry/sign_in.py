"""Signing people in by the word of an identity provider."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from hopline.registry.v1.identity_pb2 import SetUserLoginRequest, SignInRequest
from hopline_directory import ADMIN, UserRecord
from hopline_directory.convert import user_message
from hopline_rpc.errors import HoplineError, invalid, unauthenticated
from hopline_rpc.principals import Principal
from sqlalchemy import Connection

from hopline_registry.access import user_for
from hopline_registry.core import Core, Tx
from hopline_registry.domain.logins import Claim, Expected, claims_problem, login_of, login_problem, plain
from hopline_registry.domain.tokens import TokenRecord
from hopline_registry.provider import BadIdTokenError, Provider
from hopline_registry.settings import RegistrySettings
from hopline_registry.store import people as rows
from hopline_registry.store import tokens as token_rows
from hopline_registry.store import workspaces
from hopline_registry.tokens import mint, revoke
from hopline_registry.workspaces import DEFAULT_NAME

log = logging.getLogger("hopline.registry")

SIGN_IN: Final = "console sign-in"


class SignedIn(NamedTuple):
    """A person, and the token that their sign-in made."""

    user: UserRecord
    token: TokenRecord
    secret: str


class SignIn:
    """One method an RPC."""

    def __init__(self, core: Core, settings: RegistrySettings) -> None:
        self._core = core
        self._client_id = settings.oidc_client_id
        self._claim: Claim = settings.oidc_claim
        self._seconds = settings.oidc_session_seconds
        self._provider = Provider(settings.oidc_issuer, core.clock) if settings.oidc_issuer else None

    async def sign_in(self, request: SignInRequest) -> SignedIn:
        """Make a token for the person whom an ID token names."""
        login = await self._login(request)
        found = await self._core.read(lambda conn: _linked(conn, request.workspace, login))
        if found is None:
            raise _nobody()
        actor = Principal("user", found.id, found.workspace_id, found.name)

        def op(tx: Tx) -> SignedIn:
            user = rows.user_by_login(tx.conn, found.workspace_id, login)
            if user is None or user.id != found.id:  # an admin was faster
                raise _nobody()
            ends = tx.now + self._seconds
            token, secret = mint(tx, user.workspace_id, "user", user.id, name=SIGN_IN, expires_at=ends)
            return SignedIn(user, token, secret)

        return await self._core.write(actor, op)

    async def _login(self, request: SignInRequest) -> str:
        """Return whom the ID token names; whatever is wrong with it is told alike, and in the log."""
        if self._provider is None:
            raise HoplineError(
                "failed_precondition",
                "this mesh has no identity provider (HOPLINE_OIDC_ISSUER, HOPLINE_OIDC_CLIENT_ID)",
            )
        try:
            claims = await self._provider.claims(request.id_token)
        except BadIdTokenError as error:
            log.info("an ID token was refused: %s", error)
            raise unauthenticated() from None
        expected = Expected(self._provider.issuer, self._client_id, request.nonce)
        if problem := claims_problem(claims, expected, self._core.clock.now()):
            log.info("an ID token was refused: %s", problem)
            raise unauthenticated()
        login = login_of(claims, self._claim)
        if login is None:
            log.info("an ID token was refused: no verified %s", self._claim)
            raise _nobody()
        return login

    async def set_login(self, caller: Principal, request: SetUserLoginRequest) -> tuple[UserRecord, str]:
        """Link a person with whom the provider knows them as, or with nobody."""

        def op(tx: Tx) -> tuple[UserRecord, str]:
            tx.require(ADMIN)
            user = user_for(tx, request.user)
            return user, self.link(tx, user, request.login)

        return await self._core.write(caller, op)

    def link(self, tx: Tx, user: UserRecord, login: str) -> str:
        """Link a person, and end the sign-ins of whoever it was before."""
        if login and (problem := login_problem(login, self._claim)):
            raise invalid("login", problem)
        login = plain(login, self._claim)
        holder = rows.user_by_login(tx.conn, user.workspace_id, login) if login else None
        if holder is not None and holder.id != user.id:
            raise HoplineError(
                "failed_precondition",
                f"the user {holder.name!r} has this login; take it from them first",
                violations=(("login", "is taken"),),
            )
        before = rows.logins_of(tx.conn, user.workspace_id, [user.id]).get(user.id, "")
        if login == before:
            return login
        rows.set_login(tx.conn, user, login)
        for token in token_rows.live_tokens(tx.conn, user.workspace_id, "user", user.id, tx.now):
            if token.name == SIGN_IN:
                revoke(tx, token)
        action = "user.login_set" if login else "user.login_removed"
        tx.changed(user.workspace_id, action, {"name": user.name}, user=user_message(user))
        return login


def _linked(conn: Connection, workspace: str, login: str) -> UserRecord | None:
    """Return who of a workspace is linked with a login; a workspace that is not there has nobody."""
    ref = workspace or DEFAULT_NAME
    found = workspaces.workspace_by_name(conn, ref) or workspaces.workspace_by_id(conn, ref)
    return None if found is None else rows.user_by_login(conn, found.id, login)


def _nobody() -> HoplineError:
    return HoplineError(
        "permission_denied",
        "nobody of this workspace is linked with that account; ask an admin of it"
        " (hopline user set NAME --login WHO)",
    )
