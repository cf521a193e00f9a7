"""`/threads` and `/threads/<id>`: conversations between agents, message by message."""

from __future__ import annotations

from typing import Final

from hopline.relay.v1 import message_pb2
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE, Page

NAV: Final = (Item("See", "Threads", "/threads"),)


def routes(context: ConsoleContext) -> list[Route]:
    """Return the routes."""
    return [context.get("/threads", listed), context.get("/threads/{thread}", one)]


async def listed(page: Page) -> Response:
    """List threads, the newest activity first."""
    request = message_pb2.ListThreadsRequest(
        agent=page.query("agent"), page_size=PAGE_SIZE, page_token=page.query("page")
    )
    found = await page.mesh.messages.ListThreads(request)
    return await page.render("threads/list.html", threads=found.threads, more=found.next_page_token)


async def one(page: Page) -> Response:
    """Show a thread's messages in order, from the beginning or from those that lead to one of them."""
    goes_on = bool(page.query("page"))
    request = message_pb2.ListMessagesRequest(
        thread_id=page.path("thread"),
        message_id="" if goes_on else page.query("message"),
        from_end=bool(page.query("end")) and not goes_on and not page.query("message"),
        page_size=PAGE_SIZE,
        page_token=page.query("page"),
    )
    found = await page.mesh.messages.ListMessages(request)
    return await page.render(
        "threads/thread.html",
        thread_id=page.path("thread"),
        messages=found.messages,
        older=found.previous_page_token,
        newer=found.next_page_token,
    )
