"""What plugins leave to sessions that they were handed: todos, and timers that wake them.

As the session's agent could itself, by the same features; what brings it back runs at the depth, root and
hook generation at which the plugin acts.
"""

from __future__ import annotations

from typing import Final

from hopline.relay.v1 import plugin_session_pb2 as pb
from hopline.relay.v1 import timer_pb2, todo_pb2
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal

from hopline_relay.plugins.acting import Acting, own_words
from hopline_relay.timers import Timers
from hopline_relay.todos import Todos

TODO_READ: Final = "todo.read"
TODO_WRITE: Final = "todo.write"
NOTIFY_WRITE: Final = "notify.write"


class Leaving:
    """Serves the todos and timers of PluginSessionService."""

    def __init__(self, acting: Acting, todos: Todos, timers: Timers) -> None:
        self._acting = acting
        self._todos = todos
        self._timers = timers

    async def create(
        self, principal: Principal, request: pb.CreateSessionTodosRequest
    ) -> pb.CreateSessionTodosResponse:
        """Note what is to be done."""
        act = await self._acting.allowed(principal, request.session_id, TODO_WRITE)
        asked = todo_pb2.AddTodosRequest(
            texts=request.texts,
            caller_session_id=request.session_id,
            request_id=act.request_id(request.request_id),
        )
        try:
            made = await self._todos.add_todos(act.as_agent, asked, by=act.by)
        except HoplineError as error:
            raise own_words(error, act, request.request_id) from None
        return pb.CreateSessionTodosResponse(todos=[_shown(each) for each in made.todos])

    async def list(
        self, principal: Principal, request: pb.ListSessionTodosRequest
    ) -> pb.ListSessionTodosResponse:
        """Return the open todos in order."""
        act = await self._acting.allowed(principal, request.session_id, TODO_READ)
        asked = todo_pb2.ListTodosRequest(
            caller_session_id=request.session_id,
            page_size=request.page_size,
            page_token=request.page_token,
        )
        found = await self._todos.list_todos(act.as_agent, asked)
        return pb.ListSessionTodosResponse(
            todos=[_shown(each) for each in found.todos], next_page_token=found.next_page_token
        )

    async def update(
        self, principal: Principal, request: pb.UpdateSessionTodoRequest
    ) -> pb.UpdateSessionTodoResponse:
        """Put other words in the place of one."""
        act = await self._acting.allowed(principal, request.session_id, TODO_WRITE)
        asked = todo_pb2.UpdateTodoRequest(
            todo_id=request.todo_id, text=request.text, caller_session_id=request.session_id
        )
        changed = await self._todos.update_todo(act.as_agent, asked)
        return pb.UpdateSessionTodoResponse(todo=_shown(changed.todo))

    async def complete(
        self, principal: Principal, request: pb.CompleteSessionTodoRequest
    ) -> pb.CompleteSessionTodoResponse:
        """Say that one is done."""
        act = await self._acting.allowed(principal, request.session_id, TODO_WRITE)
        asked = todo_pb2.CompleteTodoRequest(todo_id=request.todo_id, caller_session_id=request.session_id)
        await self._todos.complete_todo(act.as_agent, asked)
        return pb.CompleteSessionTodoResponse()

    async def delete(
        self, principal: Principal, request: pb.DeleteSessionTodoRequest
    ) -> pb.DeleteSessionTodoResponse:
        """Forget one."""
        act = await self._acting.allowed(principal, request.session_id, TODO_WRITE)
        asked = todo_pb2.RemoveTodoRequest(todo_id=request.todo_id, caller_session_id=request.session_id)
        await self._todos.remove_todo(act.as_agent, asked)
        return pb.DeleteSessionTodoResponse()

    async def notify(
        self, principal: Principal, request: pb.ScheduleNotifyRequest
    ) -> pb.ScheduleNotifyResponse:
        """Have the session woken later."""
        act = await self._acting.begin(principal, request.session_id, NOTIFY_WRITE)
        if act.withheld is not None:
            return pb.ScheduleNotifyResponse(is_canceled=True, cancel_reason=act.withheld.message)
        asked = timer_pb2.SetTimerRequest(
            message=request.message,
            delay_seconds=request.delay_seconds,
            caller_session_id=request.session_id,
            request_id=act.request_id(request.request_id),
        )
        try:
            made = await self._timers.set_timer(act.as_agent, asked, by=act.by)
        except HoplineError as error:
            raise own_words(error, act, request.request_id) from None
        response = pb.ScheduleNotifyResponse(
            notify_id=made.timer.id, is_canceled=made.is_canceled, cancel_reason=made.cancel_reason
        )
        if made.HasField("timer"):
            response.fire_at.CopyFrom(made.timer.due_at)
        return response


def _shown(todo: todo_pb2.Todo) -> pb.SessionTodo:
    return pb.SessionTodo(id=todo.id, text=todo.text)
