"""`hopline exchanges`: everything an agent has sent and received, across threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Json, Output
from hopline_cli.times import Since, Until, moment_of
from hopline_cli.verbs import Cursor, Limit, command

if TYPE_CHECKING:
    from hopline.relay.v1 import exchange_pb2

    from hopline_cli.mesh import Mesh

app = typer.Typer()


@command(app, "exchanges")
async def exchanges(
    mesh: Mesh,
    out: Output,
    agent: Annotated[str, typer.Argument(metavar="AGENT")],
    search: Annotated[
        str,
        typer.Option("--search", metavar="WORDS", help='word, "a phrase", begin*', show_default=False),
    ] = "",
    direction: Annotated[str, typer.Option(metavar="D", help="sent or received.", show_default=False)] = "",
    peer: Annotated[
        str, typer.Option(metavar="P", help="Only with this agent or person.", show_default=False)
    ] = "",
    state: Annotated[
        str, typer.Option(metavar="S", help="Only in this state: queued, answered, …", show_default=False)
    ] = "",
    kind: Annotated[
        str, typer.Option(metavar="K", help="Only of this kind: ask, answer, …", show_default=False)
    ] = "",
    since: Since = "",
    until: Until = "",
    limit: Limit = 50,
    cursor: Cursor = "",
) -> None:
    """List what an agent has sent and received, newest first, each with its thread, session and trace."""
    from hopline.relay.v1 import exchange_pb2 as pb
    from hopline.relay.v1 import message_pb2
    from hopline_rpc.clock import to_timestamp

    from hopline_cli.mesh import pages

    request = pb.ListExchangesRequest(agent=agent, query=search, peer=peer, kind=kind)
    request.direction = _number(pb.ExchangeDirection.DESCRIPTOR, direction, "--direction")
    request.state = _number(message_pb2.DeliveryState.DESCRIPTOR, state, "--state")
    for field, text in (("from", since), ("until", until)):
        if (at := moment_of(text, f"--{'since' if field == 'from' else field}")) is not None:
            getattr(request, field).CopyFrom(to_timestamp(at))

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        request.page_size, request.page_token = size, at
        found = await mesh.exchanges.ListExchanges(request)
        return [_shape(each) for each in found.exchanges], found.next_page_token

    items, rest = await pages(read, limit, cursor)
    columns = [("AT", "at"), ("", "direction"), ("WITH", "with"), ("KIND", "kind"), ("STATE", "states")]
    out.rows("exchanges", items, [*columns, ("DESCRIPTION", "excerpt"), ("THREAD", "thread_id")], rest)


def _number(kind: Any, word: str, option: str) -> Any:
    from hopline_files.words import number_of, words_of

    if not word:
        return 0
    found = number_of(kind, word)
    if found is None:
        raise typer.BadParameter(f"one of {', '.join(words_of(kind))}", param_hint=option)
    return found


def _shape(value: exchange_pb2.Exchange) -> Json:
    """Return `{at, direction, with, kind, states, text, …}` and the ids of all that hangs on it."""
    from hopline.relay.v1 import exchange_pb2, message_pb2

    from hopline_cli.shapes import time

    message = value.message
    sent = value.direction == exchange_pb2.EXCHANGE_DIRECTION_SENT
    others = [party.name for party in message.to] if sent else [getattr(message, "from").name]
    states = [
        message_pb2.DeliveryState.Name(each.state).removeprefix("DELIVERY_STATE_").lower()
        for each in message.deliveries
    ]
    return {
        "at": time(message, "created_at"),
        "direction": "sent" if sent else "received",
        "with": ", ".join(others),
        "kind": value.kind,
        "states": ", ".join(dict.fromkeys(states)),
        "subject": message.subject,
        "text": message.body,
        "excerpt": " ".join(f"{message.subject} {message.body}".split())[:80],
        "depth": message.depth,
        "message_id": message.id,
        "thread_id": message.thread_id,
        "session_id": value.session_id or None,
        "linked_session_id": value.linked_session_id or None,
        "turn_id": value.turn_id or None,
        "trace_id": value.trace_id or None,
    }
