"""Agents and their definitions, for the people who own them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Any

from hopline.registry.v1.agent_pb2 import CreateAgentRequest
from hopline_directory import ADMIN, OPERATOR, VIEWER, AgentRecord, View
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal

from hopline_registry.access import AgentAccess
from hopline_registry.core import Core, Tx, require_unchanged
from hopline_registry.definitions import Definition, agent_changed, check_room, differing
from hopline_registry.members import remove
from hopline_registry.store import agents as rows
from hopline_registry.tokens import FIRST, mint


class Agents:
    """One method an RPC."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def create(
        self, caller: Principal, request: CreateAgentRequest, wish: AgentRecord
    ) -> tuple[AgentRecord, str]:
        """Make the agent of `wish` and a first token; a repeated request gets no token any more."""

        def op(tx: Tx) -> tuple[AgentRecord, str]:
            tx.require(OPERATOR)
            earlier = tx.earlier(request, request.request_id)
            if earlier is not None and (known := rows.agent_by_id(tx.conn, wish.workspace_id, earlier)):
                return known, ""
            secret = request.agent.wake.webhook_secret
            agent = Definition(tx, secret).new(wish)
            check_room(tx)
            rows.add_agent(tx.conn, agent)
            if secret:
                rows.set_wake_secret(tx.conn, agent, secret)
            agent_changed(tx, agent, "agent.created")
            _, token = mint(tx, agent.workspace_id, "agent", agent.id, name=FIRST)
            tx.made(request, request.request_id, agent.id)
            return agent, token

        return await self._core.write(caller, op)

    def get(self, caller: Principal, ref: str) -> AgentRecord:
        """Return an agent on which the caller holds at least `viewer`."""
        return self._core.directory.resolve_for_person(caller, ref, VIEWER)

    def visible(self, caller: Principal) -> View:
        """Return the agents on which the caller holds at least `viewer`."""
        return self._core.directory.for_person(caller, VIEWER)

    def role_on(self, caller: Principal, agent: AgentRecord) -> int:
        """Return the caller's role on an agent."""
        return self._core.directory.role_on_agent(caller.id, agent)

    def reach(
        self, caller: Principal, ref: str, after: str, limit: int, *, callers: bool
    ) -> tuple[list[AgentRecord], bool]:
        """Return who may start something on an agent, or on whom it may, behind the slug `after`.

        Of those on which the caller holds at least `viewer`; and whether more follow.
        """
        directory = self._core.directory
        agent, others = self.get(caller, ref), self.visible(caller).ordered
        start = bisect_right(others, after, key=lambda each: each.slug)
        found = (
            each
            for each in others[start:]
            if (directory.reaches(each, agent) if callers else directory.reaches(agent, each))
        )
        page = list(islice(found, limit + 1))
        return page[:limit], len(page) > limit

    def plugin_name(self, agent: AgentRecord) -> str:
        """Return the name of the plugin that an agent comes from; empty for one that a person made."""
        return self._core.directory.plugin_name(agent)

    async def update(
        self,
        caller: Principal,
        ref: str,
        wish: AgentRecord,
        names: Iterable[str],
        secret: str = "",
        expected: AgentRecord | None = None,
    ) -> AgentRecord:
        """Take the named fields from `wish`, which have been checked one by one.

        `secret` signs what wakes it, in place of an earlier one; the same one is no change. `expected`: only
        where these fields still are what they are there.
        """
        wanted = frozenset(names)

        def op(tx: Tx) -> AgentRecord:
            before = AgentAccess(tx).agent(ref, ADMIN)
            agent = Definition(tx, secret).updated(before, wish, wanted)
            if expected is not None:
                require_unchanged(*(_fields(each, wanted) for each in (before, expected, agent)))
            changed = differing(before, agent)
            held = rows.wake_webhook_of(tx.conn, before.workspace_id, before.id) if secret else None
            is_new = secret != "" and (held is None or held[1] != secret)
            if is_new or agent.has_webhook_secret != before.has_webhook_secret:
                rows.set_wake_secret(tx.conn, agent, secret)
                changed = [name for name in changed if name != "has_webhook_secret"] + ["webhook_secret"]
            if changed:
                rows.save_agent(tx.conn, agent)
                agent_changed(tx, agent, "agent.updated", changed)
            return agent

        return await self._core.write(caller, op)

    async def pause(self, caller: Principal, ref: str) -> AgentRecord:
        """Let an agent only read; one that is paused stays so."""
        return await self._set_state(caller, ref, "agent.paused")

    async def resume(self, caller: Principal, ref: str) -> AgentRecord:
        """Make a paused agent active; one that is active stays so."""
        return await self._set_state(caller, ref, "agent.resumed")

    async def _set_state(self, caller: Principal, ref: str, action: str) -> AgentRecord:
        def op(tx: Tx) -> AgentRecord:
            before = AgentAccess(tx).agent(ref, OPERATOR)
            if before.state == "provisioning":
                raise HoplineError(
                    "failed_precondition", "the agent waits for its plugin's installation to be confirmed"
                )
            agent = replace(before, state="paused" if action == "agent.paused" else "active")
            if agent != before:
                rows.save_agent(tx.conn, agent)
                agent_changed(tx, agent, action)
            return agent

        return await self._core.write(caller, op)

    async def delete(self, caller: Principal, ref: str) -> None:
        """Delete an agent and end its tokens; its children stay, without a lead."""

        def op(tx: Tx) -> None:
            remove(tx, AgentAccess(tx).agent(ref, ADMIN))

        await self._core.write(caller, op)


def _fields(agent: AgentRecord, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(agent, name) for name in sorted(names)}
