"""todo_… and notify_…: what a session leaves to itself, to be woken with again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hopline.relay.v1 import timer_pb2, todo_pb2
from hopline_rpc.clock import from_timestamp, rfc3339
from hopline_rpc.errors import HoplineError

from hopline_gateway.shapes import Json
from hopline_gateway.toolkit import Call, Result, Tool, with_retry_hint
from hopline_gateway.tools import fields

_CREW: Final = ("lead", "subagent")
MAX_NOTE: Final = 4096


def todo(value: todo_pb2.Todo) -> Json:
    """Return a todo; what the agent noted is its own."""
    return {
        "id": value.id,
        "text": value.text,
        "state": todo_pb2.TodoState.Name(value.state).removeprefix("TODO_STATE_").lower(),
        "created_at": _time(value, "created_at"),
        "snoozed_until": _time(value, "snoozed_until"),
        "ended_at": _time(value, "ended_at"),
    }


def timer(value: timer_pb2.Timer) -> Json:
    """Return a timer."""
    return {
        "id": value.id,
        "message": value.message,
        "due_at": _time(value, "due_at"),
        "created_at": _time(value, "created_at"),
    }


def _time(value: Any, name: str) -> str | None:
    return rfc3339(from_timestamp(getattr(value, name))) if value.HasField(name) else None


async def todo_write(call: Call) -> Result:
    """Note todos after those that are there."""
    request_id = call.request_id()
    request = todo_pb2.AddTodosRequest(
        texts=call.arguments["texts"],
        caller_session_id=call.caller.session_id,
        request_id=request_id,
    )
    try:
        noted = await call.rpc(call.mesh.todos.AddTodos, request)
    except HoplineError as error:
        raise with_retry_hint(error, request_id) from error
    result = _listed(noted.todos, noted.list, "Noted." if noted.todos else "Nothing was noted.")
    kept = [
        {"text": text, "is_canceled": each.is_canceled, "cancel_reason": each.cancel_reason or None}
        for text, each in zip(request.texts, noted.outcomes, strict=False)
        if not each.todo_id
    ]
    if not kept:
        return result
    # What a hook of the workspace keeps back is no error of the call.
    headline = f"{result.headline} A hook kept {len(kept)} back."
    return Result({**result.structured, "kept_back": kept}, headline)


async def todo_list(call: Call) -> Result:
    """Show the todos of the session."""
    request = todo_pb2.ListTodosRequest(
        caller_session_id=call.caller.session_id,
        all=bool(call.arguments.get("all", False)),
        page_size=call.page(),
        page_token=call.text("cursor"),
    )
    listed = await call.rpc(call.mesh.todos.ListTodos, request)
    result = _listed(listed.todos, listed.list, "" if listed.todos else "No todos.")
    found = {**result.structured, "next_cursor": listed.next_page_token or None}
    return Result(found, result.headline)


async def todo_complete(call: Call) -> Result:
    """Say that a todo is done."""
    request = todo_pb2.CompleteTodoRequest(
        todo_id=call.text("todo_id"), caller_session_id=call.caller.session_id
    )
    done = await call.rpc(call.mesh.todos.CompleteTodo, request)
    return _listed([done.todo], done.list, "Done.")


async def todo_remove(call: Call) -> Result:
    """Forget a todo."""
    request = todo_pb2.RemoveTodoRequest(
        todo_id=call.text("todo_id"), caller_session_id=call.caller.session_id
    )
    removed = await call.rpc(call.mesh.todos.RemoveTodo, request)
    return _listed([], removed.list, "Removed.")


async def todo_snooze(call: Call) -> Result:
    """Let a todo rest."""
    request = todo_pb2.SnoozeTodoRequest(
        todo_id=call.text("todo_id"),
        seconds=int(call.arguments["seconds"]),
        caller_session_id=call.caller.session_id,
    )
    rests = await call.rpc(call.mesh.todos.SnoozeTodo, request)
    return _listed([rests.todo], rests.list, "It rests; the session is woken when its time has come.")


def _listed(found: Iterable[todo_pb2.Todo], listed: todo_pb2.TodoList, headline: str) -> Result:
    if listed.asleep:
        headline = (
            f"{headline} The list sleeps ({listed.reason}): it wakes you no more until it changes.".strip()
        )
    structured: Json = {
        "todos": [todo(each) for each in found],
        "open": listed.open,
        "asleep": listed.asleep,
    }
    return Result(structured, headline)


async def notify_session_in(call: Call) -> Result:
    """Set a timer."""
    request_id = call.request_id()
    request = timer_pb2.SetTimerRequest(
        delay_seconds=int(call.arguments["delay_seconds"]),
        message=call.text("message"),
        caller_session_id=call.caller.session_id,
        request_id=request_id,
    )
    try:
        made = await call.rpc(call.mesh.timers.SetTimer, request)
    except HoplineError as error:
        raise with_retry_hint(error, request_id) from error
    if not made.HasField("timer"):
        kept = {"is_canceled": made.is_canceled, "cancel_reason": made.cancel_reason or None}
        return Result({"timers": [], **kept}, "Not set: a hook of the workspace kept it back.")
    return Result({"timers": [timer(made.timer)]}, "Set. End your turn: the session is woken then.")


async def notify_list(call: Call) -> Result:
    """Show the timers of the session."""
    request = timer_pb2.ListTimersRequest(
        caller_session_id=call.caller.session_id, page_size=call.page(), page_token=call.text("cursor")
    )
    listed = await call.rpc(call.mesh.timers.ListTimers, request)
    found = {
        "timers": [timer(each) for each in listed.timers],
        "next_cursor": listed.next_page_token or None,
    }
    return Result(found, "" if listed.timers else "No timers.")


async def notify_cancel(call: Call) -> Result:
    """Call a timer off."""
    request = timer_pb2.CancelTimerRequest(
        timer_id=call.text("timer_id"), caller_session_id=call.caller.session_id
    )
    await call.rpc(call.mesh.timers.CancelTimer, request)
    return Result({"timer_id": request.timer_id}, "Called off.")


_TODO_ID = fields.identifier("tdo_… from todo_list")
_TODOS: Final[Mapping[str, Json]] = {
    "todos": fields.OBJECTS,
    "open": fields.INTEGER,
    "asleep": {"type": "boolean"},
}
_SECONDS: Final = 31_622_400

TOOLS = (
    Tool(
        name="todo_write",
        description=(
            "Note what this session still has to do, after what is noted already. While a todo is open you "
            "are woken again when your turn ends, and the final answer to a person is held."
        ),
        run=todo_write,
        properties={
            "texts": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": MAX_NOTE},
                "minItems": 1,
                "maxItems": 100,
                "description": 'One each, e.g. ["read the logs","write the report"]',
            },
            "request_id": fields.REQUEST_ID,
        },
        required=("texts",),
        output=_TODOS,
        crew=_CREW,
    ),
    Tool(
        name="todo_list",
        description="Open todos of this session in order; with all also those that are done.",
        run=todo_list,
        properties={
            "all": {"type": "boolean", "description": "Those that have ended as well"},
            "limit": fields.LIMIT,
            "cursor": fields.CURSOR,
        },
        output={**_TODOS, "next_cursor": fields.CURSOR_OUT},
        reads=True,
        crew=_CREW,
    ),
    Tool(
        name="todo_complete",
        description="Say that a todo of this session is done.",
        run=todo_complete,
        properties={"todo_id": _TODO_ID},
        required=("todo_id",),
        output=_TODOS,
        crew=_CREW,
    ),
    Tool(
        name="todo_remove",
        description="Forget a todo of this session that is void.",
        run=todo_remove,
        properties={"todo_id": _TODO_ID},
        required=("todo_id",),
        output=_TODOS,
        destroys=True,
        crew=_CREW,
    ),
    Tool(
        name="todo_snooze",
        description="Let a todo rest: it wakes and holds nobody until then, and then wakes this session.",
        run=todo_snooze,
        properties={
            "todo_id": _TODO_ID,
            "seconds": {
                "type": "integer",
                "minimum": 0,
                "maximum": _SECONDS,
                "description": "How long, e.g. 3600; 0 ends its rest",
            },
        },
        required=("todo_id", "seconds"),
        output=_TODOS,
        crew=_CREW,
    ),
    Tool(
        name="notify_session_in",
        description="Wake this session later, once, with a note to yourself.",
        run=notify_session_in,
        properties={
            "delay_seconds": {
                "type": "integer",
                "minimum": 10,
                "maximum": _SECONDS,
                "description": "From now, at least 10, e.g. 600",
            },
            "message": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_NOTE,
                "description": 'What you are told then, e.g. "Is the build green?"',
            },
            "request_id": fields.REQUEST_ID,
        },
        required=("delay_seconds", "message"),
        output={"timers": fields.OBJECTS},
        crew=_CREW,
    ),
    Tool(
        name="notify_list",
        description="Timers of this session that are still to come, the next one first.",
        run=notify_list,
        properties={"limit": fields.LIMIT, "cursor": fields.CURSOR},
        output={"timers": fields.OBJECTS, "next_cursor": fields.CURSOR_OUT},
        reads=True,
        crew=_CREW,
    ),
    Tool(
        name="notify_cancel",
        description="Call off a timer of this session.",
        run=notify_cancel,
        properties={"timer_id": fields.identifier("tmr_… from notify_list")},
        required=("timer_id",),
        output={"timer_id": fields.STRING},
        destroys=True,
        crew=_CREW,
    ),
)
