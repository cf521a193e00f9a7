"""`hopline credits`: pay in, and see what is left."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Output
from hopline_cli.verbs import Cursor, Limit, command

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

app = typer.Typer(help="Credits of the workspace: what its turns may cost.", no_args_is_help=True)


@command(app, "deposit")
async def deposit(
    mesh: Mesh,
    out: Output,
    amount: Annotated[str, typer.Argument(metavar="AMOUNT", help="Such as 100 or 12.5.")],
    note: Annotated[str, typer.Option("--note", help="What it is for.", show_default=False)] = "",
    request_id: Annotated[
        str, typer.Option(metavar="UUID", help="Repeated with it, it is paid once.", show_default=False)
    ] = "",
) -> None:
    """Pay in. Needs the role admin."""
    from hopline.quota.v1 import credit_pb2 as pb

    from hopline_cli import shapes

    request = pb.DepositRequest(amount=amount, note=note, request_id=request_id or str(uuid.uuid4()))
    made = await mesh.credits.Deposit(request)
    found = shapes.deposit(made.deposit)
    out.result(found, f"{found['amount']} credits deposited ({found['id']})")


@command(app, "show")
async def show(mesh: Mesh, out: Output) -> None:
    """Show the balance, what was paid in and charged, and the price of a turn."""
    from hopline.quota.v1 import credit_pb2 as pb

    from hopline_cli import shapes

    found = await mesh.credits.GetBalance(pb.GetBalanceRequest())
    out.fields(shapes.credits(found.credits))


@command(app, "history")
async def history(mesh: Mesh, out: Output, limit: Limit = 50, cursor: Cursor = "") -> None:
    """List what was paid in, newest first."""
    from hopline.quota.v1 import credit_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        page = await mesh.credits.ListDeposits(pb.ListDepositsRequest(page_size=size, page_token=at))
        return [shapes.deposit(each) for each in page.deposits], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    columns = [("AT", "created_at"), ("AMOUNT", "amount"), ("BY", "user.name"), ("NOTE", "note")]
    out.rows("deposits", items, [*columns, ("ID", "id")], rest)
