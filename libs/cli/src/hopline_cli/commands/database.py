"""`hopline db …`, `hopline export` and `hopline import`: looking after what a mesh keeps.

They work on the databases themselves, with or without a mesh that runs on them: on the SQLite files of a data
directory, or on the PostgreSQL that HOPLINE_DATABASE_URL names, as it does for the services.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Json, Output
from hopline_cli.progress import bar
from hopline_cli.verbs import AsJson, Data, execute

if TYPE_CHECKING:
    from hopline_store.keeping.archive import Manifest
    from hopline_store.records import Place, Records

app = typer.Typer(help="The databases: migrate, check, back up, restore.", no_args_is_help=True)
moving = typer.Typer()

ToFile = Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write; it must not be there.")]
FromFile = Annotated[Path, typer.Argument(metavar="FILE", help="The archive to read.")]


@app.command("upgrade")
def upgrade(data: Data = None, as_json: AsJson = False) -> None:
    """Bring the databases to this version. Services do so themselves when they start.

    SQLite: while no mesh runs on it. PostgreSQL: before the first service of the new version starts.
    """

    def work(out: Output) -> None:
        from hopline_store.migrations import migrate, revision_of

        place, stores = _place(data), _stores()
        steps = []
        with _whole(place), bar("migrating") as tell:
            for number, each in enumerate(reversed(stores)):
                tell(each.name, number, len(stores))
                with place.open(each) as engine:
                    before = revision_of(engine)
                    migrate(engine, each.migrations)
                    after = revision_of(engine)
                steps.append({"store": each.name, "before": before, "after": after})
        out.result({"stores": steps}, *map(_step, steps))

    _run(work, as_json=as_json)


@app.command("check")
def check(
    archive: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Check this archive instead.", show_default=False),
    ] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Look whether the databases are whole, of this version, and do not contradict themselves.

    May be run while the mesh runs. Ends with exit status 1 where something is wrong.
    """

    def work(out: Output) -> None:
        if archive is not None:
            _check_archive(archive, out)
        else:
            _check_stores(data, out)

    _run(work, as_json=as_json)


@app.command("backup")
def backup(file: ToFile, data: Data = None, as_json: AsJson = False) -> None:
    """Write everything a mesh keeps into FILE, while it runs: databases, keys, tokens.

    FILE is for its owner alone: whoever has it can act as anybody in the mesh.
    """

    def work(out: Output) -> None:
        from hopline_store.keeping.backup import back_up

        with bar("backing up") as tell:
            manifest = back_up(_place(data), _stores(), file.absolute(), tell)
        _said(out, file, manifest, "backed up to", f"hopline db restore {file}")

    _run(work, as_json=as_json)


@app.command("restore")
def restore(file: FromFile, data: Data = None, as_json: AsJson = False) -> None:
    """Put a backup into an empty data directory, or an empty PostgreSQL, and bring it to this version."""
    _run(lambda out: _put_back(file, data, out, ("sqlite", "rows")), as_json=as_json)


@moving.command("export")
def export(file: ToFile, data: Data = None, as_json: AsJson = False) -> None:
    """Write everything a mesh keeps into FILE, as rows that SQLite and PostgreSQL both take in.

    Stop the mesh first: what is written after the export is not in it.
    """

    def work(out: Output) -> None:
        from hopline_store.keeping.backup import export

        with bar("exporting") as tell:
            manifest = export(_place(data), _stores(), file.absolute(), tell)
        _said(out, file, manifest, "exported to", f"hopline import {file}")

    _run(work, as_json=as_json)


@moving.command("import")
def import_(file: FromFile, data: Data = None, as_json: AsJson = False) -> None:
    """Take in what `hopline export` wrote: into an empty data directory, or an empty PostgreSQL.

    Ids, history and everything under way are kept; what ran goes on as after a restart.
    """
    _run(lambda out: _put_back(file, data, out, ("rows",)), as_json=as_json)


def _put_back(file: Path, data: Path | None, out: Output, kinds: Sequence[str]) -> None:
    from hopline_rpc.errors import HoplineError
    from hopline_store.keeping.archive import Archive
    from hopline_store.keeping.restore import refuse_used_folder, restore

    place, stores = _place(data), _stores()
    with Archive(file) as archive:
        if archive.manifest.kind not in kinds:
            raise HoplineError(
                "failed_precondition",
                f"{file} is a backup of SQLite's files: use `hopline db restore {file}`",
            )
        if not place.url:
            refuse_used_folder(place.folder, stores)
        with _whole(place), bar("restoring") as tell:
            restore(place, stores, archive, tell)
        rows = _rows(archive.manifest)
    start = "hopline serve" if place.url else f"hopline up --data {place.folder}"
    out.result(
        {
            "restored": str(file),
            "made_at": archive.manifest.made_at,
            "rows": rows,
            "files": archive.manifest.files,
        },
        f"restored what {archive.manifest.made_by} kept at {archive.manifest.made_at}"
        + (f", {rows} rows" if rows else ""),
        f"next: {start}",
    )


def _check_archive(path: Path, out: Output) -> None:
    from hopline_store.keeping.archive import Archive

    with Archive(path) as archive:
        size = archive.verify()
        manifest = archive.manifest
        revisions = {name: each.revision for name, each in manifest.stores.items()}
    out.result(
        {"file": str(path), "made_at": manifest.made_at, "made_by": manifest.made_by, "revisions": revisions},
        f"{path} is whole: {size} bytes of {', '.join(revisions)}, made at {manifest.made_at}"
        f" by {manifest.made_by}",
    )


def _check_stores(data: Path | None, out: Output) -> None:
    from hopline_rpc.errors import HoplineError
    from hopline_store.keeping.checking import check

    with bar("checking") as tell:
        found = [check(_place(data), each, tell) for each in reversed(_stores())]
    shown = [vars(each) for each in found]
    wrong = [f"{each.store}: {problem}" for each in found for problem in each.problems]
    if wrong:
        raise HoplineError(
            "failed_precondition", "\n".join(wrong), details={"problems": wrong, "stores": shown}
        )
    out.result({"stores": shown}, *(f"{each.store}: whole, revision {each.revision}" for each in found))


def _place(data: Path | None) -> Place:
    from hopline_rpc.settings import StoreSettings
    from hopline_store.records import Place

    from hopline_cli.commands.run import default_data

    # As for the services themselves: with an address the folder has keys and tokens alone.
    return Place((data or default_data()).expanduser().absolute(), StoreSettings.load().database_url)


def _stores() -> Sequence[Records]:
    from hopline_rpc.errors import HoplineError

    try:
        from hopline_store.records import installed
    except ImportError:
        raise HoplineError(
            "failed_precondition", "the services are not installed here; install `hopline` as a whole"
        ) from None
    return installed()


def _whole(place: Place) -> Any:
    """Hold a data directory, so that no mesh runs on it meanwhile."""
    from contextlib import nullcontext

    from hopline_cli.running.datadir import DataDirectory

    return nullcontext() if place.url else DataDirectory(place.folder)


def _said(out: Output, file: Path, manifest: Manifest, done: str, back: str) -> None:
    size = file.stat().st_size
    out.result(
        {
            "file": str(file),
            "bytes": size,
            "kind": manifest.kind,
            "rows": _rows(manifest),
            "made_at": manifest.made_at,
        },
        f"{', '.join(manifest.stores)} {done} {file} ({size / 1e6:.1f} MB, for you alone)",
        f"to put it back: {back}",
    )


def _rows(manifest: Manifest) -> int:
    return sum(sum(each.tables.values()) for each in manifest.stores.values())


def _step(step: Json) -> str:
    if step["before"] == step["after"]:
        return f"{step['store']}: at revision {step['after']}, nothing to do"
    return f"{step['store']}: {step['before'] or 'new'} -> {step['after']}"


def _run(work: Callable[[Output], None], *, as_json: bool) -> None:
    out = Output(as_json=as_json)

    async def run() -> None:
        work(out)

    raise typer.Exit(execute(run, as_json=as_json))
