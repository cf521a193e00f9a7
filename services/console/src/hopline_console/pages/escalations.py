"""`/escalations`: what agents ask their owners, answered or taken back."""

from __future__ import annotations

from typing import Final

from hopline.relay.v1 import escalation_pb2 as pb
from hopline_rpc.errors import HoplineError
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.context import ConsoleContext
from hopline_console.forms.fields import plain
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE, STATUS, Page
from hopline_console.pages.roles import roles_on
from hopline_console.words import OPERATOR

NAV: Final = (Item("Answer", "Questions", "/escalations"),)


def routes(context: ConsoleContext) -> list[Route]:
    """Return the routes."""
    return [
        context.get("/escalations", listed),
        context.get("/escalations/{escalation}", one),
        context.post("/escalations/{escalation}/answer", answer),
        context.post("/escalations/{escalation}/withdraw", withdraw),
    ]


async def listed(page: Page) -> Response:
    """List questions: what is pending, or everything."""
    request = pb.ListEscalationsRequest(
        agent=page.query("agent"),
        all=bool(page.query("all")),
        page_size=PAGE_SIZE,
        page_token=page.query("page"),
    )
    found = await page.mesh.escalations.ListEscalations(request)
    pending = sorted(
        found.escalations, key=lambda each: each.status != pb.ESCALATION_STATUS_PENDING
    )  # a stable sort: newest first among each
    return await page.render("talk/escalations.html", escalations=pending, more=found.next_page_token)


async def one(page: Page) -> Response:
    """Show a question."""
    return await _one(page)


async def _one(page: Page, *, typed: str = "", problem: str = "", status: int = 200) -> Response:
    found = await _question(page)
    roles = await roles_on(page, [found.agent.id])
    mine = found.owner.kind == "user" and found.owner.id == page.principal.id
    return await page.render(
        "talk/escalation.html",
        status=status,
        question=found,
        pending=found.status == pb.ESCALATION_STATUS_PENDING,
        may_answer=mine or roles.get(found.agent.id, 0) >= OPERATOR,
        typed=typed,
        problem=problem,
    )


async def _question(page: Page) -> pb.Escalation:
    request = pb.GetEscalationRequest(escalation_id=page.path("escalation"))
    return (await page.mesh.escalations.GetEscalation(request)).escalation


async def answer(page: Page) -> Response:
    """Answer with one of the options, by its place among them, or where there are none in one's own words."""
    options = (await _question(page)).options
    text = plain(await page.field("text"))
    if options:
        chosen = await page.field("option")
        if not (chosen.isdecimal() and len(chosen) < 9 and int(chosen) < len(options)):
            return await _one(page, problem="choose one of the answers", status=400)
        text = options[int(chosen)]
    elif not text.strip():
        return await _one(page, problem="write an answer", status=400)
    request = pb.AnswerEscalationRequest(escalation_id=page.path("escalation"), text=text)
    try:
        await page.mesh.escalations.AnswerEscalation(request)
    except HoplineError as error:
        if error.reason in {"not_found", "unauthenticated"}:
            raise
        return await _one(page, typed=text, problem=error.message, status=STATUS.get(error.reason, 409))
    return page.go(f"/escalations/{page.path('escalation')}", "The agent has your answer.")


async def withdraw(page: Page) -> Response:
    """End a question without an answer."""
    request = pb.WithdrawEscalationRequest(
        escalation_id=page.path("escalation"), reason=plain(await page.field("reason"))
    )
    await page.mesh.escalations.WithdrawEscalation(request)
    return page.go(f"/escalations/{page.path('escalation')}", "The question was taken back.")
