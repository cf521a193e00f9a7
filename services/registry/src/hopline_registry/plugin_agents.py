"""The agents of plugins: made by installations, and managed by the plugins themselves.

A plugin sees its own agents and nobody else; what it may do with them stands in its manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from hopline_directory import ADMIN, OPERATOR, AgentRecord, PluginRecord
from hopline_directory.plugins import AGENTS_READ, AGENTS_WRITE
from hopline_directory.records import AgentState
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.principals import Principal

from hopline_registry import members
from hopline_registry.access import PluginAccess
from hopline_registry.core import Core, Tx
from hopline_registry.definitions import Definition, agent_changed, check_room
from hopline_registry.domain.agents import Scope
from hopline_registry.plugin_rows import visible
from hopline_registry.store import agents as rows
from hopline_registry.store import people
from hopline_registry.store.plugins import PluginRow, record_of

# What a plugin says of its agents; the rest is said by their owner.
PLUGIN_UPDATABLE: Final = (
    "name",
    "description",
    "model_id",
    "soul",
    "instructions",
    "thinking_level",
    "reply_mode",
    "is_subagent",
    "parent_agent_id",
    "is_group_only_callable",
    "labels",
)


def agents_of(tx: Tx, plugin: PluginRow) -> Sequence[AgentRecord]:
    """Return a plugin's agents, in order of slug."""
    return rows.agents_with(tx.conn, plugin.workspace_id, plugin_id=plugin.id)


def add_declared(tx: Tx, row: PluginRow, plugin: PluginRecord, state: AgentState) -> None:
    """Make the agents that a manifest declares, in the name of whoever installed it; there is room."""
    if plugin.agents:
        _check_owner(tx, row)
    for declared in plugin.agents:
        wish = AgentRecord("", row.workspace_id, "", declared.name, row.installed_by, key=declared.key)
        agent = replace(_definition(tx, row).new(wish), state=state, awaits_definition=True)
        rows.add_agent(tx.conn, agent)
        agent_changed(tx, agent, "agent.created")


class PluginAgents:
    """One method an RPC of the plugins themselves."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def list(self, caller: Principal, after: str, limit: int) -> tuple[list[AgentRecord], bool]:
        """Return the plugin's own agents behind a slug, and whether more follow."""

        def look(tx: Tx) -> tuple[list[AgentRecord], bool]:
            found = [each for each in agents_of(tx, _permitted(tx, AGENTS_READ)) if each.slug > after]
            return found[:limit], len(found) > limit

        return await self._core.look(caller, look)

    async def create(self, caller: Principal, wish: AgentRecord) -> tuple[AgentRecord, bool]:
        """Make the agent of `wish`, or return the one that has its key, untouched."""

        def op(tx: Tx) -> tuple[AgentRecord, bool]:
            row = _permitted(tx, AGENTS_WRITE)
            known = next((each for each in agents_of(tx, row) if each.key == wish.key), None)
            if known is not None and not known.awaits_definition:
                return known, False
            _check_declared(row, wish.key)
            if known is not None:
                return members.update(tx, known, wish, PLUGIN_UPDATABLE, _own(tx, row)), True
            _check_owner(tx, row)
            check_room(tx)
            agent = _definition(tx, row).new(wish)
            rows.add_agent(tx.conn, agent)
            agent_changed(tx, agent, "agent.created")
            return agent, True

        return await self._core.write(caller, op)

    async def update(
        self,
        caller: Principal,
        ref: str,
        wish: AgentRecord,
        names: Iterable[str],
        enabled: bool | None,
    ) -> AgentRecord:
        """Take the named fields from `wish`, and pause or resume where `enabled` says so."""

        def op(tx: Tx) -> AgentRecord:
            row = _permitted(tx, AGENTS_WRITE)
            before = _own(tx, row).agent(ref, ADMIN)
            agent = members.update(tx, before, wish, names, _own(tx, row)) if names else before
            if enabled is None or enabled == (agent.state == "active"):
                return agent
            switched = replace(agent, state="active" if enabled else "paused")
            rows.save_agent(tx.conn, switched)
            agent_changed(tx, switched, "agent.resumed" if enabled else "agent.paused")
            return switched

        return await self._core.write(caller, op)

    async def delete(self, caller: Principal, ref: str) -> None:
        """Delete one of the plugin's own agents."""

        def op(tx: Tx) -> None:
            row = _permitted(tx, AGENTS_WRITE)
            members.remove(tx, _own(tx, row).agent(ref, ADMIN))

        await self._core.write(caller, op)


def _permitted(tx: Tx, permission: str) -> PluginRow:
    """Return the calling plugin, if its manifest allows this."""
    row = visible(tx, "")
    record_of(row).require(permission)
    return row


def _own(tx: Tx, row: PluginRow) -> PluginAccess:
    return PluginAccess(tx, row.id)


def _definition(tx: Tx, row: PluginRow) -> Definition:
    scope = Scope(row.workspace_id, row.installed_by, plugin_id=row.id)
    return Definition(tx, scope=scope, access=_own(tx, row))


def _check_declared(row: PluginRow, key: str) -> None:
    """Hold a plugin to the agents that people have agreed to."""
    if not key:
        raise invalid("agent.key", "is needed: by it the agent is known again")
    if key not in {each.key for each in record_of(row).agents}:
        raise HoplineError(
            "failed_precondition",
            f"the manifest in force declares no agent with the key {key!r}; a version that adds it has to be"
            " confirmed by the plugin's owner",
            violations=(("agent.key", "is not declared in the manifest"),),
        )


def _check_owner(tx: Tx, row: PluginRow) -> None:
    """Make no agents in the name of somebody who may make none any more."""
    if people.roles_of(tx.conn, row.workspace_id, row.installed_by).get("", 0) < OPERATOR:
        raise HoplineError(
            "failed_precondition",
            "whoever installed the plugin may make no agents any more; an admin installs it again",
        )
