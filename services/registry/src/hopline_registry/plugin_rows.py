"""What people see of a plugin, what may be stored of it, and who may do what with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import json_format
from hopline.registry.v1 import plugin_pb2 as pb
from hopline_directory import ADMIN, OPERATOR, VIEWER, PluginRecord, needs_role
from hopline_directory.plugins import plugin_message, plugin_record
from hopline_rpc.errors import HoplineError, invalid

from hopline_registry.core import Tx
from hopline_registry.domain.names import name_problem
from hopline_registry.domain.plugins import arguments_problem, asks, manifest_problem, needs_admin
from hopline_registry.store import plugins as rows
from hopline_registry.store.plugins import PluginRow, record_of

# What one message of the feed can carry with others.
MAX_MANIFEST: Final = 1024 * 1024


def told(row: PluginRow) -> pb.Plugin:
    """Write a plugin as people see it: with what waits, and what that asks for."""
    plugin = record_of(row)
    message = plugin_message(plugin)
    if row.waiting is not None:
        waiting = record_of(row, row.waiting)
        message.waiting.CopyFrom(plugin_message(waiting).manifest)
        message.waiting_revision = row.waiting_revision
        message.asks.extend(asks(waiting, plugin))
    elif not row.is_confirmed:
        message.asks.extend(asks(plugin))
    return message


def normal(manifest: pb.PluginManifest) -> Mapping[str, Any]:
    """Return a manifest as it is stored, alike for all that say the same; a wrong one is refused."""
    for number, tool in enumerate(manifest.tools):
        if tool.input_schema_json:
            _check_schema(f"manifest.tools[{number}].input_schema_json", tool.input_schema_json)
    for field, text in (("name", manifest.name), ("version", manifest.version)):
        if problem := name_problem(text):
            raise invalid(f"manifest.{field}", problem)
    for number, agent in enumerate(manifest.agents):
        for field, text in (("key", agent.key), ("name", agent.name)):
            if problem := name_problem(text):
                raise invalid(f"manifest.agents[{number}].{field}", problem)
    plugin = plugin_record("", pb.Plugin(manifest=manifest))
    if wrong := manifest_problem(plugin):
        raise invalid(f"manifest.{wrong[0]}", wrong[1])
    written = plugin_message(plugin).manifest
    if (size := written.ByteSize()) > MAX_MANIFEST:
        raise invalid("manifest", f"takes {size} bytes; the limit is {MAX_MANIFEST} (1 MiB)")
    found: dict[str, Any] = json_format.MessageToDict(written, preserving_proto_field_name=True)
    return found


def _check_schema(field: str, text: str) -> None:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        raise invalid(field, "is not JSON") from None
    if not isinstance(schema, dict):
        raise invalid(field, "must be a JSON object: the schema of the tool's arguments")
    if (problem := arguments_problem(schema)) is not None:
        raise invalid(field, problem)


def visible(tx: Tx, ref: str) -> PluginRow:
    """Return the installed plugin that `ref` means, if the actor may see it; every miss is `not_found`.

    People with any role on the workspace see all of its plugins, and others what they have installed; a
    plugin sees itself, which an empty `ref` means as well.
    """
    row = _itself(tx, ref) if tx.actor.kind == "plugin" else _seen(tx, ref)
    if row is None:
        raise HoplineError("not_found", f"there is no plugin {ref!r}", details={"plugin": ref})
    return row


def _itself(tx: Tx, ref: str) -> PluginRow | None:
    own = rows.plugin_called(tx.conn, tx.actor.workspace_id, tx.actor.id)
    return own if own is not None and ref in ("", own.id, own.key) else None


def _seen(tx: Tx, ref: str) -> PluginRow | None:
    # Looked for among these alone: a look at one that is hidden would show in the time.
    only = "" if tx.workspace_role() >= VIEWER else tx.actor.id
    return rows.plugin_called(tx.conn, tx.actor.workspace_id, ref, installed_by=only)


def managed(tx: Tx, ref: str) -> PluginRow:
    """Return the plugin that `ref` means, for whoever may manage it: who installed it, or an admin."""
    row = visible(tx, ref)
    if not manages(tx, row):
        raise needs_role(_managing_role(tx, row))
    return row


def manages(tx: Tx, row: PluginRow) -> bool:
    """Tell whether the actor may end a plugin, and make tokens for it."""
    return tx.workspace_role() >= _managing_role(tx, row)


def _managing_role(tx: Tx, row: PluginRow) -> int:
    """Return the role that is needed: of who installed it the one for which they might do so again."""
    harmless = row.installed_by == tx.actor.id and not needs_admin(record_of(row))
    return OPERATOR if harmless else ADMIN


def require_agreement(tx: Tx, plugin: PluginRecord) -> None:
    """Refuse whoever may not agree to what a manifest asks for: admins alone where it reaches others."""
    role = ADMIN if needs_admin(plugin) else OPERATOR
    if tx.workspace_role() < role:
        raise needs_role(role, "the workspace, to agree to what the plugin asks for")
