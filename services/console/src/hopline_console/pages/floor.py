"""The floor: the workspace's agents, how they stand and what each is doing."""

from __future__ import annotations

from typing import Final

from hopline.registry.v1 import agent_pb2
from hopline.relay.v1 import session_pb2
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE, Page

NAV: Final = (Item("See", "Floor", "/floor"),)


def routes(context: ConsoleContext) -> list[Route]:
    """Return the routes."""
    return [context.get("/floor", floor)]


async def floor(page: Page) -> Response:
    """Show the agents."""
    request = agent_pb2.ListAgentsRequest(page_size=PAGE_SIZE, page_token=page.query("page"))
    found = await page.mesh.agents.ListAgents(request)
    asked = session_pb2.GetPresenceRequest(agents=[agent.id for agent in found.agents])
    presence = (await page.mesh.sessions.GetPresence(asked)).presence if found.agents else {}
    return await page.render(
        "floor/floor.html", agents=found.agents, presence=dict(presence), more=found.next_page_token
    )
