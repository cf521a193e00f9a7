"""What a session leaves to itself: todos, and timers that wake it again."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hopline.relay.v1 import timer_pb2, todo_pb2

from hopline_client.actions import Actions, make_request

TodoState = Literal["open", "snoozed", "done", "dropped"]
_PAGE = 200


@dataclass(frozen=True, slots=True)
class Todo:
    """What a session has to do. `snoozed_until` is in unix seconds; None while it does not rest."""

    id: str
    text: str
    state: TodoState
    session_id: str
    created_at: float
    snoozed_until: float | None


@dataclass(frozen=True, slots=True)
class Timer:
    """A note that wakes its session at `due_at`, in unix seconds."""

    id: str
    message: str
    session_id: str
    due_at: float
    # Of one that a hook has kept back: whether it has said no, and why.
    is_canceled: bool = False
    cancel_reason: str = ""


class LeftActions(Actions):
    """Todos and timers of the session that calls: that of the turn, else the agent's inbox session.

    While todos are open the session is woken again when its turn ends; a timer wakes it once.
    """

    async def add_todos(self, *texts: str, request_id: str = "") -> list[Todo]:
        """Note what is to be done, after what is there; at most 100 open ones a session.

        What hooks of the workspace keep back is not among what is returned.
        """
        request = make_request(
            todo_pb2.AddTodosRequest, texts=list(texts), request_id=request_id or str(uuid.uuid4())
        )
        return _todos((await self._call("add_todos", request)).todos)

    async def todos(self, *, ended: bool = False) -> list[Todo]:
        """Return the open todos in order; with `ended` also those that are done."""
        request = make_request(todo_pb2.ListTodosRequest, all=ended, page_size=_PAGE)
        found: list[Todo] = []
        while True:
            page = await self._call("list_todos", request)
            found.extend(_todos(page.todos))
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def update_todo(self, todo_id: str, text: str) -> Todo:
        """Put other words in its place."""
        request = make_request(todo_pb2.UpdateTodoRequest, todo_id=todo_id, text=text)
        return todo((await self._call("update_todo", request)).todo)

    async def complete_todo(self, todo_id: str) -> Todo:
        """Say that it is done."""
        request = make_request(todo_pb2.CompleteTodoRequest, todo_id=todo_id)
        return todo((await self._call("complete_todo", request)).todo)

    async def remove_todo(self, todo_id: str) -> None:
        """Forget it."""
        await self._call("remove_todo", make_request(todo_pb2.RemoveTodoRequest, todo_id=todo_id))

    async def snooze_todo(self, todo_id: str, seconds: int) -> Todo:
        """Let it rest; 0 ends its rest."""
        request = make_request(todo_pb2.SnoozeTodoRequest, todo_id=todo_id, seconds=seconds)
        return todo((await self._call("snooze_todo", request)).todo)

    async def notify_in(self, delay_seconds: int, message: str, *, request_id: str = "") -> Timer:
        """Wake this session once, after at least 10 seconds, with a note; at most 20 a session at a time.

        Where a hook of the workspace has kept it back its id is empty.
        """
        request = make_request(
            timer_pb2.SetTimerRequest,
            delay_seconds=delay_seconds,
            message=message,
            request_id=request_id or str(uuid.uuid4()),
        )
        made = await self._call("set_timer", request)
        if not made.HasField("timer"):
            return Timer("", message, "", 0.0, made.is_canceled, made.cancel_reason)
        return timer(made.timer)

    async def timers(self) -> list[Timer]:
        """Return the timers that are still to come, the next one first."""
        request = make_request(timer_pb2.ListTimersRequest, page_size=_PAGE)
        return [timer(each) for each in (await self._call("list_timers", request)).timers]

    async def cancel_timer(self, timer_id: str) -> None:
        """Call one off."""
        await self._call("cancel_timer", make_request(timer_pb2.CancelTimerRequest, timer_id=timer_id))


def todo(found: todo_pb2.Todo) -> Todo:
    """Read a todo."""
    state: Any = todo_pb2.TodoState.Name(found.state).removeprefix("TODO_STATE_").lower()
    until = found.snoozed_until.ToMicroseconds() / 1_000_000 if found.HasField("snoozed_until") else None
    created = found.created_at.ToMicroseconds() / 1_000_000
    return Todo(found.id, found.text, state, found.session_id, created, until)


def _todos(found: Sequence[todo_pb2.Todo]) -> list[Todo]:
    return [todo(each) for each in found]


def timer(found: timer_pb2.Timer) -> Timer:
    """Read a timer."""
    return Timer(found.id, found.message, found.session_id, found.due_at.ToMicroseconds() / 1_000_000)
