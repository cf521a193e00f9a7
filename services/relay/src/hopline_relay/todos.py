"""Sessions note what they have to do, and say what has become of it; people look at it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hopline.relay.v1 import todo_pb2 as pb
from hopline_directory import Directory
from hopline_rpc.clock import Clock, to_timestamp
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import IdMaker
from hopline_rpc.paging import Pager, fit, page_size
from hopline_rpc.principals import Principal
from sqlalchemy import Connection

from hopline_relay.callers import actor_of
from hopline_relay.domain.handing import By
from hopline_relay.domain.left import MAX_TODOS
from hopline_relay.hooks.items import TODO
from hopline_relay.hooks.left import LeftHooks
from hopline_relay.journal import Journal
from hopline_relay.left import Key, Seat, Seats
from hopline_relay.signals import Signals
from hopline_relay.store import requests, todos
from hopline_relay.store.book import Book
from hopline_relay.store.sql import Record
from hopline_relay.view import Views

_STATES: Final = {
    "open": pb.TODO_STATE_OPEN,
    "done": pb.TODO_STATE_DONE,
    "dropped": pb.TODO_STATE_DROPPED,
}


@dataclass(slots=True)
class _Noted:
    """A todo that is being added. `kept`: why hooks let it not be, empty where nothing of it was left."""

    id: str
    text: str
    kept: str | None = None


@dataclass(frozen=True, slots=True)
class _Changed:
    """What a change has left: the todo, and the list it is on."""

    todo: Record
    list: pb.TodoList


class Todos:
    """Serves TodoService; each method also takes the turn that a call over a tunnel comes from."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        seats: Seats,
        signals: Signals,
        views: Views,
        pager: Pager,
        ids: IdMaker,
        clock: Clock,
        hooks: LeftHooks,
        changed: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._seats = seats
        self._signals = signals
        self._views = views
        self._pager = pager
        self._ids = ids
        self._clock = clock
        self._hooks = hooks
        # Called when something may be due earlier than was known.
        self._changed = changed

    async def add_todos(
        self,
        principal: Principal,
        request: pb.AddTodosRequest,
        *,
        turn_id: str = "",
        by: By | None = None,
    ) -> pb.AddTodosResponse:
        """Note what is to be done; `by`: the plugin that does it in the agent's name."""
        seat = await self._seats.take(principal, request.caller_session_id, turn_id, by)
        noted = [_Noted(self._ids.new_id("tdo"), text) for text in request.texts]
        known = await self._shape(seat, request, noted)
        rows, listed = await self._journal.write(lambda book: self._add(book, seat, request, noted))
        self._seats.remember(seat)
        self._tell(principal, listed)
        outcomes = read_outcomes(known.kept if known is not None else written(noted))
        return pb.AddTodosResponse(todos=[self._shown(row) for row in rows], list=listed, outcomes=outcomes)

    async def _shape(self, seat: Seat, request: pb.AddTodosRequest, noted: Sequence[_Noted]) -> Record | None:
        """Have hooks asked about todos; returns what is remembered of a request that was made before."""
        if not self._hooks.concern(seat.principal.workspace_id, TODO):
            return None
        now, request_id = self._clock.now(), request.request_id
        known = await self._journal.read(
            lambda connection: requests.find(connection, seat.principal, request_id, now)
        )
        if known is None:
            place = self._hooks.left_from(seat)
            shaped = await self._hooks.todos(place, [each.text for each in noted])
            for each, found in zip(noted, shaped, strict=True):
                each.text, each.kept = found.words.text, None if found.goes_on else found.canceled
        return known

    def _add(
        self,
        book: Book,
        seat: Seat,
        request: pb.AddTodosRequest,
        noted: Sequence[_Noted],
    ) -> tuple[Sequence[Record], pb.TodoList]:
        going = [(each.id, each.text) for each in noted if each.kept is None]
        principal, first = seat.principal, going[0][0] if going else noted[0].id
        book.lock(principal.workspace_id)
        session = seat.session(book)
        self._seats.check_open(book, session)
        if request.request_id:
            digest = _digest(session, request.texts)
            kept = written(noted)
            earlier = requests.result_of(book, principal, request.request_id.lower(), digest, first, kept)
            if earlier:
                rows = todos.of_batch(book.connection, *session, earlier)
                return rows, self._list(book.connection, principal, session)
        if not going:
            return [], self._list(book.connection, principal, session)
        used = len(todos.open_of(book.connection, *session))
        if used + len(going) > MAX_TODOS:
            raise _full(used, len(going))
        origin = self._seats.origin(book, seat, first)
        todos.add(book, session, principal.id, going, origin)
        rows = todos.of_batch(book.connection, *session, first)
        details = {
            "todo_ids": [row.id for row in rows],
            "depth": origin.depth,
            "root_id": origin.root_id,
            **seat.details,
        }
        todos.note(book, rows[0], "todo.added", actor_of(self._directory, principal), details)
        return rows, self._list(book.connection, principal, session)

    async def list_todos(
        self, principal: Principal, request: pb.ListTodosRequest, *, turn_id: str = ""
    ) -> pb.ListTodosResponse:
        """Return the todos of a session in order."""
        size = page_size(request.page_size)
        seen = self._seats.seen
        session = await seen(principal, request.session_id, request.caller_session_id, turn_id)
        if session is None:
            return pb.ListTodosResponse(list=pb.TodoList())
        key: Key = (session.workspace_id, session.id)
        query = ("todos", principal.workspace_id, principal.id, session.id, str(request.all))
        position = self._pager.position(query, request.page_token)
        after = int(position[0]) if position and isinstance(position[0], int) else 0

        def read(connection: Connection) -> tuple[Sequence[Record], pb.TodoList]:
            rows = todos.page(connection, *key, after, size + 1, ended=request.all)
            return rows, self._list(connection, principal, key)

        rows, listed = await self._journal.read(read)
        page = fit(self._shown(row) for row in rows[:size])
        response = pb.ListTodosResponse(todos=page, list=listed)
        if len(rows) > len(page):
            response.next_page_token = self._pager.token(query, [rows[len(page) - 1].ordinal])
        return response

    async def update_todo(
        self, principal: Principal, request: pb.UpdateTodoRequest, *, turn_id: str = ""
    ) -> pb.UpdateTodoResponse:
        """Put other words in its place."""

        def change(book: Book, todo: Record) -> None:
            if todo.body != request.text:
                todos.set_text(book, todo, request.text)
                todos.note(book, todo, "todo.updated", actor_of(self._directory, principal))

        changed = await self._change(principal, request.todo_id, request.caller_session_id, turn_id, change)
        return pb.UpdateTodoResponse(todo=self._shown(changed.todo))

    async def complete_todo(
        self, principal: Principal, request: pb.CompleteTodoRequest, *, turn_id: str = ""
    ) -> pb.CompleteTodoResponse:
        """Say that it is done."""

        def change(book: Book, todo: Record) -> None:
            if todos.end(book, todo, "done"):
                todos.stir(book, (todo.workspace_id, todo.session_id))
                todos.note(book, todo, "todo.completed", actor_of(self._directory, principal))

        changed = await self._change(principal, request.todo_id, request.caller_session_id, turn_id, change)
        return pb.CompleteTodoResponse(todo=self._shown(changed.todo), list=changed.list)

    async def snooze_todo(
        self, principal: Principal, request: pb.SnoozeTodoRequest, *, turn_id: str = ""
    ) -> pb.SnoozeTodoResponse:
        """Let it rest."""

        def change(book: Book, todo: Record) -> None:
            until = book.now + request.seconds if request.seconds else None
            if not todos.snooze(book, todo, until):
                raise HoplineError(
                    "failed_precondition", f"the todo {todo.id!r} has ended; only an open one can rest"
                )
            details = {"seconds": request.seconds}
            todos.note(book, todo, "todo.snoozed", actor_of(self._directory, principal), details)

        changed = await self._change(principal, request.todo_id, request.caller_session_id, turn_id, change)
        self._changed()
        return pb.SnoozeTodoResponse(todo=self._shown(changed.todo), list=changed.list)

    async def remove_todo(
        self, principal: Principal, request: pb.RemoveTodoRequest, *, turn_id: str = ""
    ) -> pb.RemoveTodoResponse:
        """Forget it."""

        def change(book: Book, todo: Record) -> None:
            todos.remove(book, todo)
            todos.note(book, todo, "todo.removed", actor_of(self._directory, principal))

        if principal.kind != "user":
            changed = await self._change(
                principal, request.todo_id, request.caller_session_id, turn_id, change
            )
            return pb.RemoveTodoResponse(list=changed.list)
        key = (principal.workspace_id, request.todo_id)
        row = await self._seats.owned(
            principal,
            lambda connection: todos.find(connection, key),
            lambda: no_todo(request.todo_id),
            "the agent of this todo",
        )
        session = (row.workspace_id, row.session_id)
        changed = await self._journal.write(
            lambda book: self._apply(book, principal, request.todo_id, session, change)
        )
        self._tell(principal, changed.list)
        return pb.RemoveTodoResponse(list=changed.list)

    # --- one that is there ------------------------------------------------------------------------

    async def _change(
        self,
        principal: Principal,
        todo_id: str,
        session_id: str,
        turn_id: str,
        change: Callable[[Book, Record], None],
    ) -> _Changed:
        """Change a todo of the session that an agent calls from."""
        seat = await self._seats.take(principal, session_id, turn_id)
        changed = await self._journal.write(
            lambda book: self._apply(book, principal, todo_id, seat.session(book), change)
        )
        self._seats.remember(seat)
        self._tell(principal, changed.list)
        return changed

    def _apply(
        self,
        book: Book,
        principal: Principal,
        todo_id: str,
        session: Key,
        change: Callable[[Book, Record], None],
    ) -> _Changed:
        book.lock(principal.workspace_id)
        row = todos.find(book.connection, (principal.workspace_id, todo_id))
        if row is None or row.session_id != session[1]:
            raise no_todo(todo_id)
        change(book, row)
        todos.settle(book, session, row.agent_id)
        left = todos.find(book.connection, (principal.workspace_id, todo_id))
        return _Changed(left or row, self._list(book.connection, principal, session))

    def _tell(self, principal: Principal, listed: pb.TodoList) -> None:
        """Say that the todos of a session hold its agent otherwise than before."""
        if listed.session_id:
            self._signals.todos_changed({(principal.workspace_id, listed.session_id)})

    # --- as it is shown ---------------------------------------------------------------------------

    def _list(self, connection: Connection, principal: Principal, session: Key) -> pb.TodoList:
        row = todos.list_of(connection, *session)
        listed = pb.TodoList(session_id=session[1])
        if row is not None:
            listed.open = len(todos.open_of(connection, *session))
            listed.asleep, listed.reason, listed.wakes = bool(row.reason), row.reason, row.wakes
            listed.agent.CopyFrom(self._views.party(principal, "agent", row.agent_id, known=True))
        return listed

    def _shown(self, row: Record) -> pb.Todo:
        shown = pb.Todo(
            id=row.id,
            text=row.body,
            state=_STATES[row.state],
            session_id=row.session_id,
            turn_id=row.turn_id,
            depth=row.depth,
            root_id=row.root_id,
            created_at=to_timestamp(row.created_at),
        )
        if row.state == "open" and todos.rests(row, self._clock.now()):
            shown.state = pb.TODO_STATE_SNOOZED
            shown.snoozed_until.CopyFrom(to_timestamp(row.snoozed_until))
        if row.ended_at is not None:
            shown.ended_at.CopyFrom(to_timestamp(row.ended_at))
        return shown


def _full(used: int, wanted: int) -> HoplineError:
    return HoplineError(
        "limit_reached",
        f"this session has {used} open todos and {wanted} more would pass {MAX_TODOS}, which is all it may "
        "have; complete or remove some first",
        details={"limit": MAX_TODOS, "used": used},
    )


def written(noted: Sequence[_Noted]) -> str | None:
    """Return what the row of a request says of todos some of which hooks kept back; None without any."""
    if all(each.kept is None for each in noted):
        return None
    return json.dumps([[each.id if each.kept is None else "", each.kept or ""] for each in noted])


def read_outcomes(kept: str | None) -> list[pb.TodoOutcome]:
    """Return what became of each text, where that is not simply a todo."""
    return [
        pb.TodoOutcome(todo_id=todo_id, is_canceled=bool(reason), cancel_reason=reason)
        for todo_id, reason in (json.loads(kept) if kept else ())
    ]


def _digest(session: Key, texts: Sequence[str]) -> bytes:
    content = ("todos", session[1], str(len(texts)), *texts)
    return hashlib.blake2b("\0".join(content).encode(), digest_size=16).digest()


def no_todo(todo_id: str) -> HoplineError:
    """Return the one answer for a todo that does not exist or that the caller may not know of."""
    return HoplineError("not_found", f"there is no todo {todo_id!r}", details={"todo_id": todo_id})
