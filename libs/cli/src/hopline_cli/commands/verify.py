"""`hopline audit verify`: prove that the audit log is what was sealed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Json, Output
from hopline_cli.verbs import command, why

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

app = typer.Typer()

_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")
_MOST = 200


@command(app, "verify")
async def verify(
    mesh: Mesh,
    out: Output,
    head: Annotated[
        str,
        typer.Option(
            metavar="N:HASH", help="A head that was kept: the log must have passed it.", show_default=False
        ),
    ] = "",
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Verify against the head in FILE, if there is one, and keep the new head there.",
            show_default=False,
        ),
    ] = None,
    after_head: Annotated[
        bool, typer.Option("--after-head", help="Read only what came after the kept head.")
    ] = False,
) -> None:
    """Prove that the audit log is what was written: nothing changed, removed, inserted or moved.

    Prints the newest sealed head. Kept where nobody who writes to the mesh's disk can write, and given
    back with --head, it also proves that the seals themselves were not made anew.
    """
    from hopline_rpc.errors import HoplineError

    kept = _parsed(head or _read(keep), "--keep" if keep and not head else "--head")
    if after_head and kept is None:
        raise typer.BadParameter(
            "needs a head that was kept: --head N:HASH, or --keep FILE once a head is in it",
            param_hint="--after-head",
        )
    found = await _walk(mesh, kept, after_head=after_head)
    shown = _shown(found)
    if found.HasField("fault"):
        details = {**shown, "seq": found.fault.seq, "kind": found.fault.kind}
        text = f"the audit log is not what was sealed: {found.fault.message}"
        raise HoplineError("failed_precondition", text, details=details)
    if keep is not None and shown["head"]:
        _keep(keep, shown["head"])
    lines = [f"{found.checked} events are as they were sealed", f"head {shown['head']}"]
    if found.unsealed:
        lines.append(f"{found.unsealed} newer events are sealed within a minute")
    if shown["cut"]:
        lines.append(f"events up to {found.cut.seq} were deleted by retention, as the log says")
    if kept:
        lines.append(f"the log has passed the kept head {kept[0]}")
    out.result(shown, *lines)


async def _walk(mesh: Mesh, kept: tuple[int, str] | None, *, after_head: bool) -> Any:
    from hopline.relay.v1 import audit_pb2 as pb
    from hopline_rpc.errors import HoplineError

    request = pb.VerifyEventsRequest(after_kept=after_head)
    if kept is not None:
        request.kept.seq, request.kept.hash = kept
    async for response in mesh.events.VerifyEvents(request):
        if response.done:
            return response
    raise HoplineError("unavailable", "the relay went away before the log was read to its end; try again")


def _shown(found: Any) -> Json:
    return {
        "checked": found.checked,
        "head": _text(found.head),
        "unsealed": found.unsealed,
        "cut": _text(found.cut),
    }


def _text(head: Any) -> str | None:
    return f"{head.seq}:{head.hash}" if head.seq else None


def _read(keep: Path | None) -> str:
    if keep is None or not keep.exists():
        return ""
    try:
        with keep.open(encoding="utf-8") as file:
            return file.read(_MOST).strip()  # what is longer is no head, and a device may have no end
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{keep} cannot be read: {why(error)}", param_hint="--keep") from None


def _keep(keep: Path, head: str) -> None:
    try:
        keep.write_text(head + "\n", encoding="utf-8")
    except OSError as error:
        # The head is told all the same: reading the whole log may have taken long.
        raise typer.BadParameter(
            f"{keep} cannot be written: {why(error)}; the head to keep is {head}", param_hint="--keep"
        ) from None


def _parsed(text: str, option: str) -> tuple[int, str] | None:
    if not text:
        return None
    found = _HEAD.fullmatch(text)
    if found is None:
        raise typer.BadParameter(
            "must be the number of an event and its hash, N:HASH, as `hopline audit verify` prints them",
            param_hint=option,
        )
    return int(found[1]), found[2]
