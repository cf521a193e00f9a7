"""Where the mesh calls: people, of what their agents ask them, and what wakes agents.

An address, and the secret that signs what is sent there.

Secrets, and people's addresses, are in no list and not in the feed, which say only that there is one:
addresses carry secrets as well. Services ask for them when they have something to send.
"""

from __future__ import annotations

from typing import NamedTuple

from hopline.registry.v1.agent_pb2 import GetWakeWebhookRequest
from hopline.registry.v1.identity_pb2 import GetUserWebhookRequest, SetUserWebhookRequest
from hopline_directory import ADMIN, UserRecord
from hopline_directory.convert import user_message
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.principals import Principal

from hopline_registry.access import user_for
from hopline_registry.core import Core, Tx
from hopline_registry.domain.agents import webhook_problem
from hopline_registry.store import agents as agent_rows
from hopline_registry.store import people as rows


class Webhook(NamedTuple):
    """An address and its secret."""

    url: str
    secret: str


class Webhooks:
    """One method an RPC."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def set(self, caller: Principal, request: SetUserWebhookRequest) -> UserRecord:
        """Set or remove a person's webhook. Admins only: the mesh itself will call the address."""

        def op(tx: Tx) -> UserRecord:
            tx.require(ADMIN)
            user = user_for(tx, request.user)
            if request.url and (problem := webhook_problem(request.url)):
                raise invalid("url", problem)
            if bool(request.url) != bool(request.secret):
                raise invalid("secret", "is needed with an address, and only with one")
            changed = rows.set_webhook(tx.conn, user, request.url, request.secret)
            action = "user.webhook_set" if request.url else "user.webhook_removed"
            tx.changed(user.workspace_id, action, {"name": user.name}, user=user_message(changed))
            return changed

        return await self._core.write(caller, op)

    async def get(self, request: GetUserWebhookRequest) -> Webhook:
        """Return a person's webhook, for services alone."""
        found = await self._core.read(
            lambda conn: rows.webhook_of(conn, request.workspace_id, request.user_id)
        )
        if found is None or not found[0]:
            raise HoplineError("not_found", "this user has no webhook")
        return Webhook(*found)

    async def of_agent(self, request: GetWakeWebhookRequest) -> Webhook:
        """Return what wakes an agent, for services alone."""
        found = await self._core.read(
            lambda conn: agent_rows.wake_webhook_of(conn, request.workspace_id, request.agent_id)
        )
        if found is None or not all(found):
            raise HoplineError("not_found", "this agent is not woken by a webhook")
        return Webhook(*found)
