"""Installed plugins: the manifest in force, the one that waits, and the secret of the endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from google.protobuf import json_format
from hopline.registry.v1 import plugin_pb2 as pb
from hopline_directory import PluginRecord
from hopline_directory.plugins import PluginState, plugin_record, state_number
from hopline_rpc.clock import to_timestamp
from sqlalchemy import ColumnElement, Connection, Row, delete, select

from hopline_registry.store.schema import plugins


@dataclass(frozen=True, slots=True)
class PluginRow:
    """A plugin as it is stored; manifests are JSON of the contract's message. Times are unix seconds."""

    workspace_id: str
    id: str
    key: str
    manifest: Mapping[str, Any]
    installed_by: str
    installed_at: float
    endpoint_secret: str
    is_confirmed: bool
    # Counts the manifests that were accepted: of the one in force, and of the one that waits.
    revision: int = 1
    waiting: Mapping[str, Any] | None = None
    waiting_revision: int = 0
    uninstalled_at: float | None = None


def state_of(row: PluginRow) -> PluginState:
    """Return the state that a plugin is in."""
    if not row.is_confirmed:
        return "awaiting_confirmation"
    return "active" if row.waiting is None else "update_waiting"


def record_of(row: PluginRow, manifest: Mapping[str, Any] | None = None) -> PluginRecord:
    """Return a plugin by the manifest in force, or by another one."""
    message = pb.PluginManifest()
    json_format.ParseDict(dict(manifest or row.manifest), message, ignore_unknown_fields=True)
    plugin = pb.Plugin(
        id=row.id,
        manifest=message,
        state=state_number(state_of(row)),
        installed_by=row.installed_by,
        installed_at=to_timestamp(row.installed_at),
        revision=row.revision,
    )
    return plugin_record(row.workspace_id, plugin)


def add_plugin(conn: Connection, plugin: PluginRow) -> None:
    """Store a new plugin."""
    conn.execute(plugins.insert().values(asdict(plugin)))


def save_plugin(conn: Connection, plugin: PluginRow) -> None:
    """Replace what is stored of a plugin."""
    conn.execute(plugins.update().where(_is(plugin.workspace_id, plugin.id)).values(asdict(plugin)))


def plugin_by_id(conn: Connection, workspace_id: str, plugin_id: str) -> PluginRow | None:
    """Return a plugin by id, one that was uninstalled lately too."""
    row = conn.execute(select(plugins).where(_is(workspace_id, plugin_id))).first()
    return None if row is None else _row(row)


def key_of(conn: Connection, workspace_id: str, plugin_id: str) -> str:
    """Return a plugin's key, also of one that was uninstalled lately; empty when there is none."""
    found: str | None = conn.execute(select(plugins.c.key).where(_is(workspace_id, plugin_id))).scalar()
    return found or ""


def plugin_called(conn: Connection, workspace_id: str, ref: str, installed_by: str = "") -> PluginRow | None:
    """Return the installed plugin that an id or a key means; with `installed_by` one of theirs alone."""
    query = select(plugins).where(plugins.c.workspace_id == workspace_id, plugins.c.uninstalled_at.is_(None))
    if installed_by:
        query = query.where(plugins.c.installed_by == installed_by)
    for column in (plugins.c.id, plugins.c.key):
        row = conn.execute(query.where(column == ref)).first()
        if row is not None:
            return _row(row)
    return None


def plugins_after(conn: Connection, workspace_id: str, key: str, limit: int) -> Sequence[PluginRow]:
    """Return the installed plugins of a workspace in order of key, those behind `key`."""
    query = (
        select(plugins)
        .where(
            plugins.c.workspace_id == workspace_id,
            plugins.c.uninstalled_at.is_(None),
            plugins.c.key > key,
        )
        .order_by(plugins.c.key)
        .limit(limit)
    )
    return [_row(row) for row in conn.execute(query)]


def ids_installed_by(conn: Connection, workspace_id: str, user_id: str) -> Sequence[str]:
    """Return the ids of the plugins that a person has installed."""
    query = select(plugins.c.id).where(
        plugins.c.workspace_id == workspace_id,
        plugins.c.installed_by == user_id,
        plugins.c.uninstalled_at.is_(None),
    )
    return list(conn.execute(query).scalars())


def all_plugins(conn: Connection) -> Iterable[PluginRow]:
    """Yield every installed plugin of the mesh."""
    return (_row(row) for row in conn.execute(select(plugins).where(plugins.c.uninstalled_at.is_(None))))


def forget_uninstalled(conn: Connection, before: float) -> None:
    """Drop plugins that were uninstalled before a moment."""
    conn.execute(delete(plugins).where(plugins.c.uninstalled_at < before))


def _row(row: Row[Any]) -> PluginRow:
    return PluginRow(**{name: getattr(row, name) for name in PluginRow.__slots__})


def _is(workspace_id: str, plugin_id: str) -> ColumnElement[bool]:
    return (plugins.c.workspace_id == workspace_id) & (plugins.c.id == plugin_id)
