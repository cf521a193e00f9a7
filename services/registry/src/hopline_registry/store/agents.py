"""Agents and their definitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any, Final

from hopline_directory import AgentRecord, ConnectionRecord, ServerToolRecord
from sqlalchemy import ColumnElement, Connection, Row, bindparam, func, select

from hopline_registry.domain.names import look
from hopline_registry.store.schema import agents

_OTHERS: Final = {
    "reach",
    "tools",
    "server_tools",
    "deleted",
    "former_names",
    "connections",
    "has_webhook_secret",
}
_PLAIN: Final = tuple(field.name for field in fields(AgentRecord) if field.name not in _OTHERS)

# Written once: SQLAlchemy takes longer to put a statement together than SQLite to answer it.
_BY_ID: Final = select(agents).where(
    agents.c.workspace_id == bindparam("workspace"), agents.c.id == bindparam("agent")
)


def _values(agent: AgentRecord) -> dict[str, Any]:
    return {
        **{name: getattr(agent, name) for name in _PLAIN},
        "reach": sorted(agent.reach),
        "tools": list(agent.tools),
        "server_tools": [asdict(tool) for tool in agent.server_tools],
        "former_names": [list(each) for each in agent.former_names],
        "slug_look": look(agent.slug),
        "connections": [asdict(each) for each in agent.connections],
    }


def _record(row: Row[Any]) -> AgentRecord:
    return AgentRecord(
        **{name: getattr(row, name) for name in _PLAIN},
        reach=frozenset(row.reach),
        tools=tuple(row.tools),
        server_tools=tuple(ServerToolRecord(**tool) for tool in row.server_tools),
        deleted=row.deleted_at is not None,
        former_names=tuple((name, until) for name, until in row.former_names),
        connections=tuple(ConnectionRecord(**each) for each in row.connections),
        has_webhook_secret=bool(row.webhook_secret),
    )


def add_agent(conn: Connection, agent: AgentRecord) -> None:
    """Store a new agent."""
    conn.execute(agents.insert().values(_values(agent)))


def save_agent(conn: Connection, agent: AgentRecord) -> None:
    """Replace an agent's definition."""
    conn.execute(agents.update().where(_is(agent.workspace_id, agent.id)).values(_values(agent)))


def set_wake_secret(conn: Connection, agent: AgentRecord, secret: str) -> None:
    """Keep the secret that signs what wakes an agent; empty for none."""
    query = agents.update().where(_is(agent.workspace_id, agent.id)).values(webhook_secret=secret)
    conn.execute(query)


def wake_webhook_of(conn: Connection, workspace_id: str, agent_id: str) -> tuple[str, str] | None:
    """Return the address that wakes an agent and its secret; None where it is not woken so."""
    query = select(agents.c.webhook_url, agents.c.webhook_secret).where(
        _is(workspace_id, agent_id), agents.c.deleted_at.is_(None), agents.c.wake == "webhook"
    )
    row = conn.execute(query).first()
    return None if row is None else (row.webhook_url, row.webhook_secret)


def mark_deleted(conn: Connection, agent: AgentRecord, now: float) -> None:
    """Delete an agent; its row stays."""
    conn.execute(agents.update().where(_is(agent.workspace_id, agent.id)).values(deleted_at=now))


def agent_by_id(conn: Connection, workspace_id: str, agent_id: str) -> AgentRecord | None:
    """Return an agent by id, a deleted one too."""
    row = conn.execute(_BY_ID, {"workspace": workspace_id, "agent": agent_id}).first()
    return None if row is None else _record(row)


def agents_with(conn: Connection, workspace_id: str, **values: str | bool) -> Sequence[AgentRecord]:
    """Return the agents that are not deleted and have these values in these columns, in order of slug."""
    conditions = [agents.c[name] == value for name, value in values.items()]
    query = select(agents).where(
        agents.c.workspace_id == workspace_id, agents.c.deleted_at.is_(None), *conditions
    )
    # Sorted here: for an order SQLite takes the index of slugs, and reads all of a workspace by it.
    return sorted(map(_record, conn.execute(query)), key=lambda agent: agent.slug)


def looking_like(conn: Connection, workspace_id: str, slug: str) -> list[tuple[AgentRecord, float | None]]:
    """Return the agents whose slug is, or looks like, this one, with the time at which each was deleted."""
    query = select(agents).where(agents.c.workspace_id == workspace_id, agents.c.slug_look == look(slug))
    return [(_record(row), row.deleted_at) for row in conn.execute(query)]


def release_slug(conn: Connection, agent: AgentRecord) -> None:
    """Take the slug from a deleted agent, which gets one that nobody can ask for."""
    values = {"slug": f"{agent.slug}~{agent.id}", "slug_look": ""}
    conn.execute(agents.update().where(_is(agent.workspace_id, agent.id)).values(values))


def count_agents(conn: Connection, workspace_id: str) -> int:
    """Return how many agents there are that are not deleted."""
    query = (
        select(func.count())
        .select_from(agents)
        .where(agents.c.workspace_id == workspace_id, agents.c.deleted_at.is_(None))
    )
    return conn.execute(query).scalar_one()


def all_agents(conn: Connection) -> Iterable[AgentRecord]:
    """Yield every agent of the mesh, deleted ones too."""
    return (_record(row) for row in conn.execute(select(agents)))


def _is(workspace_id: str, agent_id: str) -> ColumnElement[bool]:
    return (agents.c.workspace_id == workspace_id) & (agents.c.id == agent_id)
