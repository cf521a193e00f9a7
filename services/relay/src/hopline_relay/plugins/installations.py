"""Follows which plugins there are: what each is told of itself, and what goes with one that is no more.

The record holds of which revision each plugin was told last, so that the registry's feed may repeat itself,
leave something out, or have gone on while no relay was there: an event is written with the revision that it
tells of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hopline.registry.v1.visibility_pb2 import Change
from hopline_directory import Directory, PluginRecord
from hopline_rpc.ids import IdMaker

from hopline_relay.journal import Journal
from hopline_relay.plugins.calling import PluginCalls
from hopline_relay.plugins.grants import Grants
from hopline_relay.store import plugin_events
from hopline_relay.store.book import Book


class Installations:
    """Listens to the registry."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        calls: PluginCalls,
        grants: Grants,
        ids: IdMaker,
        on_event: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._calls = calls
        self._grants = grants
        self._ids = ids
        self._on_event = on_event

    async def changed(self, changes: list[Change]) -> None:
        """Follow the registry's changes."""
        for change in changes:
            kind = change.WhichOneof("entity")
            if kind == "plugin":
                # Its endpoint or its secret may be another one.
                self._calls.forget(change.plugin.id)
                plugin = self._directory.plugin(change.workspace_id, change.plugin.id)
                if plugin is not None:
                    await self._tell([plugin])
            elif kind == "plugin_removed":
                await self._gone({(change.workspace_id, change.plugin_removed)})

    async def catch_up(self) -> None:
        """Do what was missed while no process of the relay was there."""
        there = [
            plugin
            for workspace in self._directory.workspaces()
            for plugin in self._directory.plugins(workspace.id)
        ]
        await self._tell(there)
        known = await self._journal.read(plugin_events.known)
        gone = {key for key in known if self._directory.plugin(*key) is None}
        if gone:
            await self._gone(gone)

    async def _tell(self, plugins: Iterable[PluginRecord]) -> None:
        fresh = [(each, self._ids.new_id("evt")) for each in plugins if each.is_confirmed]
        if not fresh:
            return
        told = await self._journal.write(lambda book: _note(book, fresh))
        if told:
            self._on_event()

    async def _gone(self, keys: set[plugin_events.Key]) -> None:
        for workspace_id, plugin_id in keys:
            self._grants.forget(workspace_id, plugin_id)
            self._calls.forget(plugin_id)
        await self._journal.write(lambda book: plugin_events.forget(book.connection, keys))


def _note(book: Book, plugins: Iterable[tuple[PluginRecord, str]]) -> bool:
    """Write an event for each plugin whose revision is another one; tells whether there is any."""
    told = False
    for plugin, event_id in plugins:
        key = (plugin.workspace_id, plugin.id)
        last = plugin_events.revision(book.connection, key)
        if last is not None and last.revision == plugin.revision:
            continue
        plugin_events.set_revision(book.connection, key, plugin.revision, plugin.version)
        if not plugin.endpoint:
            continue
        told = True
        if last is None:
            plugin_events.add(book, key, event_id, plugin_events.INSTALLED, {"version": plugin.version})
        else:
            body = {"version": plugin.version, "previous_version": last.version}
            plugin_events.add(book, key, event_id, plugin_events.UPDATED, body)
    return told
