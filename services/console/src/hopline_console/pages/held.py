"""`/held`: answers that are held, with what they wait for and their drafts."""

from __future__ import annotations

from typing import Final

from hopline.relay.v1 import draft_pb2 as pb
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE, Page, own_path
from hopline_console.pages.roles import roles_on

NAV: Final = (Item("Answer", "Held answers", "/held"),)


def routes(context: ConsoleContext) -> list[Route]:
    """Return the routes."""
    return [context.get("/held", listed), context.post("/held/release", release)]


async def listed(page: Page) -> Response:
    """List what is held, newest first."""
    request = pb.ListHeldRequest(
        agent=page.query("agent"), page_size=PAGE_SIZE, page_token=page.query("page")
    )
    found = await page.mesh.drafts.ListHeld(request)
    roles = await roles_on(page, [each.agent.id for each in found.holds])
    return await page.render("talk/held.html", holds=found.holds, roles=roles, more=found.next_page_token)


async def release(page: Page) -> Response:
    """Send a draft as it is."""
    request = pb.ReleaseDraftRequest(session_id=await page.field("session"), turn_id=await page.field("turn"))
    await page.mesh.drafts.ReleaseDraft(request)
    return page.go(own_path(await page.field("back", "/held")), "The draft was sent as it is.")
