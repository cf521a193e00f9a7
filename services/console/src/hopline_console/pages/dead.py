"""`/dead`: messages that never got through, tried again or thrown away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hopline.relay.v1 import dead_letter_pb2 as pb
from hopline_rpc.errors import HoplineError
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE, STATUS, Page
from hopline_console.pages.roles import roles_on

NAV: Final = (Item("Answer", "Dead letters", "/dead"),)

_NONE: Final = "choose at least one letter first"


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
    return await _listed(page)


async def _listed(
    page: Page, *, chosen: Sequence[str] = (), sure: bool = False, problem: str = "", status: int = 200
) -> Response:
    request = pb.ListDeadLettersRequest(
        agent=page.query("agent"), page_size=PAGE_SIZE, page_token=page.query("page")
    )
    found = await page.mesh.dead.ListDeadLetters(request)
    roles = await roles_on(page, [each.agent.id for each in found.dead_letters])
    return await page.render(
        "talk/dead.html",
        status=status,
        letters=found.dead_letters,
        roles=roles,
        chosen=chosen,
        sure=sure,
        problem=problem,
        more=found.next_page_token,
    )


async def one(page: Page) -> Response:
    """Show a dead letter."""
    found = await page.mesh.dead.GetDeadLetter(pb.GetDeadLetterRequest(turn_id=page.path("turn")))
    agent_id = found.dead_letter.agent.id
    role = (await roles_on(page, [agent_id])).get(agent_id, 0)
    return await page.render("talk/dead_letter.html", letter=found.dead_letter, role=role)


async def retry(page: Page) -> Response:
    """Try those that were chosen again."""
    chosen = await _chosen(page)
    try:
        if not chosen:
            raise HoplineError("invalid_argument", _NONE)
        done = await page.mesh.dead.RetryDeadLetters(pb.RetryDeadLettersRequest(turn_ids=chosen))
    except HoplineError as error:
        return await _refused(page, chosen, error)
    return page.go("/dead", f"{len(done.turn_ids)} of {len(chosen)} are queued again.")


async def purge(page: Page) -> Response:
    """Throw away those that were chosen, once that was said twice."""
    chosen = await _chosen(page)
    try:
        if not chosen:
            raise HoplineError("invalid_argument", _NONE)
        if not await page.field("sure"):
            return await _listed(page, chosen=chosen, sure=True)
        done = await page.mesh.dead.PurgeDeadLetters(pb.PurgeDeadLettersRequest(turn_ids=chosen))
    except HoplineError as error:
        return await _refused(page, chosen, error)
    return page.go("/dead", f"{done.purged} of {len(chosen)} were thrown away.")


async def _refused(page: Page, chosen: Sequence[str], error: HoplineError) -> Response:
    """Show the list again with what was chosen; what is hidden or away has a page of its own."""
    if error.reason in {"not_found", "unauthenticated", "unavailable"}:
        raise error
    return await _listed(page, chosen=chosen, problem=error.message, status=STATUS.get(error.reason, 409))


async def _chosen(page: Page) -> list[str]:
    chosen = [str(each) for each in (await page.form()).getlist("turn") if isinstance(each, str)]
    return list(dict.fromkeys(chosen))
