"""`hopline chat|send|ask|cancel`: start something, as the holder of the token."""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Output, note
from hopline_cli.verbs import REFUSED, command, text_or_file
from hopline_cli.words import held_for

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

app = typer.Typer()

# What one call may wait; longer waits are made of several.
_STEP = 50
# A person who waits is told within so many seconds what an answer waits for that is held.
_TOLD_SECONDS = 5

Text = Annotated[str, typer.Argument(help="The text; @FILE reads a file, - standard input.")]
Session = Annotated[
    str, typer.Option("--session", metavar="ID", help="Follow up in this session.", show_default=False)
]
Wait = Annotated[
    int | None,
    typer.Option("--wait", metavar="SECONDS", min=0, help="Wait this long; without it, to the end."),
]


@command(app, "chat")
async def chat(
    mesh: Mesh, out: Output, agent: str, text: Text, session: Session = "", wait: Wait = None
) -> None:
    """Prompt an agent as a person and print its answer."""
    from hopline.relay.v1 import session_pb2 as pb

    async def start(seconds: int) -> Any:
        request = pb.PromptRequest(agent=agent, text=_text(text), session_id=session, wait_seconds=seconds)
        request.request_id = str(uuid.uuid4())
        return (await mesh.sessions.Prompt(request)).turn

    await _converse(mesh, out, start, wait, _TOLD_SECONDS)


@command(app, "ask")
async def ask(
    mesh: Mesh, out: Output, agent: str, text: Text, session: Session = "", wait: Wait = None
) -> None:
    """Ask an agent something and print its answer."""
    from hopline.relay.v1 import message_pb2 as pb

    async def start(seconds: int) -> Any:
        request = pb.AskRequest(agent=agent, text=_text(text), session_id=session, wait_seconds=seconds)
        request.request_id = str(uuid.uuid4())
        return (await mesh.messages.Ask(request)).turn

    await _converse(mesh, out, start, wait)


def _text(given: str) -> str:
    return text_or_file(given, "TEXT") or ""


async def _converse(
    mesh: Mesh, out: Output, start: Callable[[int], Awaitable[Any]], wait: int | None, most: int = _STEP
) -> None:
    """Start a turn, wait for it in steps, print how it went; a turn that failed is exit status 1."""
    from hopline.relay.v1 import message_pb2 as pb

    from hopline_cli import shapes

    going = (pb.TURN_STATUS_QUEUED, pb.TURN_STATUS_RUNNING, pb.TURN_STATUS_WAITING_FOR_OWNER)
    left, said = wait, ""
    turn = await start(most if left is None else min(left, most))
    while turn.status in going and (left is None or left > most):
        said = _say_held(out, turn, said)
        left = None if left is None else left - most
        request = pb.CheckRequest(
            turn_id=turn.turn_id, wait_seconds=most if left is None else min(left, most)
        )
        try:
            turn = (await mesh.messages.Check(request)).turn
        except BaseException:
            # A mesh that went away, or Ctrl-C: it is the look that ends, not the turn.
            note(f"turn {turn.turn_id} goes on; look again: hopline sessions {turn.session_id}")
            raise
    found = shapes.turn_view(turn)
    if out.as_json:
        out.json(found)
    elif turn.has_reply:
        out.line(turn.reply)
    else:
        out.line(_outcome(found), "red" if "error" in found else "yellow")
    if turn.status in (pb.TURN_STATUS_FAILED, pb.TURN_STATUS_CANCELED):
        raise typer.Exit(REFUSED)


def _outcome(found: dict[str, Any]) -> str:
    why = found.get("error")
    if why:
        return f"{found['status']}: {why['message']} ({why['code']}, turn {found['turn_id']})"
    ended = f"{found['status']}: session {found['session_id']}, turn {found['turn_id']}"
    return f"{ended}; {held_for(found['held'])}" if "held" in found else ended


def _say_held(out: Output, turn: Any, said: str) -> str:
    """Tell a person who waits what the answer is held for, whenever that is something else; returns it."""
    from hopline_cli import shapes

    now = held_for(shapes.held(turn)) if turn.held else ""
    if now and now != said and not out.as_json:
        more = f"; `hopline release {turn.session_id}` sends the draft now" if turn.has_draft else ""
        note(f"the answer is {now}{more}")
    return now


@command(app, "send")
async def send(
    mesh: Mesh,
    out: Output,
    agents: Annotated[str, typer.Argument(metavar="AGENT[,AGENT…]", help="1 to 10 agents.")],
    text: Text,
    subject: Annotated[str, typer.Option(help="A subject.", show_default=False)] = "",
    payload: Annotated[
        str, typer.Option(metavar="JSON", help="Data beside the text.", show_default=False)
    ] = "",
    thread: Annotated[
        str, typer.Option("--thread", metavar="ID", help="Go on in this thread.", show_default=False)
    ] = "",
    request_id: Annotated[
        str, typer.Option("--request-id", metavar="UUID", help="Makes it safe to repeat.", show_default=False)
    ] = "",
) -> None:
    """Send a message and return at once; answers arrive in the thread."""
    from hopline.relay.v1 import message_pb2 as pb

    from hopline_cli import shapes

    request = pb.SendRequest(
        to=[part.strip() for part in agents.split(",")],
        text=_text(text),
        subject=subject,
        payload_json=_json(payload),
        thread_id=thread,
        request_id=request_id or str(uuid.uuid4()),
    )
    made = await mesh.messages.Send(request)
    found = shapes.sent(made)
    to = ", ".join(f"{each['agent']} ({each['status']})" for each in found["deliveries"])
    out.result(found, f"sent to {to}", f"message {found['message_id']}, thread {found['thread_id']}")


def _json(payload: str) -> str:
    if payload:
        try:
            json.loads(payload)
        except ValueError as error:
            raise typer.BadParameter(f"not JSON: {error}", param_hint="--payload") from None
    return payload


@command(app, "cancel")
async def cancel(
    mesh: Mesh, out: Output, identifier: Annotated[str, typer.Argument(metavar="TURN|SESSION")]
) -> None:
    """End a turn, or the newest turn of a session, and whatever only it waits for."""
    from hopline.relay.v1 import delegation_pb2 as pb

    from hopline_cli import shapes

    is_session = identifier.startswith("ses_")
    request = pb.CancelRequest(session_id=identifier) if is_session else pb.CancelRequest(turn_id=identifier)
    found = shapes.canceled(await mesh.turns.Cancel(request))
    out.result(found, f"{found['status']}: {found['canceled']} turn(s) ended")
