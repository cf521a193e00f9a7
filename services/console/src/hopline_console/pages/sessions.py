"""`/playground`, `/sessions/<id>` and `/chat`: an agent's sessions on every channel, read and prompted."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from hopline.registry.v1 import agent_pb2
from hopline.relay.v1 import delegation_pb2, draft_pb2, session_pb2, timer_pb2, todo_pb2
from hopline_rpc.errors import HoplineError
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE, Page
from hopline_console.words import OPERATOR

NAV: Final = (Item("Answer", "Chat", "/chat"), Item("Answer", "Playground", "/playground"))

_READ: Final = 200
# So many pages of a transcript are read to get to its end.
_MOST_READ: Final = 25
_TURNS: Final = 20


def routes(context: ConsoleContext) -> list[Route]:
    """Return the routes."""
    return [
        context.get("/chat", chat),
        context.post("/chat", say),
        context.get("/playground", playground),
        context.post("/playground", say),
        context.get("/sessions/{session}", one),
        context.post("/sessions/{session}/prompt", say),
    ]


async def playground(page: Page) -> Response:
    """List an agent's sessions, on every channel; without an agent, the agents."""
    ref = page.query("agent")
    if not ref:
        return await _choose(page, "playground", leads_only=False)
    found = await page.mesh.agents.GetAgent(agent_pb2.GetAgentRequest(agent=ref))
    request = session_pb2.ListSessionsRequest(agent=ref, page_size=PAGE_SIZE, page_token=page.query("page"))
    listed = await page.mesh.sessions.ListSessions(request)
    channels = sorted({each.channel for each in listed.sessions})
    channel = page.query("channel")
    return await page.render(
        "talk/playground.html",
        agent=found.agent,
        may_prompt=found.role >= OPERATOR and not found.agent.is_subagent,
        sessions=[each for each in listed.sessions if channel in ("", each.channel)],
        channels=(("", "every channel"), *((each, each) for each in channels)),
        more=listed.next_page_token,
        request_id=str(uuid.uuid4()),
    )


async def chat(page: Page) -> Response:
    """Chat with a main agent: the transcript of one session, and what its answer waits for."""
    ref = page.query("agent")
    if not ref:
        return await _choose(page, "chat", leads_only=True)
    return await _chat(page, ref, page.query("session"))


async def _chat(
    page: Page, ref: str, session_id: str, *, typed: str = "", problem: str = "", status: int = 200
) -> Response:
    found = await page.mesh.agents.GetAgent(agent_pb2.GetAgentRequest(agent=ref))
    listed = await page.mesh.sessions.ListSessions(
        session_pb2.ListSessionsRequest(agent=found.agent.id, page_size=PAGE_SIZE)
    )
    mine = [each for each in listed.sessions if each.channel == "human"]
    session = (await _session(page, session_id)) if session_id else None
    plugins = await _commands(page)
    return await page.render(
        "talk/chat.html",
        status=status,
        agent=found.agent,
        may_prompt=found.role >= OPERATOR,
        session=session,
        sessions=mine,
        entries=await _end_of(page, session_id) if session_id else [],
        turns=await _turns(page, session_id) if session_id else [],
        holds=await _holds(page, session_id) if session_id else [],
        commands=plugins,
        typed=typed,
        problem=problem,
        request_id=str(uuid.uuid4()),
    )


async def one(page: Page) -> Response:
    """Show a session: whose it is, who opened it, its transcript, todos, timers, turns."""
    session_id = page.path("session")
    session = await _session(page, session_id)
    found = await page.mesh.agents.GetAgent(agent_pb2.GetAgentRequest(agent=session.agent.id))
    read = await page.mesh.sessions.ReadSession(
        session_pb2.ReadSessionRequest(
            session_id=session_id, page_size=PAGE_SIZE, page_token=page.query("page")
        )
    )
    todos = await page.mesh.todos.ListTodos(todo_pb2.ListTodosRequest(session_id=session_id, all=True))
    timers = await page.mesh.timers.ListTimers(timer_pb2.ListTimersRequest(session_id=session_id))
    return await page.render(
        "talk/session.html",
        session=session,
        agent=found.agent,
        may_prompt=found.role >= OPERATOR and not found.agent.is_subagent and session.state != "closed",
        entries=read.entries,
        more=read.next_page_token,
        todos=todos.todos,
        todo_list=todos.list,
        timers=timers.timers,
        turns=await _turns(page, session_id),
        holds=await _holds(page, session_id),
        request_id=str(uuid.uuid4()),
    )


async def say(page: Page) -> Response:
    """Prompt an agent; the same form sent twice prompts once."""
    agent, session_id = await page.field("agent"), await page.field("session")
    text = (await page.field("text")).strip()
    request_id = await page.field("request_id")
    try:
        uuid.UUID(request_id)
    except ValueError:
        request_id = str(uuid.uuid4())
    try:
        if not text:
            raise HoplineError("invalid_argument", "say something first")
        made = await page.mesh.sessions.Prompt(
            session_pb2.PromptRequest(
                agent=agent, text=text, session_id=session_id, wait_seconds=0, request_id=request_id
            )
        )
    except HoplineError as error:
        if error.reason in {"not_found", "unauthenticated", "permission_denied"}:
            raise
        return await _chat(page, agent, session_id, typed=text, problem=error.message, status=409)
    if page.request.url.path.startswith("/sessions/"):
        return page.go(f"/sessions/{made.turn.session_id}")
    return page.go(f"/chat?agent={agent}&session={made.turn.session_id}")


async def _choose(page: Page, to: str, *, leads_only: bool) -> Response:
    found = await page.mesh.agents.ListAgents(
        agent_pb2.ListAgentsRequest(page_size=PAGE_SIZE, page_token=page.query("page"))
    )
    agents = [each for each in found.agents if not (leads_only and each.is_subagent)]
    return await page.render("talk/choose.html", agents=agents, to=to, more=found.next_page_token)


async def _session(page: Page, session_id: str) -> session_pb2.Session:
    found = await page.mesh.sessions.GetSession(session_pb2.GetSessionRequest(session_id=session_id))
    return found.session


async def _end_of(page: Page, session_id: str) -> Sequence[session_pb2.TranscriptEntry]:
    """Return the last entries of a transcript, which is read from its beginning."""
    request = session_pb2.ReadSessionRequest(session_id=session_id, page_size=_READ)
    entries: list[session_pb2.TranscriptEntry] = []
    for _ in range(_MOST_READ):
        read = await page.mesh.sessions.ReadSession(request)
        entries = [*entries, *read.entries][-PAGE_SIZE:]
        request.page_token = read.next_page_token
        if not read.next_page_token:
            break
    return entries


async def _turns(page: Page, session_id: str) -> Sequence[delegation_pb2.Turn]:
    found = await page.mesh.turns.ListTurns(
        delegation_pb2.ListTurnsRequest(session_id=session_id, page_size=_TURNS)
    )
    return found.turns


async def _holds(page: Page, session_id: str) -> Sequence[draft_pb2.Hold]:
    found = await page.mesh.drafts.GetHold(draft_pb2.GetHoldRequest(session_id=session_id))
    return found.holds


async def _commands(page: Page) -> list[tuple[str, str]]:
    """Return the commands that plugins contribute, where the person may see plugins."""
    from hopline.registry.v1 import plugin_pb2

    try:
        found = await page.mesh.plugins.ListPlugins(plugin_pb2.ListPluginsRequest(page_size=PAGE_SIZE))
    except HoplineError:
        return []
    return [
        (command.name, command.description)
        for plugin in found.plugins
        for command in plugin.manifest.commands
    ]
