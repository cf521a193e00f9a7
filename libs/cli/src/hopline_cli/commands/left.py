"""`hopline todos|timers`: what an agent's session has left to itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Json, Output
from hopline_cli.verbs import Cursor, Limit, command

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

app = typer.Typer()

Session = Annotated[str, typer.Argument(metavar="SESSION", help="ses_…, as `sessions` names it.")]


@command(app, "todos")
async def todos(
    mesh: Mesh,
    out: Output,
    session: Session,
    everything: Annotated[bool, typer.Option("--all", help="Those that have ended as well.")] = False,
    remove: Annotated[
        str, typer.Option("--remove", metavar="ID", help="Remove this one (operator).", show_default=False)
    ] = "",
    limit: Limit = 50,
    cursor: Cursor = "",
) -> None:
    """List what a session has to do, in order; while todos are open its agent is woken with them."""
    from hopline.relay.v1 import todo_pb2 as pb

    from hopline_cli.mesh import pages

    if remove:
        await mesh.todos.RemoveTodo(pb.RemoveTodoRequest(todo_id=remove))
        out.result({"id": remove, "removed": True}, f"todo {remove} removed")
        return
    lists: list[pb.TodoList] = []

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        request = pb.ListTodosRequest(session_id=session, all=everything, page_size=size, page_token=at)
        page = await mesh.todos.ListTodos(request)
        lists.append(page.list)
        return [_todo(each) for each in page.todos], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    columns = [("TODO", "text"), ("STATE", "state"), ("UNTIL", "snoozed_until"), ("NOTED", "created_at")]
    out.rows("todos", items, [*columns, ("DEPTH", "depth"), ("ID", "id")], rest)
    if lists and lists[0].asleep and not out.as_json:
        out.line(f"the list sleeps ({lists[0].reason}): it wakes nobody until it changes", "yellow")


@command(app, "timers")
async def timers(
    mesh: Mesh,
    out: Output,
    session: Session,
    cancel: Annotated[
        str, typer.Option("--cancel", metavar="ID", help="Call this one off (operator).", show_default=False)
    ] = "",
    limit: Limit = 50,
    cursor: Cursor = "",
) -> None:
    """List the timers by which a session wakes itself, the next one first."""
    from hopline.relay.v1 import timer_pb2 as pb

    from hopline_cli.mesh import pages

    if cancel:
        await mesh.timers.CancelTimer(pb.CancelTimerRequest(timer_id=cancel))
        out.result({"id": cancel, "canceled": True}, f"timer {cancel} called off")
        return

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        request = pb.ListTimersRequest(session_id=session, page_size=size, page_token=at)
        page = await mesh.timers.ListTimers(request)
        return [_timer(each) for each in page.timers], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    columns = [
        ("DUE", "due_at"),
        ("NOTE", "message"),
        ("SET", "created_at"),
        ("DEPTH", "depth"),
        ("ID", "id"),
    ]
    out.rows("timers", items, columns, rest)


def _todo(value: Any) -> Json:
    from hopline.relay.v1 import todo_pb2 as pb

    from hopline_cli import shapes

    return {
        "id": value.id,
        "text": value.text,
        "state": shapes.enum(pb.TodoState, "TODO_STATE_", value.state),
        "session_id": value.session_id,
        "turn_id": value.turn_id or None,
        "depth": value.depth,
        "created_at": shapes.time(value, "created_at"),
        "snoozed_until": shapes.time(value, "snoozed_until"),
        "ended_at": shapes.time(value, "ended_at"),
    }


def _timer(value: Any) -> Json:
    from hopline_cli import shapes

    return {
        "id": value.id,
        "message": value.message,
        "session_id": value.session_id,
        "turn_id": value.turn_id or None,
        "depth": value.depth,
        "created_at": shapes.time(value, "created_at"),
        "due_at": shapes.time(value, "due_at"),
    }
