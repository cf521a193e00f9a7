"""Workspaces and their policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hopline_directory import WorkspaceRecord
from sqlalchemy import ColumnElement, Connection, func, select

from hopline_registry.domain.policies import Value, complete
from hopline_registry.store.schema import policies, workspaces


def add_workspace(conn: Connection, workspace: WorkspaceRecord) -> None:
    """Store a new workspace."""
    conn.execute(
        workspaces.insert().values(
            workspace_id=workspace.id, name=workspace.name, created_at=workspace.created_at
        )
    )


def workspace_by_name(conn: Connection, name: str) -> WorkspaceRecord | None:
    """Return a workspace by its exact name."""
    return _one(conn, workspaces.c.name == name)


def workspace_by_id(conn: Connection, workspace_id: str) -> WorkspaceRecord | None:
    """Return a workspace by id."""
    return _one(conn, workspaces.c.workspace_id == workspace_id)


def _one(conn: Connection, condition: ColumnElement[bool]) -> WorkspaceRecord | None:
    row = conn.execute(select(workspaces).where(condition)).first()
    return None if row is None else WorkspaceRecord(row.workspace_id, row.name, row.created_at)


def workspaces_after(conn: Connection, after: str, limit: int) -> Sequence[WorkspaceRecord]:
    """Return workspaces in order of name, those behind the name `after`."""
    query = select(workspaces).where(workspaces.c.name > after).order_by(workspaces.c.name).limit(limit)
    return [WorkspaceRecord(row.workspace_id, row.name, row.created_at) for row in conn.execute(query)]


def count_workspaces(conn: Connection) -> int:
    """Return how many there are."""
    return conn.execute(select(func.count()).select_from(workspaces)).scalar_one()


def policy_of(conn: Connection, workspace_id: str) -> dict[str, Value]:
    """Return a workspace's limits by key, `preset` among them."""
    query = select(policies.c["keys"]).where(policies.c.workspace_id == workspace_id)
    return complete(conn.execute(query).scalar_one())


def add_policy(conn: Connection, workspace_id: str, keys: Mapping[str, Value]) -> None:
    """Store the limits of a new workspace."""
    conn.execute(policies.insert().values({"workspace_id": workspace_id, "keys": dict(keys)}))


def set_policy(conn: Connection, workspace_id: str, keys: Mapping[str, Value]) -> None:
    """Replace a workspace's limits."""
    conn.execute(
        policies.update().where(policies.c.workspace_id == workspace_id).values({"keys": dict(keys)})
    )
