"""TodoService and TimerService."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import timer_pb2, todo_pb2
from hopline.relay.v1.timer_pb2_grpc import TimerServiceServicer
from hopline.relay.v1.todo_pb2_grpc import TodoServiceServicer
from hopline_rpc.auth import current_principal

from hopline_relay.timers import Timers
from hopline_relay.todos import Todos


class TodoServicer(TodoServiceServicer):
    """What sessions have to do."""

    def __init__(self, todos: Todos) -> None:
        self._todos = todos

    async def AddTodos(self, request: todo_pb2.AddTodosRequest, context: Any) -> todo_pb2.AddTodosResponse:
        """Note some."""
        return await self._todos.add_todos(current_principal(), request)

    async def ListTodos(self, request: todo_pb2.ListTodosRequest, context: Any) -> todo_pb2.ListTodosResponse:
        """Return a page."""
        return await self._todos.list_todos(current_principal(), request)

    async def UpdateTodo(
        self, request: todo_pb2.UpdateTodoRequest, context: Any
    ) -> todo_pb2.UpdateTodoResponse:
        """Put it otherwise."""
        return await self._todos.update_todo(current_principal(), request)

    async def CompleteTodo(
        self, request: todo_pb2.CompleteTodoRequest, context: Any
    ) -> todo_pb2.CompleteTodoResponse:
        """It is done."""
        return await self._todos.complete_todo(current_principal(), request)

    async def RemoveTodo(
        self, request: todo_pb2.RemoveTodoRequest, context: Any
    ) -> todo_pb2.RemoveTodoResponse:
        """Forget it."""
        return await self._todos.remove_todo(current_principal(), request)

    async def SnoozeTodo(
        self, request: todo_pb2.SnoozeTodoRequest, context: Any
    ) -> todo_pb2.SnoozeTodoResponse:
        """Let it rest."""
        return await self._todos.snooze_todo(current_principal(), request)


class TimerServicer(TimerServiceServicer):
    """What sessions wake themselves with."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    async def SetTimer(self, request: timer_pb2.SetTimerRequest, context: Any) -> timer_pb2.SetTimerResponse:
        """Set one."""
        return await self._timers.set_timer(current_principal(), request)

    async def ListTimers(
        self, request: timer_pb2.ListTimersRequest, context: Any
    ) -> timer_pb2.ListTimersResponse:
        """Return a page."""
        return await self._timers.list_timers(current_principal(), request)

    async def CancelTimer(
        self, request: timer_pb2.CancelTimerRequest, context: Any
    ) -> timer_pb2.CancelTimerResponse:
        """Call one off."""
        return await self._timers.cancel_timer(current_principal(), request)
