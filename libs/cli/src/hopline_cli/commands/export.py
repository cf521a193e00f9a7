"""`hopline audit export`, `hopline threads export`: everything of a time, as JSON Lines.

Written as it is read, so that it takes as much memory as one page, however much there is.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Json, Output
from hopline_cli.progress import bar
from hopline_cli.times import Since, Until, moment_of, set_times
from hopline_cli.verbs import Cursor, command

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

audit = typer.Typer()
threads = typer.Typer()

OfAgent = Annotated[
    str, typer.Option("--agent", metavar="A", help="Only what concerns it.", show_default=False)
]
To = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="F", help="Write here (mode 0600), not to standard output.", show_default=False
    ),
]


@command(audit, "export")
async def export_audit(
    mesh: Mesh,
    out: Output,
    since: Since = "",
    until: Until = "",
    agent: OfAgent = "",
    action: Annotated[
        str, typer.Option(metavar="PREFIX", help="Only these: message., …", show_default=False)
    ] = "",
    thread: Annotated[str, typer.Option(metavar="ID", help="Only of this thread.", show_default=False)] = "",
    after: Annotated[
        int, typer.Option("--after", metavar="N", help="Go on after this event; F is added to.", min=0)
    ] = 0,
    output: To = None,
) -> None:
    """Write the audit log of a time as JSON Lines, oldest event first."""
    from hopline.relay.v1 import audit_pb2 as pb
    from hopline_rpc.errors import HoplineError

    from hopline_cli import shapes
    from hopline_cli.mesh import PAGE

    request = pb.ListEventsRequest(agent=agent, action=action, thread_id=thread, page_size=PAGE)
    request.after_seq = after
    set_times(request, since, until)
    count, last = 0, after
    with _lines(output, add=bool(after)) as lines, bar("exporting", shown=output is not None) as tell:
        while True:
            try:
                page = await mesh.events.ListEvents(request)
            except HoplineError as error:
                raise _broken_off(error, f"--after {last}" if last else "") from error
            for each in page.events:
                _write(lines, shapes.event(each))
                count, last = count + 1, each.seq
            tell("events", count, 0)
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
    _said(out, output, count, "events")


@command(threads, "export")
async def export_threads(
    mesh: Mesh,
    out: Output,
    since: Since = "",
    until: Until = "",
    agent: OfAgent = "",
    cursor: Cursor = "",
    output: To = None,
) -> None:
    """Write the messages of a time as JSON Lines, thread by thread, the longest quiet first.

    A thread that is written to meanwhile may come twice; the ids of its messages tell.
    """
    from hopline.relay.v1 import message_pb2 as pb
    from hopline_rpc.errors import HoplineError

    from hopline_cli.mesh import PAGE

    upto = moment_of(until, "--until")
    request = pb.ListThreadsRequest(agent=agent, page_size=PAGE, page_token=cursor, ascending=True)
    set_times(request, since, "")
    begin = moment_of(since, "--since")
    count = 0
    with _lines(output, add=bool(cursor)) as lines, bar("exporting", shown=output is not None) as tell:
        while True:
            try:
                page = await mesh.messages.ListThreads(request)
                for thread in page.threads:
                    count += await _thread(mesh, lines, thread.id, begin, upto)
                    tell("messages", count, 0)
            except HoplineError as error:
                at = request.page_token
                raise _broken_off(error, f"--cursor {at}" if at else "") from error
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
    _said(out, output, count, "messages")


async def _thread(mesh: Mesh, lines: IO[str], thread_id: str, begin: float | None, upto: float | None) -> int:
    """Write the messages of a thread that are within the time; returns how many."""
    from hopline.relay.v1 import message_pb2 as pb
    from hopline_rpc.clock import from_timestamp

    from hopline_cli import shapes
    from hopline_cli.mesh import PAGE

    count, cursor = 0, ""
    while True:
        page = await mesh.messages.ListMessages(
            pb.ListMessagesRequest(thread_id=thread_id, page_size=PAGE, page_token=cursor)
        )
        for each in page.messages:
            at = from_timestamp(each.created_at)
            if upto is not None and at >= upto:
                return count
            if begin is None or at >= begin:
                _write(lines, shapes.message(each))
                count += 1
        cursor = page.next_page_token
        if not cursor:
            return count


@contextmanager
def _lines(output: Path | None, *, add: bool) -> Iterator[IO[str]]:
    """Give what lines are written to: a file for its owner alone, or standard output."""
    if output is None:
        yield sys.stdout
        return
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if add else os.O_TRUNC)
    try:
        file = os.fdopen(os.open(output, flags, 0o600), "w", encoding="utf-8", errors="replace")
    except OSError as error:
        raise typer.BadParameter(
            f"{output} cannot be written: {error.strerror}", param_hint="--output"
        ) from None
    with file:
        yield file


def _write(lines: IO[str], value: Json) -> None:
    text = json.dumps(value, ensure_ascii=False)
    lines.write(text.encode("utf-8", "replace").decode() + "\n")


def _broken_off(error: Any, rest: str) -> Any:
    """Say how to go on where an export was broken off."""
    from hopline_rpc.errors import HoplineError

    if not rest or not error.retryable:
        return error
    text = f"{error.message}; what was written stays, go on with {rest}"
    return HoplineError(error.reason, text, details=error.details, retry_after=error.retry_after)


def _said(out: Output, output: Path | None, count: int, what: str) -> None:
    if output is not None:
        out.result({"written": count, "output": str(output)}, f"{count} {what} written to {output}")
