"""Whom and what a caller may address in a write: looked up inside its transaction."""

from __future__ import annotations

from typing import Protocol

from hopline_directory import ADMIN, NO_ROLE, VIEWER, AgentRecord, UserRecord, needs_role, one_of
from hopline_rpc.errors import HoplineError

from hopline_registry.core import Tx
from hopline_registry.store import agents as agent_rows
from hopline_registry.store import people


class Access(Protocol):
    """Whom a wish may name."""

    def agent(self, ref: str, role: int) -> AgentRecord:
        """Return the agent that `ref` means; one that may not be named is `not_found`."""
        ...


class PluginAccess:
    """Names a plugin's own agents, and nobody else."""

    def __init__(self, tx: Tx, plugin_id: str) -> None:
        self._tx = tx
        self._plugin_id = plugin_id

    def agent(self, ref: str, role: int) -> AgentRecord:
        """Return the plugin's agent that `ref` (id, else slug, else name) means; it may do all with it."""
        workspace_id = self._tx.actor.workspace_id
        for column in ("id", "slug", "name"):
            values = {column: ref, "plugin_id": self._plugin_id}
            if found := agent_rows.agents_with(self._tx.conn, workspace_id, **values):
                return one_of(found, ref)
        return one_of((), ref)


class AgentAccess:
    """The actor's roles on agents, read once a transaction."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._roles = people.roles_of(tx.conn, tx.actor.workspace_id, tx.actor.id)
        self._by_id: dict[str, int] = {}

    def role_on(self, agent: AgentRecord) -> int:
        """Return the actor's role on an agent; its owner is its admin."""
        if agent.owner_id == self._tx.actor.id:
            return ADMIN
        return max(self._roles.get("", 0), self._roles.get(agent.id, 0))

    def role_on_id(self, agent_id: str) -> int:
        """Return the actor's role on an agent by id, a deleted one too; 0 when there is none."""
        if agent_id not in self._by_id:
            agent = agent_rows.agent_by_id(self._tx.conn, self._tx.actor.workspace_id, agent_id)
            self._by_id[agent_id] = NO_ROLE if agent is None else self.role_on(agent)
        return self._by_id[agent_id]

    def agent(self, ref: str, role: int) -> AgentRecord:
        """Return the agent that `ref` means, on which the actor must hold `role`.

        Without any role on it, it is `not_found`, as one that never existed.
        """
        matches = self._matches(ref)
        agent = one_of(matches, ref, () if matches else self._renamed(ref))
        if self.role_on(agent) < role:
            raise needs_role(role, f"the agent {agent.slug!r}")
        return agent

    def _matches(self, ref: str) -> list[AgentRecord]:
        """Look among the agents the actor may see: by id, else by slug, else by name."""
        workspace_id = self._tx.actor.workspace_id
        for column in ("id", "slug", "name"):
            found = agent_rows.agents_with(self._tx.conn, workspace_id, **{column: ref})
            if seen := [agent for agent in found if self.role_on(agent) >= VIEWER]:
                return seen
        return []

    def _renamed(self, ref: str) -> list[AgentRecord]:
        """Return the agents the actor may see that had a name before."""
        everyone = agent_rows.agents_with(self._tx.conn, self._tx.actor.workspace_id)
        return [
            agent
            for agent in everyone
            if any(name == ref and until > self._tx.now for name, until in agent.former_names)
            and self.role_on(agent) >= VIEWER
        ]


def user_for(tx: Tx, ref: str) -> UserRecord:
    """Return the person of the actor's workspace that an id or a name means."""
    user = people.find_user(tx.conn, tx.actor.workspace_id, ref)
    if user is None:
        raise HoplineError("not_found", f"there is no user {ref!r}", details={"user": ref})
    return user


def require_installation(tx: Tx) -> None:
    """Refuse everyone but the holder of the installation's own token."""
    if not tx.actor.installation:
        raise HoplineError("permission_denied", "this needs the installation's own token (admin.token)")
