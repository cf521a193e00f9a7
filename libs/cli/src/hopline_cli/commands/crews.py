"""`hopline crew`: a lead and its specialists, from a file."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Output
from hopline_cli.verbs import Cursor, Limit, command

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

crew = typer.Typer(help="Crews: a lead and its specialists, made and kept by a file.", no_args_is_help=True)

Name = Annotated[
    str,
    typer.Argument(
        metavar="CREW", help="The crew's name.", parser=lambda text: unicodedata.normalize("NFC", text)
    ),
]
Owner = Annotated[
    str, typer.Option("--owner", metavar="U", help="Whose crew; yours without it.", show_default=False)
]


@command(crew, "apply")
async def apply_crew(
    mesh: Mesh,
    out: Output,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The crew's file (crew.yaml).")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False,
    only_missing: Annotated[
        bool,
        typer.Option("--only-missing", help="Make who is missing; change and delete nobody who is there."),
    ] = False,
    plan: Annotated[
        str,
        typer.Option(metavar="ID", help="Only if the plan is still the one printed.", show_default=False),
    ] = "",
    owner: Owner = "",
    tokens_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep a token file (mode 0600) for each member here.", show_default=False
        ),
    ] = None,
) -> None:
    """Make a crew what its file says: create who is missing, update who differs, delete who is not in it."""
    from hopline.registry.v1 import crew_pb2 as pb
    from hopline_files.crew_file import read_crew
    from hopline_rpc.errors import HoplineError

    from hopline_cli import crew_shapes, crew_tokens

    read = read_crew(file)
    folder = None if tokens_dir is None or dry_run else crew_tokens.made(tokens_dir)
    request = pb.ApplyCrewRequest(
        crew=read.name,
        members=[each.wanted for each in read.members],
        owner=owner,
        dry_run=dry_run,
        only_missing=only_missing,
        expected_plan_id=plan,
    )
    try:
        applied = await mesh.crews.ApplyCrew(request)
    except HoplineError as refusal:
        raise read.with_places(refusal) from None
    members = [crew_shapes.planned(each) for each in applied.members]
    if folder is not None:
        await crew_tokens.keep(mesh, folder, members)
    told = {
        "crew": read.name,
        "dry_run": dry_run,
        "plan_id": applied.plan_id,
        "counts": crew_shapes.counts(members),
        "members": members,
    }
    lines = [f"crew {read.name}: {crew_shapes.summary(members)}", *crew_shapes.plan_lines(members)]
    out.result(told, *lines, *_after(told, folder))


def _after(told: dict[str, Any], folder: Path | None) -> list[str]:
    """Return what a person does next."""
    counts = told["counts"]
    if not (counts["create"] or counts["update"] or counts["delete"]):
        return ["there is nothing to change"]
    if told["dry_run"]:
        again = f"--plan {told['plan_id']} in place of --dry-run"
        return [f"nothing was changed; to do exactly this, run it with {again}"]
    lines = ["done"]
    if folder is not None:
        lines.append(f"tokens are in {folder}, a file for each member")
    elif counts["create"]:
        new = next(each["slug"] for each in told["members"] if each["action"] == "create")
        lines.append(f"give each a worker: hopline attach --agent {new} -- COMMAND")
    return lines


@command(crew, "list")
async def list_crews(mesh: Mesh, out: Output, limit: Limit = 50, cursor: Cursor = "") -> None:
    """List the crews of which you may see a member."""
    from hopline.registry.v1 import crew_pb2 as pb

    from hopline_cli import crew_shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        page = await mesh.crews.ListCrews(pb.ListCrewsRequest(page_size=size, page_token=at))
        return [crew_shapes.crew(each) for each in page.crews], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    columns = [("NAME", "name"), ("OWNER", "owner.name"), ("MEMBERS", "members"), ("LEAD", "lead.slug")]
    out.rows("crews", items, columns, rest)


@command(crew, "show")
async def show_crew(
    mesh: Mesh, out: Output, name: Name, owner: Owner = "", limit: Limit = 50, cursor: Cursor = ""
) -> None:
    """List the members of a crew."""
    from hopline.registry.v1 import crew_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        request = pb.ListMembersRequest(crew=name, owner=owner, page_size=size, page_token=at)
        page = await mesh.crews.ListMembers(request)
        return [shapes.agent(each) for each in page.agents], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    if not out.as_json:
        slugs = {each["id"]: each["slug"] for each in items}
        items = [
            {**each, "parent": slugs.get(each["parent_agent_id"], each["parent_agent_id"])} for each in items
        ]
    columns = [("KEY", "key"), ("SLUG", "slug"), ("NAME", "name"), ("STATE", "state")]
    columns += [("PARENT", "parent"), ("ID", "id"), ("DESCRIPTION", "description")]
    out.rows("agents", items, columns, rest, {"crew": name})


@command(crew, "delete")
async def delete_crew(mesh: Mesh, out: Output, name: Name, owner: Owner = "") -> None:
    """Delete all members of a crew; their threads stay readable."""
    from hopline.registry.v1 import crew_pb2 as pb

    gone = (await mesh.crews.DeleteCrew(pb.DeleteCrewRequest(crew=name, owner=owner))).agents
    members = [{"key": each.key, "id": each.id, "slug": each.slug} for each in gone]
    said = f"crew {name} deleted: {', '.join(each.slug for each in gone)}"
    out.result({"crew": name, "deleted": True, "members": members}, said)
