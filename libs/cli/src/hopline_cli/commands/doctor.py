"""`hopline doctor`: what is wrong with the mesh, and what to do, on one page."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hopline_cli.output import Output
from hopline_cli.verbs import REFUSED, AsJson, Data, Workspace

if TYPE_CHECKING:
    from hopline_cli.doctor.findings import Finding

app = typer.Typer()

_SIGNS: Final = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("wrong", "red")}


@app.command("doctor")
def doctor(
    data: Data = None,
    workspace: Workspace = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say only what is wrong.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with the mesh, and what to do about it. Exit status 1 when something is."""
    from hopline_cli.verbs import execute

    found: list[Finding] = []

    async def look() -> None:
        found.extend([each async for each in _findings(data, workspace)])

    status = execute(look, as_json=as_json)
    if status:
        raise typer.Exit(status)
    problems = sum(each.grade == "problem" for each in found)
    _tell(Output(as_json=as_json), [each for each in found if each.grade != "ok" or not quiet], problems)
    raise typer.Exit(REFUSED if problems else 0)


def _tell(out: Output, found: list[Finding], problems: int) -> None:
    if out.as_json:
        out.json({"healthy": not problems, "findings": [dataclasses.asdict(each) for each in found]})
        return
    # What is wrong last: there it is seen.
    for each in sorted(found, key=lambda each: list(_SIGNS).index(each.grade)):
        sign, style = _SIGNS[each.grade]
        out.line(f"{sign:<6} {each.check}: {each.text}", style)
        if each.todo:
            out.line(f"       -> {each.todo}")
    out.line(f"{problems} wrong" if problems else "nothing is wrong", "red" if problems else "green")


async def _findings(data: Path | None, workspace: str | None) -> AsyncIterator[Finding]:
    from hopline_client import discovery

    from hopline_cli.doctor.inside import of_clock, of_readiness, readiness
    from hopline_cli.mesh import source_of

    source = source_of(data)
    urls: list[str] = []
    if isinstance(source, discovery.DataDir):
        found, urls = _place(source.path)
        for finding in found:
            yield finding
    elif isinstance(source, discovery.Gateway):
        urls = [source.url]
    for url in urls:
        status, text, date = await asyncio.to_thread(readiness, url)
        for finding in (*of_readiness(status, text, url), *of_clock(date)):
            yield finding
    if urls:
        async for finding in _inside(data, workspace):
            yield finding


def _place(folder: Path) -> tuple[list[Finding], list[str]]:
    """Look at a data directory; returns where the mesh on it says how it is, nowhere where none runs."""
    from hopline_cli.doctor.place import endpoints, of_folder, of_ports, runs

    found = list(of_folder(folder))
    if not folder.is_dir():
        return found, []
    said = endpoints(folder)
    up = runs(folder, said)
    found += of_ports(folder, said, up=up)
    if not up or said is None:
        return found, []
    urls = [str(url) for name, url in said.items() if name.endswith("metrics") and url]
    return found, urls or ([str(said["gateway"])] if said.get("gateway") else [])


async def _inside(data: Path | None, workspace: str | None) -> AsyncIterator[Finding]:
    from hopline_rpc.errors import HoplineError

    from hopline_cli.doctor.findings import problem
    from hopline_cli.doctor.inside import of_agents, of_record
    from hopline_cli.mesh import find

    try:
        mesh = await find(data, workspace)
    except HoplineError as error:
        yield problem("mesh", error.message, "give an admin's token: HOPLINE_TOKEN_FILE, or --data")
        return
    try:
        for look in (of_record, of_agents):
            async for finding in look(mesh):
                yield finding
    except HoplineError as error:
        yield problem(
            "mesh", f"it cannot be asked: {error.message}", "mend what is wrong above, then look again"
        )
    finally:
        await mesh.close()
