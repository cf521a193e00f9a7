"""Todos and timers that plugins leave to sessions which they were handed."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hopline.hooks.v1 import hook_pb2
from hopline.relay.v1 import plugin_session_pb2 as pb
from hopline_rpc.errors import HoplineError

from tests.relay.test_plugin_sessions import hand, newest, prompt
from tests.support.hook_rig import HookRig
from tests.support.plugins import Plugin, install
from tests.support.relay_mesh import Caller, RelayMesh


async def create(plugin: Plugin, session_id: str, *texts: str, **more: Any) -> list[pb.SessionTodo]:
    request = pb.CreateSessionTodosRequest(session_id=session_id, texts=texts, **more)
    return list((await plugin.chat.CreateSessionTodos(request)).todos)


async def listed(plugin: Plugin, session_id: str) -> list[str]:
    request = pb.ListSessionTodosRequest(session_id=session_id)
    return [each.text for each in (await plugin.chat.ListSessionTodos(request)).todos]


async def notify(plugin: Plugin, session_id: str, message: str = "look again", **more: Any) -> Any:
    request = pb.ScheduleNotifyRequest(
        session_id=session_id, message=message, **{"delay_seconds": 10, **more}
    )
    return await plugin.chat.ScheduleNotify(request)


async def passes(mesh: RelayMesh, seconds: float) -> None:
    """Let time pass, and what is due then be looked at."""
    await mesh.clock.advance(seconds)
    await mesh.relay.left.todos.look()
    await mesh.relay.left.timers.look()


CALLS: dict[str, tuple[str, Any]] = {
    "create": ("todo.write", lambda plugin, session_id: create(plugin, session_id, "one")),
    "list": ("todo.read", listed),
    "update": (
        "todo.write",
        lambda plugin, session_id: plugin.chat.UpdateSessionTodo(
            pb.UpdateSessionTodoRequest(session_id=session_id, todo_id="tdo_1", text="x")
        ),
    ),
    "complete": (
        "todo.write",
        lambda plugin, session_id: plugin.chat.CompleteSessionTodo(
            pb.CompleteSessionTodoRequest(session_id=session_id, todo_id="tdo_1")
        ),
    ),
    "delete": (
        "todo.write",
        lambda plugin, session_id: plugin.chat.DeleteSessionTodo(
            pb.DeleteSessionTodoRequest(session_id=session_id, todo_id="tdo_1")
        ),
    ),
    "notify": ("notify.write", notify),
}
EVERY = {"session", "todo.read", "todo.write", "notify.write"}
each_call = pytest.mark.parametrize(("permission", "call"), CALLS.values(), ids=CALLS)


async def chat(mesh: RelayMesh, plugin: Plugin, **at: Any) -> tuple[Caller, str]:
    """Open a chat with a lead, and hand it to the plugin."""
    lead = await mesh.agent("lead")
    session_id = (await prompt(mesh, lead)).session_id
    hand(mesh, plugin, session_id, **at)
    return lead, session_id


@each_call
async def test_each_needs_its_permission_and_a_session_that_was_handed_over(
    mesh: RelayMesh, permission: str, call: Any
) -> None:
    plugin = await install(mesh, permissions=sorted(EVERY - {permission}))
    _, session_id = await chat(mesh, plugin)
    with pytest.raises(HoplineError) as caught:
        await call(plugin, session_id)
    assert caught.value.reason == "permission_denied"
    assert permission in caught.value.message
    able = await install(mesh, "able", permissions=[permission])
    told = []
    for each in (session_id, "ses_never"):
        with pytest.raises(HoplineError) as caught:
            await call(able, each)
        told.append((caught.value.reason, caught.value.message.replace(each, "ID")))
    assert told == [("not_found", "there is no session 'ID'")] * 2


async def test_todos_are_noted_listed_changed_completed_and_deleted(mesh: RelayMesh) -> None:
    plugin = await install(mesh)
    _, session_id = await chat(mesh, plugin)
    one, two, three = await create(plugin, session_id, "one", "two", "three")
    assert await listed(plugin, session_id) == ["one", "two", "three"]
    update = pb.UpdateSessionTodoRequest(session_id=session_id, todo_id=two.id, text="second")
    assert (await plugin.chat.UpdateSessionTodo(update)).todo.text == "second"
    await plugin.chat.CompleteSessionTodo(
        pb.CompleteSessionTodoRequest(session_id=session_id, todo_id=one.id)
    )
    await plugin.chat.DeleteSessionTodo(pb.DeleteSessionTodoRequest(session_id=session_id, todo_id=three.id))
    assert await listed(plugin, session_id) == ["second"]
    (added,) = await mesh.events("todo.added")
    assert dict(added.details)["plugin_id"] == plugin.id


async def test_the_todos_of_another_session_are_as_if_they_had_never_been(mesh: RelayMesh) -> None:
    plugin = await install(mesh)
    lead, session_id = await chat(mesh, plugin)
    other = (await prompt(mesh, lead, "something else")).session_id
    hand(mesh, plugin, other)
    (hidden,) = await create(plugin, other, "elsewhere")
    told = []
    for todo_id in (hidden.id, "tdo_never"):
        with pytest.raises(HoplineError) as caught:
            await plugin.chat.CompleteSessionTodo(
                pb.CompleteSessionTodoRequest(session_id=session_id, todo_id=todo_id)
            )
        told.append((caught.value.reason, caught.value.message.replace(todo_id, "ID")))
    assert len(set(told)) == 1


async def test_the_same_request_notes_once(mesh: RelayMesh) -> None:
    plugin = await install(mesh)
    _, session_id = await chat(mesh, plugin)
    request_id = str(uuid.uuid4())
    one = await create(plugin, session_id, "one", request_id=request_id)
    assert await create(plugin, session_id, "one", request_id=request_id) == one
    request_id = str(uuid.uuid4())
    first = await notify(plugin, session_id, request_id=request_id)
    assert await notify(plugin, session_id, request_id=request_id) == first


async def test_open_todos_keep_the_agent_working_at_what_the_plugin_was_handed(mesh: RelayMesh) -> None:
    plugin = await install(mesh)
    lead, session_id = await chat(mesh, plugin, depth=2, generation=1)
    await create(plugin, session_id, "look it up")
    worker = await mesh.worker(lead)
    await worker.end(await worker.next(), "so")
    await passes(mesh, 1.0)
    woken = await worker.next()
    assert woken.session_id == session_id
    assert "look it up" in woken.messages[0].body
    assert woken.depth == 2
    assert await newest(mesh) == 2


async def test_a_timer_wakes_the_session_with_its_note_one_generation_on(mesh: RelayMesh) -> None:
    plugin = await install(mesh)
    lead, session_id = await chat(mesh, plugin, depth=1, generation=2)
    worker = await mesh.worker(lead)
    await worker.end(await worker.next(), "so")
    set_ = await notify(plugin, session_id)
    assert set_.notify_id
    assert (set_.is_canceled, set_.cancel_reason) == (False, "")
    assert set_.fire_at.ToMicroseconds() / 1e6 == pytest.approx(mesh.clock.now() + 10, abs=1)
    await passes(mesh, 11.0)
    woken = await worker.next()
    assert (woken.session_id, woken.messages[0].body, woken.depth) == (session_id, "look again", 1)
    assert await newest(mesh) == 3


async def test_timers_that_set_each_other_end_with_the_fuse(mesh: RelayMesh) -> None:
    plugin = await install(mesh)
    lead, session_id = await chat(mesh, plugin)
    worker = await mesh.worker(lead)
    await worker.end(await worker.next(), "so")
    rounds = 0
    while not (done := await notify(plugin, session_id)).is_canceled:
        rounds += 1
        await passes(mesh, 11.0)
        woken = await worker.next()
        # As a hook would be told of it.
        hand(mesh, plugin, session_id, generation=await newest(mesh))
        await worker.end(woken, "so")
    assert rounds == 4
    assert "withheld" in done.cancel_reason
    assert not done.notify_id


async def test_past_the_fuse_todos_are_refused(mesh: RelayMesh) -> None:
    plugin = await install(mesh)
    _, session_id = await chat(mesh, plugin, generation=4)
    with pytest.raises(HoplineError) as caught:
        await create(plugin, session_id, "one")
    assert caught.value.reason == "permission_denied"
    assert "withheld" in caught.value.message


async def test_what_hooks_make_of_a_plugins_timer_and_todos_is_data(mesh: RelayMesh) -> None:
    plugin = await install(mesh)
    _, session_id = await chat(mesh, plugin, generation=1, depth=2)
    rig = HookRig(mesh)

    def judge(asked: Any) -> Any:
        response = type(asked).__name__.replace("Request", "Response")
        made = getattr(hook_pb2, response)
        if asked.text == "bad":
            return made(veto=hook_pb2.HookVeto(reason="not that"))
        return made(text="") if asked.text == "void" else made()

    rig.add("abe", judge, "notify_scheduled")
    rig.add("bea", judge, "todo_added")
    vetoed, dropped = await notify(plugin, session_id, "bad"), await notify(plugin, session_id, "void")
    assert (vetoed.notify_id, vetoed.is_canceled, vetoed.cancel_reason) == ("", True, "not that")
    assert (dropped.notify_id, dropped.is_canceled, dropped.HasField("fire_at")) == ("", False, False)
    assert [each.text for each in await create(plugin, session_id, "good", "bad", "void")] == ["good"]
    # What a plugin leaves is a reaction already: the hooks on it are one generation on.
    contexts = [asked.context for _, asked in rig.asked]
    assert {(each.generation, each.depth) for each in contexts} == {(2, 2)}
