"""`/dead`: messages that never got through, tried again or thrown away."""

from __future__ import annotations

from typing import Final

from hopline.relay.v1 import dead_letter_pb2 as pb
from hopline_rpc.errors import HoplineError
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE, Page

NAV: Final = (Item("Answer", "Dead letters", "/dead"),)


def routes(context: ConsoleContext) -> list[Route]:
    """Return the routes."""
    return [
        context.get("/dead", listed),
        context.get("/dead/{turn}", one),
        context.post("/dead/retry", retry),
        context.post("/dead/purge", purge),
    ]


async def listed(page: Page) -> Response:
    """List dead letters, newest first."""
    request = pb.ListDeadLettersRequest(
        agent=page.query("agent"), page_size=PAGE_SIZE, page_token=page.query("page")
    )
    found = await page.mesh.dead.ListDeadLetters(request)
    return await page.render("talk/dead.html", letters=found.dead_letters, more=found.next_page_token)


async def one(page: Page) -> Response:
    """Show a dead letter."""
    found = await page.mesh.dead.GetDeadLetter(pb.GetDeadLetterRequest(turn_id=page.path("turn")))
    return await page.render("talk/dead_letter.html", letter=found.dead_letter)


async def retry(page: Page) -> Response:
    """Try those that were chosen again."""
    chosen = await _chosen(page)
    done = await page.mesh.dead.RetryDeadLetters(pb.RetryDeadLettersRequest(turn_ids=chosen))
    return page.go("/dead", f"{len(done.turn_ids)} of {len(chosen)} are queued again.")


async def purge(page: Page) -> Response:
    """Throw away those that were chosen."""
    chosen = await _chosen(page)
    done = await page.mesh.dead.PurgeDeadLetters(pb.PurgeDeadLettersRequest(turn_ids=chosen))
    return page.go("/dead", f"{done.purged} of {len(chosen)} were thrown away.")


async def _chosen(page: Page) -> list[str]:
    chosen = [str(each) for each in (await page.form()).getlist("turn") if isinstance(each, str)]
    if not chosen:
        raise HoplineError("invalid_argument", "choose at least one letter first")
    return list(dict.fromkeys(chosen))
