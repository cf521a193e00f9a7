"""Todos of a session: what is noted, changed and shown, at the borders, and to whom."""

from __future__ import annotations

import pytest
from hopline.relay.v1 import session_pb2, todo_pb2
from hopline_relay.store import todos

from tests.support.left import at_work
from tests.support.relay_mesh import Caller, RelayMesh, refusal

pytestmark = pytest.mark.both_stores

REQUEST = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
OTHER = "0b9619ff-8b86-d011-b42d-00c04fc964ff"


async def _add(caller: Caller, *texts: str, **more: str) -> todo_pb2.AddTodosResponse:
    answer: todo_pb2.AddTodosResponse = await caller.todos.AddTodos(
        todo_pb2.AddTodosRequest(texts=texts, **more)
    )
    return answer


async def _texts(caller: Caller, **more: object) -> list[str]:
    listed = await caller.todos.ListTodos(todo_pb2.ListTodosRequest(**more))  # type: ignore[arg-type]
    return [todo.text for todo in listed.todos]


async def test_todos_are_appended_in_order_at_the_depth_and_root_of_their_turn(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    await desk.note("read", "write")
    await desk.note("send")
    listed = await desk.listed()
    assert [todo.text for todo in listed.todos] == ["read", "write", "send"]
    assert {(todo.turn_id, todo.depth, todo.root_id) for todo in listed.todos} == {
        (desk.turn.turn_id, 0, desk.turn.root_id)
    }
    assert (listed.list.open, listed.list.asleep, listed.list.agent.id) == (3, False, desk.agent.id)
    (first, _) = await mesh.events("todo.added")
    assert first.details["todo_ids"] == [todo.id for todo in listed.todos[:2]]


async def test_an_agent_that_pulls_notes_in_its_inbox_session(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    assert await _texts(ada) == []
    noted = await _add(ada, "read")
    session = (
        await ada.sessions.GetSession(session_pb2.GetSessionRequest(session_id=noted.list.session_id))
    ).session
    assert session.channel == "mcp"
    assert (noted.todos[0].turn_id, noted.todos[0].depth) == ("", 0)
    assert noted.todos[0].root_id.startswith("rot_")
    assert await _texts(ada) == ["read"]


async def test_what_a_pulling_agent_works_on_gives_its_todos_depth_and_root(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await bob.send(ada)
    await ada.take()
    noted = await _add(ada, "read")
    assert (noted.todos[0].depth, noted.todos[0].turn_id) == (1, sent.deliveries[0].turn_id)


async def test_a_session_takes_a_hundred_open_todos_and_no_more(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    await _add(ada, *(str(number) for number in range(99)))
    error = await refusal(_add(ada, "99", "100"))
    assert error.reason == "limit_reached"
    assert error.details == {"limit": 100, "used": 99}
    noted = await _add(ada, "99")
    assert (await refusal(_add(ada, "100"))).reason == "limit_reached"
    request = todo_pb2.CompleteTodoRequest(todo_id=noted.todos[0].id)
    assert (await ada.todos.CompleteTodo(request)).todo.state == todo_pb2.TODO_STATE_DONE
    await _add(ada, "100")


@pytest.mark.parametrize(
    ("texts", "field"),
    [([], "texts"), ([""], "texts[0]"), (["x", "a\0b"], "texts"), (["é" * 2049], "texts[0]")],
)
async def test_what_is_no_text_is_refused_by_name(mesh: RelayMesh, texts: list[str], field: str) -> None:
    ada = await mesh.agent("ada")
    error = await refusal(_add(ada, *texts))
    assert error.reason == "invalid_argument"
    assert field in error.message
    assert await _texts(ada) == []
    await _add(ada, "é" * 2048)


async def test_the_same_request_notes_once_and_other_words_are_a_conflict(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    first = await _add(ada, "read", "write", request_id=REQUEST)
    again = await _add(ada, "read", "write", request_id=REQUEST.upper())
    assert [todo.id for todo in again.todos] == [todo.id for todo in first.todos]
    assert (await refusal(_add(ada, "read", request_id=REQUEST))).reason == "request_id_conflict"
    await _add(ada, "read", request_id=OTHER)
    assert await _texts(ada) == ["read", "write", "read"]


async def test_todos_are_put_otherwise_completed_and_removed(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    read, write, send = (await _add(ada, "read", "write", "send")).todos
    changed = await ada.todos.UpdateTodo(todo_pb2.UpdateTodoRequest(todo_id=read.id, text="read twice"))
    assert changed.todo.text == "read twice"
    done = await ada.todos.CompleteTodo(todo_pb2.CompleteTodoRequest(todo_id=write.id))
    assert (done.todo.state, done.list.open) == (todo_pb2.TODO_STATE_DONE, 2)
    again = await ada.todos.CompleteTodo(todo_pb2.CompleteTodoRequest(todo_id=write.id))
    assert again.todo.ended_at == done.todo.ended_at
    removed = await ada.todos.RemoveTodo(todo_pb2.RemoveTodoRequest(todo_id=send.id))
    assert removed.list.open == 1
    assert await _texts(ada) == ["read twice"]
    assert await _texts(ada, all=True) == ["read twice", "write"]
    error = await refusal(ada.todos.RemoveTodo(todo_pb2.RemoveTodoRequest(todo_id=send.id)))
    assert (error.reason, error.message) == ("not_found", f"there is no todo {send.id!r}")
    error = await refusal(ada.todos.SnoozeTodo(todo_pb2.SnoozeTodoRequest(todo_id=write.id, seconds=5)))
    assert error.reason == "failed_precondition"


async def test_a_snooze_ends_when_it_is_over_or_called_off(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    (todo,) = (await _add(ada, "read")).todos
    rest = todo_pb2.SnoozeTodoRequest(todo_id=todo.id, seconds=3600)
    assert (await ada.todos.SnoozeTodo(rest)).todo.state == todo_pb2.TODO_STATE_SNOOZED
    rest.seconds = 0
    assert (await ada.todos.SnoozeTodo(rest)).todo.state == todo_pb2.TODO_STATE_OPEN
    rest.seconds = 31_622_401
    assert (await refusal(ada.todos.SnoozeTodo(rest))).reason == "invalid_argument"


async def test_pages_follow_each_other_without_gap(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    await _add(ada, *(str(number) for number in range(7)))
    request = todo_pb2.ListTodosRequest(page_size=3)
    found: list[str] = []
    while True:
        page = await ada.todos.ListTodos(request)
        found += [todo.text for todo in page.todos]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert found == [str(number) for number in range(7)]


async def test_a_turn_changes_the_todos_of_its_own_session_alone(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    (todo,) = await desk.note("read")
    elsewhere = todo_pb2.CompleteTodoRequest(todo_id=todo.id)
    error = await refusal(desk.agent.todos.CompleteTodo(elsewhere))
    assert error.reason == "not_found"
    bob = await mesh.agent("bob")
    hidden = await refusal(bob.todos.CompleteTodo(elsewhere))
    nothing = await refusal(bob.todos.CompleteTodo(todo_pb2.CompleteTodoRequest(todo_id="tdo_none")))
    assert hidden.message.replace(todo.id, "tdo_none") == nothing.message
    foreign = todo_pb2.ListTodosRequest(caller_session_id=desk.session)
    assert (await refusal(bob.todos.ListTodos(foreign))).reason == "not_found"
    named = todo_pb2.ListTodosRequest(session_id=desk.session)
    assert (await refusal(bob.todos.ListTodos(named))).reason == "not_found"
    await desk.complete(todo)


async def test_people_look_as_viewers_and_remove_as_operators(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    (todo,) = await desk.note("read")
    zoe = await mesh.person("zoe")
    look = todo_pb2.ListTodosRequest(session_id=desk.session)
    remove = todo_pb2.RemoveTodoRequest(todo_id=todo.id)
    assert (await refusal(zoe.todos.ListTodos(look))).reason == "not_found"
    assert (await refusal(zoe.todos.RemoveTodo(remove))).reason == "not_found"
    await mesh.grant("zoe", 1, desk.agent.id)
    assert [each.text for each in (await zoe.todos.ListTodos(look)).todos] == ["read"]
    assert (await refusal(zoe.todos.RemoveTodo(remove))).reason == "permission_denied"
    await mesh.grant("zoe", 2, desk.agent.id)
    await zoe.todos.RemoveTodo(remove)
    assert (await desk.listed()).list.open == 0
    assert (await refusal(zoe.todos.ListTodos(todo_pb2.ListTodosRequest()))).reason == "invalid_argument"


async def test_who_only_receives_or_is_paused_notes_nothing_and_still_reads(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    await _add(ada, "read")
    await mesh.pause(ada)
    assert (await refusal(_add(ada, "write"))).reason == "agent_paused"
    assert await _texts(ada) == ["read"]
    eve = await mesh.agent("eve", kind=2)
    assert (await refusal(_add(eve, "read"))).reason == "receive_only"


async def test_a_call_from_a_turn_that_has_ended_notes_nothing(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    await desk.end()
    assert (await refusal(desk.note("late"))).reason == "failed_precondition"
    assert (await desk.listed()).list.open == 0


async def test_deleting_the_agent_drops_what_is_open_and_keeps_it_readable(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    await desk.note("read")
    await mesh.delete(desk.agent)
    rows = await mesh.relay.journal.read(
        lambda connection: todos.page(connection, mesh.workspace_id, desk.session, 0, 10, ended=True)
    )
    assert [(row.body, row.state) for row in rows] == [("read", "dropped")]
    listed = await mesh.relay.journal.read(
        lambda connection: todos.list_of(connection, mesh.workspace_id, desk.session)
    )
    assert listed is None
