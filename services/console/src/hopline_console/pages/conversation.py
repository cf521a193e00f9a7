"""A session as its pages show it: the newest lines first to hand, open turns with what each waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from hopline.registry.v1 import agent_pb2
from hopline.relay.v1 import delegation_pb2, draft_pb2, floor_pb2, session_pb2
from hopline_rpc.errors import HoplineError
from starlette.responses import Response

from hopline_console.page import PAGE_SIZE, Page

_TURNS = 20
# Of more open turns than these nobody reads what each waits for.
_MOST_OPEN = 5


@dataclass(frozen=True)
class Open:
    """A turn that has not ended, and what it waits for."""

    turn: delegation_pb2.Turn
    wait: floor_pb2.Wait | None


@dataclass(frozen=True)
class Conversation:
    """A page of a session's transcript and what goes on in it."""

    session: session_pb2.Session
    entries: Sequence[session_pb2.TranscriptEntry]
    # Leads to the lines before these.
    older: str
    turns: Sequence[delegation_pb2.Turn]
    open: Sequence[Open]
    holds: Sequence[draft_pb2.Hold]


async def read(page: Page, session_id: str) -> Conversation:
    """Read the newest lines of a session, or those of the page that the address names."""
    found = await page.mesh.sessions.GetSession(session_pb2.GetSessionRequest(session_id=session_id))
    lines, turns, holds = await asyncio.gather(
        page.mesh.sessions.ReadSession(
            session_pb2.ReadSessionRequest(
                session_id=session_id, page_size=PAGE_SIZE, page_token=page.query("page"), from_end=True
            )
        ),
        page.mesh.turns.ListTurns(delegation_pb2.ListTurnsRequest(session_id=session_id, page_size=_TURNS)),
        page.mesh.drafts.GetHold(draft_pb2.GetHoldRequest(session_id=session_id)),
    )
    going = [turn for turn in turns.turns if not turn.HasField("ended_at")][:_MOST_OPEN]
    waits = await asyncio.gather(*(_wait(page, turn.id) for turn in going))
    return Conversation(
        found.session,
        lines.entries,
        lines.next_page_token,
        turns.turns,
        [Open(turn, wait) for turn, wait in zip(going, waits, strict=True)],
        holds.holds,
    )


async def _wait(page: Page, turn_id: str) -> floor_pb2.Wait | None:
    try:
        tree = await page.mesh.floor.GetTree(floor_pb2.GetTreeRequest(turn_id=turn_id))
    except HoplineError as error:
        if error.reason == "not_found":
            return None  # it is gone since
        raise
    node = next((each for each in tree.nodes if each.turn.id == turn_id), None)
    return node.wait if node is not None and node.HasField("wait") else None


async def choose(page: Page, to: str, *, leads_only: bool) -> Response:
    """List the agents to go on with."""
    found = await page.mesh.agents.ListAgents(
        agent_pb2.ListAgentsRequest(page_size=PAGE_SIZE, page_token=page.query("page"))
    )
    agents = [each for each in found.agents if not (leads_only and each.is_subagent)]
    return await page.render("talk/choose.html", agents=agents, to=to, more=found.next_page_token)
