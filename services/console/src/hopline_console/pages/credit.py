"""`/credits`: what the workspace has paid in, what its turns have cost, and paying in."""

from __future__ import annotations

from typing import Final

from hopline.quota.v1 import credit_pb2 as pb
from hopline_rpc.clock import from_timestamp
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.blocks import Ask, Block, Cell, Facts, Moment, Note, Table
from hopline_console.context import ConsoleContext
from hopline_console.forms import Field, Filled, Form
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE as PAGE
from hopline_console.visit import Visit, routed
from hopline_console.words import ADMIN

NAV: Final = (Item("Set up", "Credits", "/credits"),)

_FORM: Final = Form(
    "/credits",
    "Pay in",
    "Pay in",
    (
        Field(
            "amount",
            "Amount",
            hint="A number such as 100 or 12.5, up to 6 decimals.",
            required=True,
            longest=16,
        ),
        Field("note", "What it is for", longest=200),
    ),
)


def routes(context: ConsoleContext) -> list[Route]:
    """Return the page of credits."""
    return [*routed(context, "/credits", get=show, post=deposit)]


async def show(visit: Visit) -> Response:
    """Show the balance and what was paid in."""
    return await _page(visit, _FORM.empty())


async def _page(visit: Visit, filled: Filled) -> Response:
    held = (await visit.mesh.credits.GetBalance(pb.GetBalanceRequest())).credits
    request = pb.ListDepositsRequest(page_size=PAGE, page_token=visit.asked("page"))
    page = await visit.mesh.credits.ListDeposits(request)
    pairs: list[tuple[str, Cell]] = [
        ("Balance", held.balance),
        ("Paid in", held.deposited),
        ("Charged", held.charged),
        ("Price of a turn", held.price),
    ]
    blocks: list[Block] = [Facts("The workspace", pairs)]
    if held.price == "off":
        blocks.append(Note("Turns cost nothing: the policy has no price."))
    rows: list[list[Cell]] = [
        [Moment(from_timestamp(each.created_at)), each.amount, each.note or "—", each.user_name]
        for each in page.deposits
    ]
    columns = ("When", "Amount", "What for", "By")
    blocks.append(Table("Deposits", columns, rows, "Nothing was paid in.", more=page.next_page_token))
    if visit.role >= ADMIN:
        blocks.append(Ask(filled))
    return await visit.page("Credits", blocks, filled=filled)


async def deposit(visit: Visit) -> Response:
    """Pay in; the same form sent twice pays in once."""
    visit.require(visit.role, ADMIN)
    filled = _FORM.read(await visit.posted())

    async def act() -> Response:
        request = pb.DepositRequest(request_id=filled.once, **filled.values)
        made = (await visit.mesh.credits.Deposit(request)).deposit
        return visit.done("/credits", f"{made.amount} paid in.")

    return await visit.answer(filled, act, lambda: _page(visit, filled))
