"""`/playground` and `/sessions/<id>`: an agent's sessions on every channel, read and prompted."""

from __future__ import annotations

import asyncio
from typing import Final

from hopline.registry.v1 import agent_pb2
from hopline.relay.v1 import session_pb2, timer_pb2, todo_pb2
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE, Page
from hopline_console.pages import conversation
from hopline_console.pages.prompting import Prompt, send
from hopline_console.words import OPERATOR

NAV: Final = (Item("Answer", "Playground", "/playground"),)

CHANNELS: Final = ("human", "mcp", "relay", "schedule", "webhook")


def routes(context: ConsoleContext) -> list[Route]:
    """Return the routes."""
    return [
        context.get("/playground", playground),
        context.post("/playground", begin),
        context.get("/sessions/{session}", one),
        context.post("/sessions/{session}/prompt", say),
        context.post("/sessions/{session}/todo", remove_todo),
        context.post("/sessions/{session}/timer", cancel_timer),
    ]


async def playground(page: Page) -> Response:
    """List an agent's sessions, on every channel; without an agent, the agents."""
    ref = page.query("agent")
    if not ref:
        return await conversation.choose(page, "playground", leads_only=False)
    return await _playground(page, ref, Prompt())


async def _playground(page: Page, ref: str, prompt: Prompt) -> Response:
    found = await page.mesh.agents.GetAgent(agent_pb2.GetAgentRequest(agent=ref))
    channel = page.query("channel") if page.query("channel") in CHANNELS else ""
    request = session_pb2.ListSessionsRequest(
        agent=found.agent.id, channel=channel, page_size=PAGE_SIZE, page_token=page.query("page")
    )
    listed = await page.mesh.sessions.ListSessions(request)
    return await page.render(
        "talk/playground.html",
        status=prompt.status,
        agent=found.agent,
        may_prompt=found.role >= OPERATOR and not found.agent.is_subagent,
        sessions=listed.sessions,
        channel=channel,
        channels=(("", "every channel"), *((each, each) for each in CHANNELS)),
        more=listed.next_page_token,
        prompt=prompt,
    )


async def begin(page: Page) -> Response:
    """Prompt an agent in a new session."""
    agent = await page.field("agent")
    sent = await send(page, agent, "")
    if isinstance(sent, Prompt):
        return await _playground(page, agent, sent)
    return page.go(f"/sessions/{sent.session_id}")


async def one(page: Page) -> Response:
    """Show a session: whose it is, who opened it, its transcript, todos, timers, turns."""
    return await _one(page, Prompt())


async def _one(page: Page, prompt: Prompt) -> Response:
    session_id = page.path("session")
    shown = await conversation.read(page, session_id)
    found, todos, timers = await asyncio.gather(
        page.mesh.agents.GetAgent(agent_pb2.GetAgentRequest(agent=shown.session.agent.id)),
        page.mesh.todos.ListTodos(todo_pb2.ListTodosRequest(session_id=session_id, all=True)),
        page.mesh.timers.ListTimers(timer_pb2.ListTimersRequest(session_id=session_id)),
    )
    operates = found.role >= OPERATOR
    return await page.render(
        "talk/session.html",
        status=prompt.status,
        shown=shown,
        session=shown.session,
        agent=found.agent,
        operates=operates,
        may_prompt=operates and not found.agent.is_subagent and shown.session.state != "closed",
        todos=todos.todos,
        todo_list=todos.list,
        timers=timers.timers,
        prompt=prompt,
    )


async def say(page: Page) -> Response:
    """Prompt the agent of a session in it; a command of a plugin leads to where it went."""
    sent = await send(page, await page.field("agent"), page.path("session"))
    return await _one(page, sent) if isinstance(sent, Prompt) else page.go(f"/sessions/{sent.session_id}")


async def remove_todo(page: Page) -> Response:
    """Forget a todo, open or not."""
    await page.mesh.todos.RemoveTodo(todo_pb2.RemoveTodoRequest(todo_id=await page.field("todo")))
    return page.go(f"/sessions/{page.path('session')}", "The todo was removed.")


async def cancel_timer(page: Page) -> Response:
    """Call a timer off."""
    await page.mesh.timers.CancelTimer(timer_pb2.CancelTimerRequest(timer_id=await page.field("timer")))
    return page.go(f"/sessions/{page.path('session')}", "The timer was called off.")
