"""What the audit log says of hooks beside what messages say along: other items, and hooks left alone."""

from __future__ import annotations

from collections.abc import Sequence

from hopline_directory import PluginRecord

from hopline_relay.domain.values import Actor
from hopline_relay.hooks.breaker import Change
from hopline_relay.hooks.items import Item, Note
from hopline_relay.journal import Journal
from hopline_relay.store import hooking
from hopline_relay.store.book import Book


class Notes:
    """Writes them with the next commit; nobody waits for it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def along(self, item: Item, notes: Sequence[Note], *, agent_id: str = "", turn_id: str = "") -> None:
        """Say what hooks did to an item."""
        if notes:
            self._journal.along(lambda book: write(book, item, notes, agent_id=agent_id, turn_id=turn_id))

    def changed(self, plugin: PluginRecord, kind: str, change: Change, why: str) -> None:
        """Say that a hook is left alone for a while, or works again."""

        def op(book: Book) -> None:
            details = {"hook": kind, **({"reason": why} if why else {})}
            actor = Actor("plugin", plugin.id, plugin.name)
            book.note(plugin.workspace_id, f"hook.{change}", actor, details=details)

        self._journal.along(op)


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
