"""Credentials, without their secrets, and signing keys."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from hopline_rpc.principals import hash_token
from sqlalchemy import Connection, Row, bindparam, delete, func, or_, select, tuple_

from hopline_registry.domain.tokens import TokenRecord
from hopline_registry.store.schema import signing_keys, tokens

_LOOKUP: Final = 16
# Written once: SQLAlchemy takes longer to put a statement together than SQLite to answer it.
_BY_LOOKUP: Final = select(tokens).where(tokens.c.lookup == bindparam("lookup"))
_COLUMNS: Final = [column for column in tokens.c if column.name not in {"lookup", "hash"}]


class KeyRow(NamedTuple):
    """A signing key; `private` and `public` are its raw 32 bytes each."""

    kid: str
    private: bytes
    public: bytes
    created_at: float
    signs_from: float


def _record(row: Row[Any]) -> TokenRecord:
    return TokenRecord(**{column.name: getattr(row, column.name) for column in _COLUMNS})


def add_token(conn: Connection, token: TokenRecord, secret: str) -> None:
    """Store a new token; of its secret only the hash."""
    digest = hash_token(secret)
    values = {column.name: getattr(token, column.name) for column in _COLUMNS}
    conn.execute(tokens.insert().values(**values, lookup=digest[:_LOOKUP], hash=digest))


def token_by_secret(conn: Connection, secret: str) -> TokenRecord | None:
    """Return the token of a secret, be it expired or revoked; None when there is none."""
    digest = hash_token(secret)
    found = None
    for row in conn.execute(_BY_LOOKUP, {"lookup": digest[:_LOOKUP]}):
        if hmac.compare_digest(row.hash, digest):
            found = _record(row)
    return found


def token_by_id(
    conn: Connection, workspace_id: str, token_id: str, subjects: Sequence[str] | None = None
) -> TokenRecord | None:
    """Return a token by id; where `subjects` are given, only one of theirs."""
    query = select(*_COLUMNS).where(tokens.c.workspace_id == workspace_id, tokens.c.id == token_id)
    if subjects is not None:
        query = query.where(tokens.c.subject_id.in_(subjects))
    row = conn.execute(query).first()
    return None if row is None else _record(row)


def live_tokens(
    conn: Connection, workspace_id: str, kind: str, subject_id: str, now: float
) -> Sequence[TokenRecord]:
    """Return the usable tokens of a subject."""
    query = select(*_COLUMNS).where(
        tokens.c.workspace_id == workspace_id,
        tokens.c.kind == kind,
        tokens.c.subject_id == subject_id,
        tokens.c.revoked_at.is_(None),
        or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > now),
    )
    return [_record(row) for row in conn.execute(query)]


def installation_tokens(conn: Connection) -> Sequence[TokenRecord]:
    """Return the installation's own tokens that are not revoked."""
    query = select(*_COLUMNS).where(tokens.c.installation.is_(True), tokens.c.revoked_at.is_(None))
    return [_record(row) for row in conn.execute(query)]


def mark_revoked(conn: Connection, token: TokenRecord, now: float) -> None:
    """Revoke a token."""
    condition = (tokens.c.workspace_id == token.workspace_id) & (tokens.c.id == token.id)
    conn.execute(tokens.update().where(condition).values(revoked_at=now))


def tokens_after(
    conn: Connection, workspace_ids: Sequence[str], after: tuple[str, str], limit: int
) -> Sequence[TokenRecord]:
    """Return tokens in order of workspace and id, those behind the pair `after`."""
    query = (
        select(*_COLUMNS)
        .where(tokens.c.workspace_id.in_(workspace_ids), tuple_(tokens.c.workspace_id, tokens.c.id) > after)
        .order_by(tokens.c.workspace_id, tokens.c.id)
        .limit(limit)
    )
    return [_record(row) for row in conn.execute(query)]


def revoked_since(conn: Connection, since: float) -> Sequence[TokenRecord]:
    """Return the tokens revoked after a moment, oldest first."""
    query = select(*_COLUMNS).where(tokens.c.revoked_at > since).order_by(tokens.c.revoked_at)
    return [_record(row) for row in conn.execute(query)]


def forget_dead(conn: Connection, before: float) -> None:
    """Drop tokens that were revoked or expired before a moment."""
    conn.execute(delete(tokens).where(func.coalesce(tokens.c.revoked_at, tokens.c.expires_at) < before))


def add_key(conn: Connection, key: KeyRow) -> None:
    """Store a signing key."""
    conn.execute(signing_keys.insert().values(**key._asdict()))


def drop_key(conn: Connection, kid: str) -> None:
    """Forget a signing key."""
    conn.execute(delete(signing_keys).where(signing_keys.c.kid == kid))


def all_keys(conn: Connection) -> list[KeyRow]:
    """Return the signing keys in the order in which they sign."""
    rows = conn.execute(select(signing_keys).order_by(signing_keys.c.signs_from))
    return [KeyRow(row.kid, row.private, row.public, row.created_at, row.signs_from) for row in rows]
