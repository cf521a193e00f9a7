"""`/chat`: a conversation with a main agent, what its answer waits for, and answers that are held."""

from __future__ import annotations

from typing import Final

from hopline.registry.v1 import agent_pb2, plugin_pb2
from hopline.relay.v1 import session_pb2
from hopline_rpc.errors import HoplineError
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE, Page
from hopline_console.pages import conversation
from hopline_console.pages.prompting import Prompt, send
from hopline_console.words import OPERATOR

NAV: Final = (Item("Answer", "Chat", "/chat"),)


def routes(context: ConsoleContext) -> list[Route]:
    """Return the routes."""
    return [context.get("/chat", chat), context.post("/chat", say)]


async def chat(page: Page) -> Response:
    """Show the newest lines of a session; without one, those there are; without an agent, the agents."""
    ref = page.query("agent")
    if not ref:
        return await conversation.choose(page, "chat", leads_only=True)
    return await _chat(page, ref, page.query("session"), Prompt())


async def say(page: Page) -> Response:
    """Prompt the agent, in the session or a new one; a command of a plugin leads to whom it went."""
    agent, session_id = await page.field("agent"), await page.field("session")
    sent = await send(page, agent, session_id)
    if isinstance(sent, Prompt):
        return await _chat(page, agent, session_id, sent)
    return page.go(f"/chat?agent={sent.agent.id}&session={sent.session_id}")


async def _chat(page: Page, ref: str, session_id: str, prompt: Prompt) -> Response:
    found = await page.mesh.agents.GetAgent(agent_pb2.GetAgentRequest(agent=ref))
    talks = found.role >= OPERATOR and not found.agent.is_subagent
    shown = await conversation.read(page, session_id) if session_id else None
    return await page.render(
        "talk/chat.html",
        status=prompt.status,
        agent=found.agent,
        may_prompt=talks and (shown is None or shown.session.state != "closed"),
        may_release=found.role >= OPERATOR,
        shown=shown,
        sessions=[] if session_id else await _sessions(page, found.agent.id),
        commands=await _commands(page) if talks else [],
        prompt=prompt,
    )


async def _sessions(page: Page, agent_id: str) -> list[session_pb2.Session]:
    request = session_pb2.ListSessionsRequest(agent=agent_id, channel="human", page_size=PAGE_SIZE)
    return list((await page.mesh.sessions.ListSessions(request)).sessions)


async def _commands(page: Page) -> list[tuple[str, str]]:
    """Return the commands of plugins, to whoever may prompt their agents."""
    if (await page.me()).workspace_role < OPERATOR:
        return []
    try:
        found = await page.mesh.plugins.ListPlugins(plugin_pb2.ListPluginsRequest(page_size=PAGE_SIZE))
    except HoplineError as error:
        if error.reason == "permission_denied":
            return []
        raise
    names = [command.name for plugin in found.plugins for command in plugin.manifest.commands]
    return [
        (f"{plugin.manifest.key}__{each.name}" if names.count(each.name) > 1 else each.name, each.description)
        for plugin in found.plugins
        for each in plugin.manifest.commands
    ]
