"""Agents by key: of a crew, or of a plugin. Within a transaction; whoever calls has checked who may."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hopline_directory import AgentRecord
from hopline_rpc.errors import HoplineError, invalid

from hopline_registry.access import Access, PluginAccess
from hopline_registry.core import Tx
from hopline_registry.definitions import Definition, agent_changed, check_room, children_of, differing
from hopline_registry.domain.agents import Scope
from hopline_registry.domain.crews import MAX_MEMBERS
from hopline_registry.store import agents as rows
from hopline_registry.store import tokens as token_rows
from hopline_registry.tokens import revoke


def members_of(tx: Tx, scope: Scope) -> Sequence[AgentRecord]:
    """Return the agents of a scope, in order of slug."""
    return rows.agents_with(tx.conn, scope.workspace_id, **scope.columns)


def with_key(tx: Tx, scope: Scope, key: str) -> AgentRecord | None:
    """Return the agent of a scope that has a key; of several, which older ones may be, the oldest."""
    found = rows.agents_with(tx.conn, scope.workspace_id, key=key, **scope.columns)
    return min(found, key=lambda each: (each.created_at, each.id), default=None)


def get_or_create(tx: Tx, scope: Scope, wish: AgentRecord) -> tuple[AgentRecord, bool]:
    """Make the agent of `wish`, or return the one that has its key already, untouched.

    The second value says whether it was made. A new agent has no token.
    """
    if not wish.key:
        raise invalid("agent.key", "is needed: by it the agent is known again")
    known = with_key(tx, scope, wish.key)
    if known is not None:
        return known, False
    check_room(tx)
    return add(tx, scope, wish), True


def add(tx: Tx, scope: Scope, wish: AgentRecord) -> AgentRecord:
    """Make an agent for which there is room."""
    agent = Definition(tx, scope=scope, access=access_of(tx, scope)).new(wish)
    rows.add_agent(tx.conn, agent)
    agent_changed(tx, agent, "agent.created")
    return agent


def update(
    tx: Tx, before: AgentRecord, wish: AgentRecord, names: Iterable[str], access: Access | None = None
) -> AgentRecord:
    """Take the named fields from `wish`; one that stays the same is no change.

    `access`: whom the wish may name; by default whom the actor may.
    """
    agent = Definition(tx, access=access).updated(before, wish, frozenset(names))
    if changed := differing(before, agent):
        rows.save_agent(tx.conn, agent)
        agent_changed(tx, agent, "agent.updated", changed)
    return agent


def remove(tx: Tx, agent: AgentRecord) -> None:
    """Delete an agent and end its tokens; its children stay, without a lead."""
    if agent.is_default:
        raise HoplineError(
            "failed_precondition",
            "the default agent cannot be deleted; make another the default first",
        )
    for child in children_of(tx, agent):
        orphan = replace(child, parent_agent_id="")
        rows.save_agent(tx.conn, orphan)
        agent_changed(tx, orphan, "agent.updated", ["parent_agent_id"])
    rows.mark_deleted(tx.conn, agent, tx.now)
    details = {"slug": agent.slug, "name": agent.name}
    tx.changed(agent.workspace_id, "agent.deleted", details, agent_deleted=agent.id)
    for token in token_rows.live_tokens(tx.conn, agent.workspace_id, "agent", agent.id, tx.now):
        revoke(tx, token)


def check_size(count: int) -> None:
    """Refuse a crew that is too large."""
    if count > MAX_MEMBERS:
        text = f"a crew has at most {MAX_MEMBERS} members"
        details = {"limit": MAX_MEMBERS, "used": count}
        raise HoplineError("limit_reached", text, details=details, quota=("members", text))


def access_of(tx: Tx, scope: Scope) -> Access | None:
    """Return whom the wishes of a scope may name: a plugin its own agents, a person whom they may see."""
    return PluginAccess(tx, scope.plugin_id) if scope.plugin_id else None
