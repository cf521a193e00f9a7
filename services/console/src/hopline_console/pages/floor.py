"""The floor: the workspace's agents, how they stand, what each is doing and what waits for it."""

from __future__ import annotations

from typing import Final

from hopline.relay.v1 import floor_pb2
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE, Page
from hopline_console.pages.exchanges import window

NAV: Final = (Item("See", "Floor", "/floor"),)


def routes(context: ConsoleContext) -> list[Route]:
    """Return the routes."""
    return [context.get("/floor", floor)]


async def floor(page: Page) -> Response:
    """Show the agents; of one agent with `channel=relay` its exchanges are another page."""
    if page.query("agent") and page.query("channel") == "relay":
        return await window(page)
    request = floor_pb2.GetFloorRequest(
        agent=page.query("agent"), page_size=PAGE_SIZE, page_token=page.query("page")
    )
    found = await page.mesh.floor.GetFloor(request)
    return await page.render("floor/floor.html", floor=found)
