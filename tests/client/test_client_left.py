"""Todos and timers through the client library: over the tunnel from a turn, and over unary calls."""

from __future__ import annotations

import pytest
from hopline.relay.v1 import session_pb2
from hopline_client import HoplineError, Turn

from tests.support.relay_mesh import until
from tests.support.stage import Stage


async def test_a_worker_notes_todos_and_is_woken_until_all_are_done(stage: Stage) -> None:
    ada = await stage.mesh.agent("ada")
    left: list[list[str]] = []

    async def work(turn: Turn) -> str:
        if turn.cause == "prompt":
            read, write = await turn.mesh.add_todos("read", "write")
            await turn.mesh.update_todo(write.id, "write it down")
            assert (read.session_id, read.state) == (turn.session_id, "open")
            return "noted"
        assert turn.cause == "todo"
        assert turn.messages[0].note == "todo"
        todos = await turn.mesh.todos()
        left.append([todo.text for todo in todos])
        await turn.mesh.complete_todo(todos[0].id)
        return "one less"

    await stage.work(ada, work)
    request = session_pb2.PromptRequest(agent=ada.id, text="go", wait_seconds=0)
    await stage.mesh.admin.sessions.Prompt(request)
    await until(lambda: len(left) == 2, "both wakes")
    assert left == [["read", "write it down"], ["write it down"]]


async def test_a_worker_sets_a_timer_and_is_woken_by_it(stage: Stage) -> None:
    ada = await stage.mesh.agent("ada")
    heard: list[str] = []

    async def work(turn: Turn) -> str:
        if turn.cause == "prompt":
            timer = await turn.mesh.notify_in(10, "is it green?")
            late = await turn.mesh.notify_in(1000, "never")
            assert [each.id for each in await turn.mesh.timers()] == [timer.id, late.id]
            await turn.mesh.cancel_timer(late.id)
        heard.append(turn.text)
        return "done"

    await stage.work(ada, work)
    request = session_pb2.PromptRequest(agent=ada.id, text="go", wait_seconds=0)
    await stage.mesh.admin.sessions.Prompt(request)
    await until(lambda: heard == ["go"], "the first turn")
    await stage.mesh.clock.advance(11)
    await until(lambda: len(heard) == 2, "the wake")
    assert heard == ["go", "is it green?"]


async def test_a_script_leaves_things_to_the_agents_inbox_session(stage: Stage) -> None:
    ada = await stage.mesh.agent("ada")
    async with stage.client(ada) as client:
        read, write = await client.add_todos("read", "write")
        rests = await client.snooze_todo(read.id, 60)
        assert rests.state == "snoozed"
        assert rests.snoozed_until == stage.mesh.clock.now() + 60
        await client.complete_todo(write.id)
        assert [todo.text for todo in await client.todos()] == ["read"]
        assert [todo.state for todo in await client.todos(ended=True)] == ["snoozed", "done"]
        await client.remove_todo(read.id)
        with pytest.raises(HoplineError, match="there is no todo"):
            await client.remove_todo(read.id)
        with pytest.raises(HoplineError, match="delay_seconds"):
            await client.notify_in(9, "too soon")
