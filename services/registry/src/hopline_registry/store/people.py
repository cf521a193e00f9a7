"""Users and their roles."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from hopline_directory import UserRecord
from sqlalchemy import ColumnElement, Connection, select, tuple_

from hopline_registry.store.schema import roles, users


class Grant(NamedTuple):
    """A role of a person; `agent_id` is empty for the whole workspace."""

    user_id: str
    agent_id: str
    role: int


def add_user(conn: Connection, user: UserRecord) -> None:
    """Store a new person."""
    conn.execute(
        users.insert().values(
            workspace_id=user.workspace_id, id=user.id, name=user.name, created_at=user.created_at
        )
    )


def find_user(conn: Connection, workspace_id: str, ref: str) -> UserRecord | None:
    """Return a person by id, else by exact name."""
    return user_by_id(conn, workspace_id, ref) or _user(conn, workspace_id, users.c.name == ref)


def user_by_id(conn: Connection, workspace_id: str, user_id: str) -> UserRecord | None:
    """Return a person by id."""
    return _user(conn, workspace_id, users.c.id == user_id)


def _user(conn: Connection, workspace_id: str, condition: ColumnElement[bool]) -> UserRecord | None:
    row = conn.execute(select(users).where(users.c.workspace_id == workspace_id, condition)).first()
    return None if row is None else user_record(row)


def user_record(row: Any) -> UserRecord:
    """Return a person as everybody may see them: whether there is a webhook, not where."""
    return UserRecord(row.id, row.workspace_id, row.name, row.created_at, bool(row.webhook_url))


def set_webhook(conn: Connection, user: UserRecord, url: str, secret: str) -> UserRecord:
    """Set a person's webhook; empty for none."""
    conn.execute(
        users.update()
        .where(users.c.workspace_id == user.workspace_id, users.c.id == user.id)
        .values(webhook_url=url, webhook_secret=secret)
    )
    return dataclasses.replace(user, has_webhook=bool(url))


def webhook_of(conn: Connection, workspace_id: str, user_id: str) -> tuple[str, str] | None:
    """Return the address and the secret of a person's webhook."""
    query = select(users.c.webhook_url, users.c.webhook_secret).where(
        users.c.workspace_id == workspace_id, users.c.id == user_id
    )
    row = conn.execute(query).first()
    return None if row is None else (row.webhook_url, row.webhook_secret)


def set_login(conn: Connection, user: UserRecord, login: str) -> None:
    """Set whom the identity provider knows a person as; empty for nobody."""
    conn.execute(
        users.update()
        .where(users.c.workspace_id == user.workspace_id, users.c.id == user.id)
        .values(login=login or None)
    )


def user_by_login(conn: Connection, workspace_id: str, login: str) -> UserRecord | None:
    """Return the person whom the identity provider knows by this name."""
    return _user(conn, workspace_id, users.c.login == login)


def logins_of(conn: Connection, workspace_id: str, user_ids: Sequence[str]) -> dict[str, str]:
    """Return whom the identity provider knows these people as, those that it knows."""
    query = select(users.c.id, users.c.login).where(
        users.c.workspace_id == workspace_id, users.c.id.in_(user_ids), users.c.login.is_not(None)
    )
    return {row.id: row.login for row in conn.execute(query)}


def users_after(conn: Connection, workspace_id: str, after: str, limit: int) -> Sequence[UserRecord]:
    """Return people in order of name, those behind the name `after`."""
    query = (
        select(users)
        .where(users.c.workspace_id == workspace_id, users.c.name > after)
        .order_by(users.c.name)
        .limit(limit)
    )
    return [user_record(row) for row in conn.execute(query)]


def roles_of(conn: Connection, workspace_id: str, user_id: str) -> dict[str, int]:
    """Return a person's roles by agent id, the one on the workspace under the empty id."""
    query = select(roles.c.agent_id, roles.c.role).where(
        roles.c.workspace_id == workspace_id, roles.c.user_id == user_id
    )
    return {row.agent_id: row.role for row in conn.execute(query)}


def set_role(conn: Connection, workspace_id: str, grant: Grant) -> None:
    """Give a role in place of an earlier one on the same target."""
    remove_role(conn, workspace_id, grant)
    conn.execute(roles.insert().values(workspace_id=workspace_id, **grant._asdict()))


def remove_role(conn: Connection, workspace_id: str, grant: Grant) -> None:
    """Take a role away."""
    conn.execute(
        roles.delete().where(
            roles.c.workspace_id == workspace_id,
            roles.c.user_id == grant.user_id,
            roles.c.agent_id == grant.agent_id,
        )
    )


def grants_after(
    conn: Connection,
    workspace_id: str,
    after: tuple[str, str],
    limit: int,
    user_id: str | None = None,
    agent_id: str | None = None,
) -> Sequence[Grant]:
    """Return roles in order of user and agent, behind the pair `after`: all, or one person's or agent's."""
    query = (
        select(roles)
        .where(roles.c.workspace_id == workspace_id, tuple_(roles.c.user_id, roles.c.agent_id) > after)
        .order_by(roles.c.user_id, roles.c.agent_id)
        .limit(limit)
    )
    if user_id is not None:
        query = query.where(roles.c.user_id == user_id)
    if agent_id is not None:
        query = query.where(roles.c.agent_id == agent_id)
    return [Grant(row.user_id, row.agent_id, row.role) for row in conn.execute(query)]
