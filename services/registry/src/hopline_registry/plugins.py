"""Plugins: installed, confirmed, updated, uninstalled."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from hopline.registry.v1 import plugin_pb2 as pb
from hopline_directory import OPERATOR, AgentRecord, PluginRecord
from hopline_directory.plugins import plugin_message
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.faults import point
from hopline_rpc.principals import Principal

from hopline_registry.core import Core, Tx, filtered
from hopline_registry.definitions import agent_changed, check_room
from hopline_registry.domain.plugins import added_keys, asks
from hopline_registry.members import remove
from hopline_registry.plugin_agents import add_declared, agents_of
from hopline_registry.plugin_rows import (
    managed,
    normal,
    require_agreement,
    visible,
)
from hopline_registry.store import agents as agent_rows
from hopline_registry.store import plugins as rows
from hopline_registry.store import tokens as token_rows
from hopline_registry.store.plugins import PluginRow, record_of
from hopline_registry.tokens import FIRST, mint, revoke

MAX_PLUGINS: Final = 100

Manifest = Mapping[str, Any]


class Installed(NamedTuple):
    """What an installation came to; secrets are there only where it is new."""

    row: PluginRow
    token: str = ""
    secret: str = ""
    adds_agents: int = 0

    @property
    def was_created(self) -> bool:
        """Whether it was not there before."""
        return self.token != ""


class Updated(NamedTuple):
    """What a new version came to."""

    row: PluginRow
    adds_agents: int
    retired: Sequence[AgentRecord]


class Plugins:
    """One method an RPC."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def install(self, caller: Principal, request: pb.InstallPluginRequest) -> Installed:
        """Install a plugin; the same one again is what there is, without its secrets."""
        manifest = normal(request.manifest)

        def op(tx: Tx) -> Installed:
            tx.require(OPERATOR)
            earlier = tx.earlier(request, request.request_id)
            if earlier is not None:
                return Installed(_made_earlier(tx, earlier))
            there = rows.plugin_called(tx.conn, caller.workspace_id, request.manifest.key)
            found = _install(tx, manifest) if there is None else Installed(_same(there, manifest))
            if request.confirm and not found.row.is_confirmed:
                found = found._replace(row=_confirm(tx, managed(tx, found.row.id)))
            tx.made(request, request.request_id, found.row.id)
            point("registry.plugin_installing")
            return found

        installed = await self._core.write(caller, op)
        point("registry.plugin_installed")
        return installed

    async def confirm(self, caller: Principal, ref: str, revision: int) -> PluginRow:
        """Agree to what waits; `revision` is what the caller has seen of it, 0 for whatever it is."""

        def op(tx: Tx) -> PluginRow:
            row = visible(tx, ref)
            shown = row.revision if row.waiting is None else row.waiting_revision
            if revision and revision != shown:
                raise HoplineError(
                    "failed_precondition",
                    f"the manifest that was looked at is number {revision}, and by now it is {shown}:"
                    " look at it again",
                    details={"revision": shown},
                )
            return _confirm(tx, managed(tx, ref))

        return await self._core.write(caller, op)

    async def update(self, caller: Principal, request: pb.UpdatePluginRequest) -> Updated:
        """Give a plugin a new version of its manifest; it waits where it asks for more than the old one."""
        manifest = normal(request.manifest)
        by_itself = caller.kind == "plugin"
        if by_itself and request.confirm:
            raise invalid("confirm", "is for people: a plugin does not agree to what it asks for itself")

        def op(tx: Tx) -> Updated:
            row = visible(tx, request.plugin) if by_itself else managed(tx, request.plugin)
            changed = _updated(tx, row, manifest)
            if request.confirm:
                changed = _confirm(tx, changed)
            new = record_of(changed, changed.waiting)
            return Updated(changed, len(added_keys(new, record_of(row))), _retired(tx, new))

        return await self._core.write(caller, op)

    async def decline(self, caller: Principal, ref: str) -> PluginRow:
        """Drop the version that waits."""

        def op(tx: Tx) -> PluginRow:
            row = managed(tx, ref)
            if row.waiting is None:
                return row
            kept = replace(row, waiting=None)
            _save(tx, kept, "plugin.update_declined", {"declined": row.waiting["version"]})
            return kept

        return await self._core.write(caller, op)

    async def uninstall(self, caller: Principal, ref: str) -> int:
        """End a plugin with its tokens and agents; returns how many agents went."""

        def op(tx: Tx) -> int:
            row = managed(tx, ref)
            agents = agents_of(tx, row)
            if default := [each for each in agents if each.is_default]:
                raise HoplineError(
                    "failed_precondition",
                    f"its agent {default[0].slug!r} is the workspace's default;"
                    " make another the default first",
                )
            # Subagents first: what goes anyway need not be told of losing its lead.
            for agent in sorted(agents, key=lambda each: each.parent_agent_id == ""):
                remove(tx, agent)
            for token in token_rows.live_tokens(tx.conn, row.workspace_id, "plugin", row.id, tx.now):
                revoke(tx, token)
            rows.save_plugin(tx.conn, replace(row, uninstalled_at=tx.now, endpoint_secret=""))
            details = {**_details(row), "agents": [each.slug for each in agents]}
            tx.changed(row.workspace_id, "plugin.uninstalled", details, plugin_removed=row.id)
            point("registry.plugin_ending")
            return len(agents)

        ended = await self._core.write(caller, op)
        point("registry.plugin_ended")
        return ended

    async def get(self, caller: Principal, ref: str) -> PluginRow:
        """Return a plugin that the caller may see."""
        return await self._core.look(caller, lambda tx: visible(tx, ref))

    async def list(self, caller: Principal, after: str, limit: int) -> tuple[list[PluginRow], bool]:
        """Return the plugins that the caller may see, and whether more follow."""

        def look(tx: Tx) -> tuple[list[PluginRow], bool]:
            sees_all = tx.workspace_role() > 0
            return filtered(
                lambda key, count: rows.plugins_after(tx.conn, caller.workspace_id, key, count),
                lambda row: sees_all or row.installed_by == caller.id,
                lambda row: row.key,
                after,
                limit,
            )

        return await self._core.look(caller, look)

    async def rotate_secret(self, caller: Principal, ref: str) -> str:
        """Make a new secret for a plugin's endpoint."""
        secret = _new_secret()

        def op(tx: Tx) -> None:
            row = replace(managed(tx, ref), endpoint_secret=secret)
            _save(tx, row, "plugin.secret_rotated")

        await self._core.write(caller, op)
        return secret

    async def endpoint(self, request: pb.GetPluginEndpointRequest) -> tuple[str, str]:
        """Return where a plugin is called and the secret that goes along, for services alone."""
        row = await self._core.read(
            lambda conn: rows.plugin_by_id(conn, request.workspace_id, request.plugin_id)
        )
        if row is None or row.uninstalled_at is not None or not row.is_confirmed:
            raise HoplineError("not_found", "there is no such plugin to call")
        endpoint = record_of(row).endpoint
        if not endpoint:
            raise HoplineError("not_found", "this plugin has no endpoint")
        return endpoint, row.endpoint_secret


def _install(tx: Tx, manifest: Manifest) -> Installed:
    """Store a new plugin that waits to be confirmed, with its agents and a first token."""
    workspace_id = tx.actor.workspace_id
    if len(rows.plugins_after(tx.conn, workspace_id, "", MAX_PLUGINS)) >= MAX_PLUGINS:
        raise HoplineError("limit_reached", f"the workspace has {MAX_PLUGINS} plugins; uninstall one")
    row = PluginRow(
        workspace_id=workspace_id,
        id=tx.ids.new_id("plg"),
        key=manifest["key"],
        manifest=manifest,
        installed_by=tx.actor.id,
        installed_at=tx.now,
        endpoint_secret=_new_secret(),
        is_confirmed=False,
    )
    plugin = record_of(row)
    require_agreement(tx, plugin)
    rows.add_plugin(tx.conn, row)
    check_room(tx, more=len(plugin.agents))
    add_declared(tx, row, plugin, "provisioning")
    details = {**_details(row), "asks": asks(plugin)}
    tx.changed(workspace_id, "plugin.installed", details, plugin=plugin_message(plugin))
    _, token = mint(tx, workspace_id, "plugin", row.id, name=FIRST)
    return Installed(row, token, row.endpoint_secret, len(plugin.agents))


def _made_earlier(tx: Tx, plugin_id: str) -> PluginRow:
    row = rows.plugin_by_id(tx.conn, tx.actor.workspace_id, plugin_id)
    if row is None or row.uninstalled_at is not None:
        raise HoplineError(
            "failed_precondition",
            "what this request installed was uninstalled since; install it with another request_id",
        )
    return row


def _same(row: PluginRow, manifest: Manifest) -> PluginRow:
    """Return the plugin that is there, if it is the same; another one is refused."""
    if manifest in (row.manifest, row.waiting):
        return row
    raise HoplineError(
        "failed_precondition",
        f"the plugin {row.key!r} is installed already, as version {row.manifest['version']};"
        " update it instead",
        violations=(("manifest.key", "is installed already"),),
        details={"plugin_id": row.id},
    )


def _confirm(tx: Tx, row: PluginRow) -> PluginRow:
    """Put what waits in force; nothing that waits is no change."""
    if row.is_confirmed and row.waiting is None:
        return row
    if not row.is_confirmed:
        plugin = record_of(row)
        require_agreement(tx, plugin)
        confirmed = replace(row, is_confirmed=True)
        _save(tx, confirmed, "plugin.confirmed", {"asks": asks(plugin)})
        for agent in agents_of(tx, row):
            if agent.state == "provisioning":
                active = replace(agent, state="active")
                agent_rows.save_agent(tx.conn, active)
                agent_changed(tx, active, "agent.updated", ["state"])
        return confirmed
    require_agreement(tx, record_of(row, row.waiting))
    return _take_over(tx, row, "plugin.confirmed")


def _take_over(tx: Tx, row: PluginRow, action: str) -> PluginRow:
    """Put the version that waits in force, with the agents that it adds."""
    old, new = record_of(row), record_of(row, row.waiting)
    changed = replace(
        row,
        manifest=row.waiting or row.manifest,
        revision=row.waiting_revision,
        waiting=None,
        waiting_revision=0,
    )
    known = {each.key for each in agents_of(tx, row)}
    missing = [each for each in new.agents if each.key in added_keys(new, old) and each.key not in known]
    check_room(tx, more=len(missing))
    _save(tx, changed, action, {"before": old.version, "asks": asks(new, old)})
    add_declared(tx, changed, replace(new, agents=tuple(missing)), "active")
    return changed


def _updated(tx: Tx, row: PluginRow, manifest: Manifest) -> PluginRow:
    """Take a manifest: in force at once where it asks for nothing new, else to be confirmed."""
    if manifest["key"] != row.key:
        raise invalid("manifest.key", f"is {row.key!r} and stays so; another key is another plugin")
    if manifest in (row.manifest, row.waiting):
        return row
    if not row.is_confirmed:
        raise HoplineError(
            "failed_precondition",
            "the installation waits to be confirmed; confirm it, or uninstall it and install the new version",
        )
    for known in (row.manifest, row.waiting):
        if known is not None and known["version"] == manifest["version"]:
            raise HoplineError(
                "failed_precondition",
                f"version {manifest['version']} is another manifest already;"
                " give this one a version of its own",
                violations=(("manifest.version", "is taken by another manifest"),),
            )
    waiting = replace(row, waiting=manifest, waiting_revision=_newest(row) + 1)
    old, new = record_of(row), record_of(row, manifest)
    more = asks(new, old)
    if not more:
        return _take_over(tx, waiting, "plugin.updated")
    check_room(tx, more=len(added_keys(new, old)))
    _save(tx, waiting, "plugin.update_waits", {"waits": new.version, "asks": more})
    return waiting


def _retired(tx: Tx, new: PluginRecord) -> list[AgentRecord]:
    declared = {each.key for each in new.agents}
    return [
        each
        for each in agent_rows.agents_with(tx.conn, new.workspace_id, plugin_id=new.id)
        if each.key not in declared
    ]


def _newest(row: PluginRow) -> int:
    """Return the number of the last manifest that was accepted, one that was declined as well."""
    return max(row.revision, row.waiting_revision)


def _save(tx: Tx, row: PluginRow, action: str, details: Mapping[str, Any] | None = None) -> None:
    rows.save_plugin(tx.conn, row)
    said = {**_details(row), **(details or {})}
    tx.changed(row.workspace_id, action, said, plugin=plugin_message(record_of(row)))


def _details(row: PluginRow) -> dict[str, Any]:
    return {
        "plugin": row.id,
        "key": row.key,
        "name": row.manifest["name"],
        "version": row.manifest["version"],
    }


def _new_secret() -> str:
    """Return a random secret; it is no token of ours and opens nothing here."""
    return secrets.token_urlsafe(32)
