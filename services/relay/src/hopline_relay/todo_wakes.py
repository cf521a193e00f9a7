"""Open todos keep an agent working: who stops with some open is woken with the list, while it is of use.

A look decides from the record alone (`decide`), and what it decides is written where nothing has changed
since (`store/todo_looks.py`); so two processes that look, or one that dies in between, wake a session once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from hopline_directory import Directory
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import IdMaker
from sqlalchemy import Connection

from hopline_relay.domain.left import (
    CANCELED,
    MAX_WAKES,
    NO_PROGRESS,
    ROOT_EXHAUSTED,
    TODO,
    todo_note,
    todo_payload,
)
from hopline_relay.domain.values import MESH
from hopline_relay.journal import Journal
from hopline_relay.looking import Looking
from hopline_relay.mesh_wakes import PASSING, MeshWakes, RacedError, Wake
from hopline_relay.signals import Signals
from hopline_relay.store import outbox, roots, todo_looks, todos
from hopline_relay.store.book import Book
from hopline_relay.store.outgoing import Outgoing
from hopline_relay.store.sql import Record
from hopline_relay.store.todo_looks import Key, Look

log = logging.getLogger("hopline.relay.todos")

_MOST: Final = 100
# How soon a session is looked at again in which something waits, and one that cannot be woken just now.
WAITS_SECONDS: Final = 30.0
PUT_OFF_SECONDS: Final = 60.0
# What is due later than that was put off by a clock that was ahead.
_AHEAD_SECONDS: Final = 2 * PUT_OFF_SECONDS


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done with the todos of a session.

    `wake` it, by now `wakes` times in a row; let the list `sleep` for a reason; `drop` it with its session;
    look again `later`, or only when something has ended there (`leave`).
    """

    what: Literal["wake", "sleep", "drop", "later", "leave"]
    wakes: int = 0
    reason: str = ""


def decide(look: Look, now: float) -> Decision:
    """Say what is to be done, by the record alone."""
    listed = look.list
    if look.session.closed:
        return Decision("drop")
    if listed is None or look.session.running_turn_id:
        return Decision("leave")
    if look.waits:
        return Decision("later")
    if not [todo for todo in look.open if not todos.rests(todo, now)]:
        return Decision("leave")
    ended = look.ended
    fresh = ended is not None and ended.id != listed.seen_turn_id
    if _was_canceled(ended if fresh else look.woken):
        return Decision("sleep", reason=CANCELED)
    # Something else has run here since: that is as good as a new todo.
    if listed.reason and not fresh:
        return Decision("leave")
    wakes = 0 if fresh else listed.wakes
    if wakes >= MAX_WAKES:
        return Decision("sleep", reason=NO_PROGRESS)
    return Decision("wake", wakes=wakes + 1)


def _was_canceled(turn: Record | None) -> bool:
    """Tell whether somebody has ended a turn who wants nothing more of it; a pause only interrupts."""
    return turn is not None and turn.state == "canceled" and turn.error_code != "agent_paused"


class TodoWakes:
    """Looks at the todos of sessions that are due."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        wakes: MeshWakes,
        signals: Signals,
        ids: IdMaker,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._wakes = wakes
        self._signals = signals
        self._ids = ids
        self._clock = clock
        # Sessions that have, or had, open todos: only what ends in these is worth a look.
        self._known: set[Key] = set()
        signals.on_todos_changed(self._known.update)
        signals.on_freed = self._freed
        # Agents whose sessions were put off because they are paused.
        self._paused: set[Key] = set()
        # Called when an owner is to be told that a list sleeps.
        self.on_notice: Callable[[], None] = lambda: None
        self.looking = Looking(
            "todos", clock, self.look, lambda: journal.read(todo_looks.next_due), shared=journal.shared
        )

    async def catch_up(self) -> None:
        """Know which sessions have open todos."""
        self._known.update(await self._journal.read(todo_looks.sessions_with_any))

    def _freed(self, sessions: Iterable[Key]) -> None:
        if self._known and not self._known.isdisjoint(sessions):
            self.looking.wake()

    async def agent_active(self, workspace_id: str, agent_id: str) -> None:
        """Look now at what was put off while an agent was paused."""
        if (workspace_id, agent_id) in self._paused:
            self._paused.discard((workspace_id, agent_id))
            await self._journal.write(lambda book: todo_looks.make_due_of_agent(book, workspace_id, agent_id))
            self.looking.wake()

    async def agent_deleted(self, workspace_id: str, agent_id: str) -> None:
        """Drop what an agent has noted."""
        self._paused.discard((workspace_id, agent_id))
        lists = await self._journal.read(
            partial(todos.lists_of_agent, workspace_id=workspace_id, agent_id=agent_id)
        )
        for row in lists:
            await self._drop((workspace_id, row.session_id))

    async def look(self) -> bool:
        """Treat whatever is due; False: something has to be tried again soon."""
        await self._rise()
        done, last = True, None
        while True:
            now = self._clock.now()
            looks = await self._journal.read(
                partial(todo_looks.due, now=now, ahead=now + _AHEAD_SECONDS, most=_MOST, after=last)
            )
            done = all(await asyncio.gather(*(self._try(each) for each in looks))) and done
            if len(looks) < _MOST:
                return done
            last = looks[-1].session

    async def _rise(self) -> None:
        """End the rests that are over."""
        while True:
            now = self._clock.now()
            ahead = now + _AHEAD_SECONDS
            rows = await self._journal.read(partial(todo_looks.rested, now=now, ahead=ahead, most=_MOST))
            if not rows:
                return
            risen = await self._journal.write(lambda book, rows=rows: _rise_all(book, rows))  # type: ignore[misc] # mypy knows no default of a lambda
            self._signals.todos_changed(risen)
            if len(rows) < _MOST:
                return

    async def _try(self, look: Look) -> bool:
        """Treat one; what goes wrong with it is its own."""
        try:
            await self._treat(look)
        except RacedError:
            return False  # something has happened there meanwhile: it is looked at anew
        except HoplineError as error:
            log.warning("todos of %s are looked at later: %s", look.key[1], error.message)
            return False
        except Exception:
            log.exception("todos of %s cannot be looked at just now", look.key[1])
            return False
        return True

    async def _treat(self, look: Look) -> None:
        decision = decide(look, self._clock.now())
        if look.list is None:
            self._known.discard(look.key)
        if decision.what == "wake":
            await self._wake(look, decision.wakes)
        elif decision.what == "sleep":
            await self._sleep(look, decision.reason)
        elif decision.what == "drop":
            await self._drop(look.key)
        else:
            seconds = WAITS_SECONDS if decision.what == "later" else None
            await self._move(look, seconds)

    async def _move(self, look: Look, seconds: float | None) -> None:
        def op(book: Book) -> None:
            todo_looks.move(book, look, None if seconds is None else book.now + seconds)

        await self._journal.write(op)

    async def _wake(self, look: Look, wakes: int) -> None:
        awake = [todo for todo in look.open if not todos.rests(todo, self._clock.now())]
        origin = await self._journal.read(partial(_origin, awake=awake))
        wake = Wake(
            workspace_id=look.key[0],
            agent_id=look.session.agent_id,
            session_id=look.key[1],
            kind=TODO,
            subject="Open todos",
            text=todo_note(awake, wakes - 1),
            payload=todo_payload(awake),
            depth=max(todo.depth for todo in awake),
            root_id=origin.root_id,
            cause_turn_id=origin.turn_id,
            traceparent=origin.traceparent,
            hook_generation=max(todo.hook_generation for todo in awake),
            take=partial(_take, look=look, wakes=wakes, count=len(awake)),
        )
        try:
            await self._wakes.wake(wake)
        except HoplineError as error:
            if error.reason == "root_exhausted":
                await self._sleep(look, ROOT_EXHAUSTED)
            elif error.reason in PASSING:
                await self._move(look, PUT_OFF_SECONDS)
                if error.reason == "agent_paused":
                    self._paused.add((look.key[0], look.session.agent_id))
            else:  # the session is closed, or the agent gone
                await self._drop(look.key)

    async def _sleep(self, look: Look, reason: str) -> None:
        notice_id = self._ids.new_id("ntc")

        def op(book: Book) -> bool:
            book.lock(look.key[0])
            if not todo_looks.move(book, look, None):
                raise RacedError
            listed = todos.list_of(book.connection, *look.key)
            todos.sleep(book, look.key, reason, look.session.todos_turn_id)
            if listed is None or listed.reason:
                return False
            self._note_asleep(book, look, reason, notice_id)
            return True

        if await self._journal.write(op):
            self._signals.todos_changed({look.key})
            if reason == NO_PROGRESS:
                self.on_notice()

    def _note_asleep(self, book: Book, look: Look, reason: str, notice_id: str) -> None:
        workspace_id, agent_id = look.key[0], look.session.agent_id
        agent = self._directory.agent(workspace_id, agent_id)
        owner = self._directory.user(workspace_id, agent.owner_id) if agent is not None else None
        details: dict[str, Any] = {
            "reason": reason,
            "open": len(look.open),
            "owner_id": owner.id if owner is not None else "",
        }
        book.note(
            workspace_id, "todos.asleep", MESH, agent_id=agent_id, session_id=look.key[1], details=details
        )
        if reason == NO_PROGRESS and owner is not None and owner.has_webhook:
            outbox.add(
                book.connection,
                (workspace_id, notice_id),
                outbox.TODOS_ASLEEP,
                look.key[1],
                owner.id,
                book.now,
            )

    async def _drop(self, session: Key) -> None:
        await self._journal.write(lambda book: todos.drop_of_session(book, session))
        self._signals.todos_changed({session})


def _rise_all(book: Book, rows: Sequence[Record]) -> set[Key]:
    """End rests that are over, and measure anew what a clock has measured that was ahead."""
    risen = set()
    for row in rows:
        if row.snoozed_until > book.now:
            todo_looks.rest_anew(book, row, book.now + max(0.0, row.snoozed_until - row.snoozed_at))
        elif todo_looks.rise(book, row):
            risen.add((row.workspace_id, row.session_id))
    return risen


def _origin(connection: Connection, awake: Sequence[Record]) -> Record:
    """Return the todo whose root the wake runs under: of several the most used, of those the newest."""
    workspace_id = awake[0].workspace_id
    used = {
        root_id: roots.count(connection, workspace_id, root_id)
        for root_id in {todo.root_id for todo in awake}
    }
    return max(awake, key=lambda todo: (used[todo.root_id], todo.depth, todo.ordinal))


def _take(book: Book, message: Outgoing, *, look: Look, wakes: int, count: int) -> None:
    todo_looks.take(book, look, wakes, message)
    (copy,) = message.copies
    book.note(
        look.key[0],
        "todos.woken",
        MESH,
        agent_id=look.session.agent_id,
        message_id=message.id,
        thread_id=message.thread_id,
        turn_id=copy.turn_id,
        session_id=look.key[1],
        details={"open": count, "wakes": wakes, "depth": message.depth, "root_id": message.root_id},
        trace_id=message.trace_id,
    )
