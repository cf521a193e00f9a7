"""Tells plugins of what happens, at least once and in order: `hopline.hooks.v1.ExtensionService.HandleEvent`.

An event is a row, written in the transaction of what it tells of (`store/plugin_events.py`): a session
that a person, a schedule or a webhook opens, on whichever agent of the workspace, and the plugin's own
installation and updates (`installations.py`). It goes once the plugin has answered. One that does not is
asked again, more slowly for as long as it does not; what comes behind waits. After a day it is given up, and
the audit log says so.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from hopline.hooks.v1 import extension_pb2 as pb
from hopline.hooks.v1.extension_pb2_grpc import ExtensionServiceStub
from hopline_directory import Directory, PluginRecord
from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock, to_timestamp
from hopline_rpc.errors import HoplineError

from hopline_relay.domain.handing import Handed
from hopline_relay.domain.values import MESH
from hopline_relay.journal import Journal
from hopline_relay.plugins.calling import CallFailed, PluginCalls
from hopline_relay.plugins.grants import Grants
from hopline_relay.plugins.showing import shown_session
from hopline_relay.store import plugin_events
from hopline_relay.store.book import Book
from hopline_relay.store.sql import Record

log = logging.getLogger("hopline.relay.plugins")

_SECONDS: Final = 10.0
# How many plugins are told at once, and how many events may wait for one: older sessions make room.
_MOST: Final = 8
MAX_WAITING: Final = 1_000
# A plugin is often started only after it was installed: it is asked every few seconds at first.
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0
_EAGER_SECONDS: Final = 600.0
_LATER_PAUSE: Final = 60.0
GIVE_UP_SECONDS: Final = 86_400.0
_LOOK_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 5.0
# Where several relays tell: how often each looks for what another has left, and how long one has an event.
_SHARED_LOOK_SECONDS: Final = 1.0
_CLAIM_SECONDS: Final = 30.0
# Whatever is said again would be answered the same.
_TAKEN: Final = frozenset({"unimplemented", "invalid"})


class PluginEvents:
    """Tells what is due."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        calls: PluginCalls,
        grants: Grants,
        clock: Clock,
        chance: Callable[[], float],
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._calls = calls
        self._grants = grants
        self._clock = clock
        self._chance = chance
        self._news = asyncio.Event()
        self._telling: dict[plugin_events.Key, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to tell."""
        self._task = detach(self._run(), name="plugin events")

    async def close(self) -> None:
        """Stop; what was not taken is told by the next process."""
        running = {task for task in (self._task, *self._telling.values()) if task is not None}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def wake(self) -> None:
        """Say that there is something to tell."""
        self._news.set()

    # --- what is due ------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._news.clear()
            seconds = _RETRY_SECONDS
            try:
                seconds = await self._look()
            except HoplineError as error:
                log.warning("what plugins are to be told waits: %s", error.message)
            except Exception:
                log.exception("plugins cannot be told anything just now")
            timer = self._clock.call_later(seconds, self._news.set)
            try:
                await self._news.wait()
            finally:
                timer.cancel()

    async def _look(self) -> float:
        """Begin to tell what is due; returns how long there is nothing further to do."""
        now = self._clock.now()
        soonest = _SHARED_LOOK_SECONDS if self._journal.shared else _LOOK_SECONDS
        for row in await self._journal.read(plugin_events.firsts):
            key = (row.workspace_id, row.plugin_id)
            if key in self._telling:
                continue
            # A clock that was set back does not make it wait for longer than it was to.
            if row.due_at > now and row.due_at - now < _LATER_PAUSE * 2:
                soonest = min(soonest, row.due_at - now)
            elif len(self._telling) < _MOST:
                task = self._telling[key] = detach(self._tell(row), name="tell a plugin")
                task.add_done_callback(partial(self._told, key))
        return soonest

    def _told(self, key: plugin_events.Key, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("an event was not told: %r", error)
        self._telling.pop(key, None)
        self._news.set()

    # --- telling ----------------------------------------------------------------------------------

    async def _tell(self, row: Record) -> None:
        if self._journal.shared and not await self._claim(row):
            return  # another relay tells it
        plugin = self._directory.plugin(row.workspace_id, row.plugin_id)
        if plugin is None or not plugin.is_confirmed or not plugin.endpoint:
            await self._journal.write(lambda book: plugin_events.remove(book.connection, row))
            return
        try:
            await self._calls.call(
                plugin,
                ExtensionServiceStub,
                "HandleEvent",
                self._request(plugin, row),
                seconds=_SECONDS,
                lane="events",
            )
        except CallFailed as failed:
            if failed.kind not in _TAKEN:
                await self._put_off(plugin, row, failed)
                return
            log.info("%s takes no %s: %s", plugin.key, row.kind, failed.words)
        except Exception:
            log.exception("an event cannot be told")
            await self._put_off(plugin, row, CallFailed("failed", "the mesh could not tell it", sent=False))
            return
        await self._journal.write(lambda book: plugin_events.remove(book.connection, row))

    async def _claim(self, row: Record) -> bool:
        return await self._journal.write(
            lambda book: plugin_events.claim(book.connection, row, book.now + _CLAIM_SECONDS),
            within=[row.workspace_id],
        )

    async def _put_off(self, plugin: PluginRecord, row: Record, failed: CallFailed) -> None:
        age = self._clock.now() - row.created_at
        if age >= GIVE_UP_SECONDS:
            await self._journal.write(lambda book: self._give_up(book, plugin, row, failed))
            return
        longest = _LONGEST_PAUSE if age < _EAGER_SECONDS else _LATER_PAUSE
        pause = min(longest, _FIRST_PAUSE * 2.0 ** min(row.attempts, 10)) * (0.5 + self._chance() / 2)

        def op(book: Book) -> None:
            plugin_events.put_off(book.connection, row, book.now + pause, failed.words)
            if count := plugin_events.drop_oldest(book.connection, row, MAX_WAITING):
                about = {"plugin_id": plugin.id, "plugin": plugin.key, "count": count}
                book.note(row.workspace_id, "plugin.events_dropped", MESH, details=about)

        await self._journal.write(op)

    @staticmethod
    def _give_up(book: Book, plugin: PluginRecord, row: Record, failed: CallFailed) -> None:
        if plugin_events.remove(book.connection, row):
            details = {
                "plugin_id": plugin.id,
                "plugin": plugin.key,
                "event": row.kind,
                "event_id": row.id,
                "attempts": row.attempts + 1,
                "reason": failed.words,
            }
            book.note(row.workspace_id, "plugin.event_given_up", MESH, details=details)

    def _request(self, plugin: PluginRecord, row: Record) -> pb.HandleEventRequest:
        """Return what a plugin is told; it may act in a session that it is told of."""
        body: dict[str, Any] = json.loads(row.body)
        request = pb.HandleEventRequest(
            event_id=row.id,
            workspace_id=row.workspace_id,
            plugin_id=row.plugin_id,
            at=to_timestamp(row.created_at),
            attempt=row.attempts + 1,
        )
        if row.kind == plugin_events.INSTALLED:
            request.plugin_installed.version = body["version"]
        elif row.kind == plugin_events.UPDATED:
            request.plugin_updated.version = body["version"]
            request.plugin_updated.previous_version = body["previous_version"]
        else:
            handed = Handed(body["session_id"], body["depth"], body["root_id"], generation=0)
            shown = self._grants.hand(plugin, handed)
            session = shown_session(
                self._directory, plugin, handed, shown, agent_id=body["agent_id"], channel=body["channel"]
            )
            request.session_started.SetInParent()
            if session is not None:
                request.session_started.session.CopyFrom(session)
        return request
