"""What tests of todos and timers share: an agent at work that leaves something to itself."""

from __future__ import annotations

import asyncio
from typing import Any

from hopline.relay.v1 import session_pb2, timer_pb2, todo_pb2
from hopline_relay.turns import ClaimedTurn

from tests.support.relay_mesh import Caller, RelayMesh, Worker


class Desk:
    """An agent, its worker, and the turn that it works on."""

    def __init__(self, mesh: RelayMesh, agent: Caller, worker: Worker, turn: ClaimedTurn) -> None:
        self.mesh = mesh
        self.agent = agent
        self.worker = worker
        self.turn = turn

    @property
    def session(self) -> str:
        """The session of its turn."""
        return self.turn.session_id

    async def note(self, *texts: str, turn: ClaimedTurn | None = None, **more: Any) -> list[todo_pb2.Todo]:
        """Note todos from within a turn."""
        request = todo_pb2.AddTodosRequest(texts=texts, **more)
        answer = await self.mesh.relay.handlers.todos.add_todos(
            await self.worker.principal(), request, turn_id=(turn or self.turn).turn_id
        )
        return list(answer.todos)

    async def complete(self, todo: todo_pb2.Todo) -> todo_pb2.CompleteTodoResponse:
        """Say that one is done; from the session, outside any turn."""
        request = todo_pb2.CompleteTodoRequest(todo_id=todo.id, caller_session_id=self.session)
        answer: todo_pb2.CompleteTodoResponse = await self.agent.todos.CompleteTodo(request)
        return answer

    async def snooze(self, todo: todo_pb2.Todo, seconds: int) -> todo_pb2.SnoozeTodoResponse:
        """Let one rest."""
        request = todo_pb2.SnoozeTodoRequest(todo_id=todo.id, seconds=seconds, caller_session_id=self.session)
        answer: todo_pb2.SnoozeTodoResponse = await self.agent.todos.SnoozeTodo(request)
        return answer

    async def listed(self, **more: Any) -> todo_pb2.ListTodosResponse:
        """Return the session's list, as a person sees it."""
        request = todo_pb2.ListTodosRequest(session_id=self.session, **more)
        answer: todo_pb2.ListTodosResponse = await self.mesh.admin.todos.ListTodos(request)
        return answer

    async def set(
        self, seconds: int, message: str = "look", turn: ClaimedTurn | None = None, **more: Any
    ) -> timer_pb2.Timer:
        """Set a timer from within a turn."""
        request = timer_pb2.SetTimerRequest(delay_seconds=seconds, message=message, **more)
        answer = await self.mesh.relay.handlers.timers.set_timer(
            await self.worker.principal(), request, turn_id=(turn or self.turn).turn_id
        )
        return answer.timer

    async def timers(self) -> list[timer_pb2.Timer]:
        """Return the session's timers, as a person sees them."""
        request = timer_pb2.ListTimersRequest(session_id=self.session)
        return list((await self.mesh.admin.timers.ListTimers(request)).timers)

    async def end(self, turn: ClaimedTurn | None = None, answer: str = "done", failure: str = "") -> None:
        """End a turn, and let what is due be looked at."""
        if failure:
            assert await self.worker.end(turn or self.turn, failure=failure)
        else:
            assert await self.worker.end(turn or self.turn, answer)
        await self.look()

    async def look(self) -> None:
        """Let what is due now be looked at."""
        await self.mesh.relay.left.todos.look()
        await self.mesh.relay.left.timers.look()

    async def woken(self) -> ClaimedTurn | None:
        """Return the turn that waits for the worker now; None where there is none.

        What was held for open todos comes back when they hold it no more, and is sent as it is.
        """
        while turns := await self.worker.claim(1):
            if turns[0].cause != "draft":
                return turns[0]
            await self.end(turns[0])
        return None

    async def again(self) -> ClaimedTurn:
        """Return the turn by which the mesh has woken the session."""
        turn = await self.woken()
        assert turn is not None, "the session was not woken"
        assert turn.sender_kind == "mesh"
        self.turn = turn
        return turn


async def at_work(mesh: RelayMesh, name: str = "ada", **fields: Any) -> Desk:
    """Return an agent that works on a person's prompt."""
    agent = await mesh.agent(name, **fields)
    worker = await mesh.worker(agent)
    request = session_pb2.PromptRequest(agent=agent.id, text="go", wait_seconds=0)
    await mesh.admin.sessions.Prompt(request)
    return Desk(mesh, agent, worker, await worker.next())


async def quiet() -> None:
    """Let the process come to rest."""
    for _ in range(50):
        await asyncio.sleep(0)
