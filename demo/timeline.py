"""What the mesh recorded of the demo: its turns as a timeline, one of them as a trace."""

from __future__ import annotations

import subprocess
import time
from datetime import UTC, datetime

import grpc
from hopline.relay.v1 import delegation_pb2, delegation_pb2_grpc, message_pb2
from local_mesh import HOPLINE, LocalMesh, expect
from rich.console import Console
from rich.table import Table

TRACE_SECONDS = 10.0  # spans are kept in batches, a moment after they end
COLOURS = {"completed": "green", "failed": "red", "canceled": "yellow", "running": "cyan", "queued": "dim"}


async def show_timeline(mesh: LocalMesh, console: Console) -> None:
    """Print every turn in order: who → whom, why, depth, session, state, time."""
    turns = await _turns(mesh)
    expect(turns, "the mesh recorded no turns")
    start = min(turn.created_at.ToDatetime(UTC) for turn in turns)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("time", "who → whom", "cause", "depth", "session", "state", "took"):
        table.add_column(heading, justify="right" if heading in ("time", "depth", "took") else "left")
    for turn in turns:
        table.add_row(*_row(turn, start))
    console.print(table)


async def _turns(mesh: LocalMesh) -> list[delegation_pb2.Turn]:
    token = (mesh.data / "admin.token").read_text().strip()
    async with grpc.aio.insecure_channel(mesh.endpoints["relay"]) as channel:
        stub = delegation_pb2_grpc.DelegationServiceStub(channel)
        answer = await stub.ListTurns(
            delegation_pb2.ListTurnsRequest(page_size=200),
            metadata=(("authorization", f"Bearer {token}"), ("hopline-workspace", "default")),
        )
    return sorted(answer.turns, key=lambda turn: turn.created_at.ToNanoseconds())


def _row(turn: delegation_pb2.Turn, start: datetime) -> tuple[str, ...]:
    status = message_pb2.TurnStatus.Name(turn.status).removeprefix("TURN_STATUS_").lower()
    colour = COLOURS.get(status, "white")
    created = turn.created_at.ToDatetime(UTC)
    ended = turn.ended_at.ToDatetime(UTC) if turn.HasField("ended_at") else None
    took = f"{(ended - created).total_seconds():.2f} s" if ended else ""
    return (
        f"+{(created - start).total_seconds():.2f} s",
        f"[bold]{turn.caused_by.name}[/] → [bold]{turn.agent.name}[/]",
        turn.cause,
        str(turn.depth),
        f"[dim]…{turn.session_id[-6:]}[/]",
        f"[{colour}]{status}[/]",
        took,
    )


def show_trace(mesh: LocalMesh, turn_id: str) -> None:
    """Print the trace of a turn as the command line draws it."""
    command = [str(HOPLINE), "trace", turn_id, "--data", str(mesh.data)]
    until = time.monotonic() + TRACE_SECONDS
    while True:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if "tools/call ask" in done.stdout and "invoke_agent reviewer" in done.stdout:
            break
        expect(time.monotonic() < until, f"the trace lacks the delegation: {done.stdout}{done.stderr}")
    print(done.stdout, end="")
