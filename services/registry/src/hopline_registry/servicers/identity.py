"""IdentityService."""

# ruff: noqa: D102 - what each method does stands in the contract

from __future__ import annotations

from typing import Any

from hopline.common.v1.options_pb2 import PrincipalKind
from hopline.registry.v1 import identity_pb2 as pb
from hopline.registry.v1.identity_pb2_grpc import IdentityServiceServicer
from hopline_directory import Directory
from hopline_directory.convert import user_message
from hopline_rpc.auth import current_principal
from hopline_rpc.clock import to_timestamp
from hopline_rpc.paging import Pager, page_size
from hopline_rpc.principals import Principal

from hopline_registry import people, tokens
from hopline_registry.domain.tokens import TokenRecord
from hopline_registry.identity import Identity
from hopline_registry.keys import Keys
from hopline_registry.sign_in import SignIn
from hopline_registry.store.people import Grant
from hopline_registry.webhooks import Webhooks


class IdentityServicer(IdentityServiceServicer):
    """Serves users, roles, credentials and keys."""

    def __init__(
        self,
        identity: Identity,
        keys: Keys,
        sign_in: SignIn,
        folk: people.People,
        credentials: tokens.Tokens,
        hooks: Webhooks,
        directory: Directory,
        pager: Pager,
    ) -> None:
        self._identity = identity
        self._keys = keys
        self._sign_in = sign_in
        self._people = folk
        self._tokens = credentials
        self._webhooks = hooks
        self._directory = directory
        self._pager = pager

    async def Authenticate(self, request: pb.AuthenticateRequest, context: Any) -> pb.AuthenticateResponse:
        principal = await self._identity.authenticate(request.token, request.workspace)
        return pb.AuthenticateResponse(
            assertion=principal.assertion,
            expires_at=to_timestamp(principal.expires_at),
            kind=PrincipalKind.Value(f"PRINCIPAL_KIND_{principal.kind.upper()}"),
            principal_id=principal.id,
            workspace_id=principal.workspace_id,
            name=principal.name,
            token_id=principal.token_id,
        )

    async def GetKeys(self, request: pb.GetKeysRequest, context: Any) -> pb.GetKeysResponse:
        return pb.GetKeysResponse(keys=self._keys.published(), mesh_id=self._identity.mesh_id)

    async def RotateKeys(self, request: pb.RotateKeysRequest, context: Any) -> pb.RotateKeysResponse:
        key = await self._keys.rotate(current_principal())
        return pb.RotateKeysResponse(kid=key.kid, signs_from=to_timestamp(key.signs_from))

    async def CreateUser(self, request: pb.CreateUserRequest, context: Any) -> pb.CreateUserResponse:
        person, token = await self._people.create(current_principal(), request)
        return pb.CreateUserResponse(user=people.person_message(person), token=token)

    async def SetUserLogin(self, request: pb.SetUserLoginRequest, context: Any) -> pb.SetUserLoginResponse:
        person = people.Person(*await self._sign_in.set_login(current_principal(), request))
        return pb.SetUserLoginResponse(user=people.person_message(person))

    async def SignIn(self, request: pb.SignInRequest, context: Any) -> pb.SignInResponse:
        made = await self._sign_in.sign_in(request)
        return pb.SignInResponse(
            token=made.secret, info=tokens.message(made.token), user=user_message(made.user)
        )

    async def ListUsers(self, request: pb.ListUsersRequest, context: Any) -> pb.ListUsersResponse:
        caller = current_principal()
        size = page_size(request.page_size)
        query = ["users", caller.workspace_id, *([request.name_part] if request.name_part else [])]
        (after,) = self._pager.position(query, request.page_token) or [""]
        found, more = await self._people.users(caller, request.name_part, str(after), size)
        return pb.ListUsersResponse(
            users=[people.person_message(person) for person in found],
            next_page_token=self._pager.token(query, [found[-1].user.name]) if more else "",
        )

    async def SetUserWebhook(
        self, request: pb.SetUserWebhookRequest, context: Any
    ) -> pb.SetUserWebhookResponse:
        user = await self._webhooks.set(current_principal(), request)
        return pb.SetUserWebhookResponse(user=user_message(user))

    async def GetUserWebhook(
        self, request: pb.GetUserWebhookRequest, context: Any
    ) -> pb.GetUserWebhookResponse:
        found = await self._webhooks.get(request)
        return pb.GetUserWebhookResponse(url=found.url, secret=found.secret)

    async def GrantRole(self, request: pb.GrantRoleRequest, context: Any) -> pb.GrantRoleResponse:
        grant = await self._people.grant(current_principal(), request.user, request.agent, int(request.role))
        return pb.GrantRoleResponse(grant=self._named(current_principal(), grant))

    async def RevokeRole(self, request: pb.RevokeRoleRequest, context: Any) -> pb.RevokeRoleResponse:
        await self._people.revoke(current_principal(), request.user, request.agent, int(request.role))
        return pb.RevokeRoleResponse()

    async def ListRoles(self, request: pb.ListRolesRequest, context: Any) -> pb.ListRolesResponse:
        caller = current_principal()
        query = ["roles", caller.workspace_id, caller.id, request.agent, request.user]
        user_id, agent_id = self._pager.position(query, request.page_token) or ["", ""]
        after = (str(user_id), str(agent_id))
        size = page_size(request.page_size)
        page, more = await self._people.roles(caller, after, size, request.agent, request.user)
        return pb.ListRolesResponse(
            grants=[self._named(caller, grant) for grant in page],
            next_page_token=self._pager.token(query, page[-1][:2]) if more else "",
        )

    async def CreateToken(self, request: pb.CreateTokenRequest, context: Any) -> pb.CreateTokenResponse:
        token, secret = await self._tokens.create(current_principal(), request)
        return pb.CreateTokenResponse(info=self._of_whom(token), token=secret)

    async def ListTokens(self, request: pb.ListTokensRequest, context: Any) -> pb.ListTokensResponse:
        caller = current_principal()
        query = ["tokens", caller.workspace_id, caller.id, request.agent]
        workspace_id, token_id = self._pager.position(query, request.page_token) or ["", ""]
        after = (str(workspace_id), str(token_id))
        page, more = await self._tokens.list(caller, request.agent, after, page_size(request.page_size))
        last = [page[-1].workspace_id, page[-1].id] if page else []
        return pb.ListTokensResponse(
            tokens=[self._of_whom(token) for token in page],
            next_page_token=self._pager.token(query, last) if more else "",
        )

    async def RevokeToken(self, request: pb.RevokeTokenRequest, context: Any) -> pb.RevokeTokenResponse:
        await self._tokens.revoke(current_principal(), request.token_id)
        return pb.RevokeTokenResponse()

    def _named(self, caller: Principal, grant: Grant) -> pb.RoleGrant:
        """Write a role with the names of whose and on what it is."""
        message = people.message(grant)
        user = self._directory.user(caller.workspace_id, grant.user_id)
        agent = self._directory.agent(caller.workspace_id, grant.agent_id) if grant.agent_id else None
        message.user_name = "" if user is None else user.name
        message.agent_slug = "" if agent is None else agent.slug
        return message

    def _of_whom(self, token: TokenRecord) -> pb.Token:
        """Write a token with the name of whom it is for."""
        message = tokens.message(token)
        message.subject_name = self._holder(token)
        return message

    def _holder(self, token: TokenRecord) -> str:
        """Return the name of whom a token is for; of an agent its slug. Empty for one that is gone."""
        home, subject = token.workspace_id, token.subject_id
        if token.kind == "service":
            return subject
        if token.kind == "agent":
            agent = self._directory.agent(home, subject)
            return "" if agent is None or agent.deleted else agent.slug
        if token.kind == "plugin":
            plugin = self._directory.plugin(home, subject)
            return "" if plugin is None else plugin.key
        user = self._directory.user(home, subject)
        return "" if user is None else user.name
