"""IdentityService."""

# ruff: noqa: D102 - what each method does stands in the contract

from __future__ import annotations

from typing import Any

from hopline.common.v1.options_pb2 import PrincipalKind
from hopline.registry.v1 import identity_pb2 as pb
from hopline.registry.v1.identity_pb2_grpc import IdentityServiceServicer
from hopline_directory.convert import user_message
from hopline_rpc.auth import current_principal
from hopline_rpc.clock import to_timestamp
from hopline_rpc.paging import Pager, page_size

from hopline_registry import people, tokens
from hopline_registry.identity import Identity
from hopline_registry.keys import Keys
from hopline_registry.webhooks import Webhooks


class IdentityServicer(IdentityServiceServicer):
    """Serves users, roles, credentials and keys."""

    def __init__(
        self,
        identity: Identity,
        keys: Keys,
        folk: people.People,
        credentials: tokens.Tokens,
        hooks: Webhooks,
        pager: Pager,
    ) -> None:
        self._identity = identity
        self._keys = keys
        self._people = folk
        self._tokens = credentials
        self._webhooks = hooks
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
        user, token = await self._people.create(current_principal(), request)
        return pb.CreateUserResponse(user=user_message(user), token=token)

    async def ListUsers(self, request: pb.ListUsersRequest, context: Any) -> pb.ListUsersResponse:
        caller = current_principal()
        size = page_size(request.page_size)
        query = ["users", caller.workspace_id]
        (after,) = self._pager.position(query, request.page_token) or [""]
        found = await self._people.users(caller, str(after), size + 1)
        return pb.ListUsersResponse(
            users=[user_message(user) for user in found[:size]],
            next_page_token=self._pager.token(query, [found[size - 1].name]) if len(found) > size else "",
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
        return pb.GrantRoleResponse(grant=people.message(grant))

    async def RevokeRole(self, request: pb.RevokeRoleRequest, context: Any) -> pb.RevokeRoleResponse:
        await self._people.revoke(current_principal(), request.user, request.agent, int(request.role))
        return pb.RevokeRoleResponse()

    async def ListRoles(self, request: pb.ListRolesRequest, context: Any) -> pb.ListRolesResponse:
        caller = current_principal()
        query = ["roles", caller.workspace_id, caller.id]
        user_id, agent_id = self._pager.position(query, request.page_token) or ["", ""]
        after = (str(user_id), str(agent_id))
        page, more = await self._people.roles(caller, after, page_size(request.page_size))
        return pb.ListRolesResponse(
            grants=[people.message(grant) for grant in page],
            next_page_token=self._pager.token(query, page[-1][:2]) if more else "",
        )

    async def CreateToken(self, request: pb.CreateTokenRequest, context: Any) -> pb.CreateTokenResponse:
        token, secret = await self._tokens.create(current_principal(), request)
        return pb.CreateTokenResponse(info=tokens.message(token), token=secret)

    async def ListTokens(self, request: pb.ListTokensRequest, context: Any) -> pb.ListTokensResponse:
        caller = current_principal()
        query = ["tokens", caller.workspace_id, caller.id, request.agent]
        workspace_id, token_id = self._pager.position(query, request.page_token) or ["", ""]
        after = (str(workspace_id), str(token_id))
        page, more = await self._tokens.list(caller, request.agent, after, page_size(request.page_size))
        last = [page[-1].workspace_id, page[-1].id] if page else []
        return pb.ListTokensResponse(
            tokens=[tokens.message(token) for token in page],
            next_page_token=self._pager.token(query, last) if more else "",
        )

    async def RevokeToken(self, request: pb.RevokeTokenRequest, context: Any) -> pb.RevokeTokenResponse:
        await self._tokens.revoke(current_principal(), request.token_id)
        return pb.RevokeTokenResponse()
