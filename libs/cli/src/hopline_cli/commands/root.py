"""`hopline root`: what one act may start, and letting it start more."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Json, Output
from hopline_cli.verbs import Cursor, Limit, command

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

app = typer.Typer(help="Roots: the acts that chains of delegations go back to.", no_args_is_help=True)

OfRoot = Annotated[str, typer.Argument(metavar="ROOT|TURN", help="A root (rot_…), or a turn of it (trn_…).")]


@command(app, "show")
async def show(mesh: Mesh, out: Output, root: OfRoot) -> None:
    """Show how many turns a root has started and how many it may."""
    from hopline.relay.v1 import delegation_pb2 as pb

    from hopline_cli import shapes

    found = await mesh.turns.GetRoot(pb.GetRootRequest(**_named(root)))
    out.fields(shapes.root(found.root))


@command(app, "extend")
async def extend(
    mesh: Mesh,
    out: Output,
    root: OfRoot,
    turns: Annotated[int, typer.Argument(metavar="N", help="How many turns more.", min=1, max=1_000_000)],
    request_id: Annotated[
        str, typer.Option(metavar="UUID", help="Repeated with it, it extends once.", show_default=False)
    ] = "",
) -> None:
    """Let a root start N more turns. Needs the role admin on the agent it began with, as its owner has."""
    from hopline.relay.v1 import delegation_pb2 as pb

    from hopline_cli import shapes

    request = pb.ExtendRootRequest(turns=turns, request_id=request_id or str(uuid.uuid4()), **_named(root))
    found = shapes.root((await mesh.turns.ExtendRoot(request)).root)
    out.result(found, f"root {found['id']} may start {found['limit']} turns; it has started {found['turns']}")


@command(app, "list")
async def exhausted(mesh: Mesh, out: Output, limit: Limit = 50, cursor: Cursor = "") -> None:
    """List the roots of your agents that were refused further turns and wait to be extended."""
    from hopline.relay.v1 import delegation_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        request = pb.ListExhaustedRootsRequest(page_size=size, page_token=at)
        page = await mesh.turns.ListExhaustedRoots(request)
        return [shapes.root(each) for each in page.roots], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    columns = [("EXHAUSTED", "exhausted_at"), ("BEGAN WITH", "agent.name"), ("TURNS", "turns")]
    out.rows("roots", items, [*columns, ("OF", "limit"), ("ID", "id")], rest)


def _named(root: str) -> Json:
    return {"turn_id" if root.startswith("trn_") else "root_id": root}
