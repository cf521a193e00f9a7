"""What the audit log says of hooks beside what messages say along: other items, and hooks left alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hopline_directory import Directory, PluginRecord
from hopline_rpc.ids import IdMaker
from hopline_store import after_commit

from hopline_relay.domain.values import MESH, Actor
from hopline_relay.hooks.breaker import Change
from hopline_relay.hooks.items import Item, Note
from hopline_relay.hooks.runner import Hooks
from hopline_relay.journal import Journal
from hopline_relay.owner_notices import Addresses, Notice
from hopline_relay.store import hooking, outbox
from hopline_relay.store.book import Book
from hopline_relay.store.sql import Record


class Notes:
    """Writes them with the next commit; nobody waits for it."""

    def __init__(self, journal: Journal, directory: Directory, ids: IdMaker) -> None:
        self._journal = journal
        self._directory = directory
        self._ids = ids
        # Called when an owner is to be told.
        self.on_notice: Callable[[], None] = lambda: None

    def along(self, item: Item, notes: Sequence[Note], *, agent_id: str = "", turn_id: str = "") -> None:
        """Say what hooks did to an item."""
        if notes:
            self._journal.along(lambda book: write(book, item, notes, agent_id=agent_id, turn_id=turn_id))

    def changed(self, plugin: PluginRecord, kind: str, change: Change, why: str) -> None:
        """Say that a hook is left alone, which whoever installed it is told, or works again."""
        owner = self._directory.user(plugin.workspace_id, plugin.installed_by)
        told = change == "suspended" and owner is not None and owner.has_webhook
        post = (plugin.workspace_id, self._ids.new_id("pst"))

        def op(book: Book) -> None:
            details = {"hook": kind, **({"reason": why} if why else {})}
            actor = Actor("plugin", plugin.id, plugin.name)
            book.note(plugin.workspace_id, f"hook.{change}", actor, details=details)
            if told:
                subject = f"{plugin.id}/{kind}"
                outbox.add(book.connection, post, outbox.HOOK, subject, plugin.installed_by, book.now)
                after_commit(book.connection, self.on_notice)

        self._journal.along(op)


class HookNotices(Notice):
    """A hook that is left alone because it keeps failing; told while that is so."""

    def __init__(self, journal: Journal, addresses: Addresses, hooks: Hooks) -> None:
        super().__init__(journal, addresses)
        self._hooks = hooks

    async def body(self, row: Record) -> dict[str, Any] | None:
        """Return which hook it is and why, unless it works again, or its plugin is gone."""
        plugin_id, _, kind = row.subject_id.partition("/")
        there = {each.id: each for each in self._hooks.plugins(row.workspace_id)}
        plugin = there.get(plugin_id)
        problem = self._hooks.left_alone(plugin_id, kind)
        if plugin is None or plugin.installed_by != row.recipient_id or not problem:
            return None
        return {
            "event": "hook.suspended",
            "workspace": self._addresses.workspace(row),
            "plugin": {"id": plugin.id, "key": plugin.key, "name": plugin.name},
            "hook": kind,
            "reason": problem,
        }

    def note(self, book: Book, row: Record, outcome: str, details: dict[str, str]) -> None:
        """Say it with the plugin."""
        plugin_id, _, kind = row.subject_id.partition("/")
        about = {"hook": kind, "plugin_id": plugin_id, "owner_id": row.recipient_id, **details}
        book.note(row.workspace_id, f"hook.{outcome}", MESH, details=about)


def write(book: Book, item: Item, notes: Sequence[Note], *, agent_id: str = "", turn_id: str = "") -> None:
    """Say what hooks did to an item; never its text."""
    for note in notes:
        book.note(
            item.workspace_id,
            f"hook.{note.outcome}",
            hooking.actor_of(note),
            agent_id=agent_id,
            turn_id=turn_id,
            session_id=item.origin.session_id,
            details={"hook": note.kind, **({"reason": note.reason} if note.reason else {})},
            trace_id=item.origin.traceparent[3:35],
        )
