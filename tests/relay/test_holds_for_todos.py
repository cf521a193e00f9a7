"""Open todos hold an answer to a person; done, removed, resting and sleeping ones do not."""

from __future__ import annotations

from hopline.relay.v1 import draft_pb2, todo_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline_relay.turns import ClaimedTurn

from tests.support.holds import Led
from tests.support.left import Desk, at_work
from tests.support.relay_mesh import RelayMesh

RUNNING = pb.TURN_STATUS_RUNNING


def _crew(desk: Desk) -> Led:
    return Led(desk.mesh, desk.worker, {})


async def _woken(crew: Led) -> ClaimedTurn:
    """Return the turn by which the lead is woken with its draft; it may have been with its todos before."""
    while (turn := await crew.lead_next()).cause != "draft":
        await crew.lead.end(turn, None)
    return turn


async def _remove(desk: Desk, todo: todo_pb2.Todo) -> None:
    """Remove a todo as a person."""
    await desk.mesh.admin.todos.RemoveTodo(todo_pb2.RemoveTodoRequest(todo_id=todo.id))


async def test_an_answer_is_held_while_todos_are_open_and_given_when_the_last_is_done(
    mesh: RelayMesh,
) -> None:
    desk = await at_work(mesh)
    crew, prompted = _crew(desk), desk.turn
    read, write = await desk.note("read", "write")
    await desk.complete(read)
    said = await crew.reply(prompted, "soon")
    assert (said.status, said.open_todos) == (draft_pb2.REPLY_STATUS_HELD, 1)
    await desk.end(answer="later")
    view = await crew.check(prompted.turn_id)
    assert (view.status, view.held, view.open_todos, list(view.waiting_on)) == (RUNNING, True, 1, [])
    again = await desk.again()
    await desk.complete(write)
    await desk.end(again, answer="all done")
    assert (await crew.answered(prompted.turn_id)).reply == "all done"
    assert await crew.answers(prompted) == ["all done"]


async def test_a_person_who_removes_the_last_todo_has_the_lead_woken_with_its_draft(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    crew, prompted = _crew(desk), desk.turn
    (todo,) = await desk.note("read")
    await desk.worker.end(prompted, "my draft")
    await _remove(desk, todo)
    await desk.worker.end(await _woken(crew), None)
    assert (await crew.answered(prompted.turn_id)).reply == "my draft"


async def test_a_todo_that_rests_holds_nothing(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    crew, prompted = _crew(desk), desk.turn
    (todo,) = await desk.note("read")
    await desk.worker.end(prompted, "my draft")
    await desk.snooze(todo, 3600)
    await desk.worker.end(await _woken(crew), "for now")
    assert (await crew.answered(prompted.turn_id)).reply == "for now"


async def test_a_list_that_falls_asleep_lets_the_draft_go_and_is_not_woken_by_that(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    crew, prompted = _crew(desk), desk.turn
    await desk.note("read")
    await desk.end(answer="still reading")
    causes = []
    while (turn := await _next(crew, desk)) is not None:
        causes.append(turn.cause)
        await desk.end(turn, answer="still reading")
    assert causes == ["todo", "todo", "todo", "draft"]
    assert (await crew.answered(prompted.turn_id)).reply == "still reading"
    assert (await desk.listed()).list.asleep


async def _next(crew: Led, desk: Desk) -> ClaimedTurn | None:
    """Return the next turn once everything was looked at; None where there is none."""
    for _ in range(3):
        await desk.look()
        await crew.settled()
    turns = await desk.worker.claim(1)
    return turns[0] if turns else None


async def test_a_prompt_of_another_root_is_held_for_the_sessions_todos_too(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    crew, first = _crew(desk), desk.turn
    (todo,) = await desk.note("read")
    # It waits there already: the todos wake the session only where nothing else does.
    second = await crew.prompted_only(desk.session)
    await desk.worker.end(first, "one")
    held = await crew.lead.next()
    await desk.worker.end(held, "two")
    assert [hold.draft for hold in await crew.held()] == ["two", "one"]
    await _remove(desk, todo)
    for _ in range(2):
        await desk.worker.end(await _woken(crew), None)
    assert [(await crew.answered(each)).reply for each in (first.turn_id, second.turn_id)] == ["one", "two"]
