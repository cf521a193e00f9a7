"""A folder with a token file for each member of a crew: `SLUG.token`, for its owner alone.

What is there and in use stays; so a second run, or one after an interruption, makes what is missing only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopline.registry.v1 import identity_pb2 as pb
from hopline_rpc.errors import HoplineError

from hopline_cli.secret import write_private
from hopline_cli.verbs import why

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh


def made(folder: Path) -> Path:
    """Make the folder, before there is anything to put into it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise HoplineError("failed_precondition", f"{folder} cannot be made: {why(error)}") from None
    return folder


async def keep(mesh: Mesh, folder: Path, members: list[dict[str, Any]]) -> None:
    """Give each member that has none a token file, and remove those of members that are gone."""
    for each in members:
        file = folder / f"{each['slug']}.token"
        if each["action"] == "delete":
            file.unlink(missing_ok=True)
            continue
        each["token_file"] = str(file)
        try:
            held = file.read_text(encoding="utf-8").strip() if file.exists() else None
        except (OSError, UnicodeDecodeError) as error:
            text = f"{file} cannot be read: {why(error)}; move it away and run it again"
            raise HoplineError("failed_precondition", text) from None
        if held is None or not await _is_of(mesh, held, each["id"]):
            await _mint(mesh, file, each["id"], replace=held is not None)


async def _is_of(mesh: Mesh, token: str, agent_id: str) -> bool:
    """Tell whether a token is this agent's and in use: one that was deleted and made again has another."""
    try:
        found = await mesh.identities.Authenticate(pb.AuthenticateRequest(token=token))
    except HoplineError as error:
        if error.reason != "unauthenticated":
            raise
        return False
    return found.principal_id == agent_id


async def _mint(mesh: Mesh, file: Path, agent_id: str, *, replace: bool) -> None:
    made = await mesh.identities.CreateToken(pb.CreateTokenRequest(agent=agent_id, name="crew"))
    try:
        kept = _write(file, made.token, replace=replace)
    except OSError as error:
        await _give_back(mesh, made.info.id)
        text = f"{file} cannot be written: {why(error)}; the crew is there, run it again for the tokens"
        raise HoplineError("failed_precondition", text) from None
    if not kept:
        await _give_back(mesh, made.info.id)


async def _give_back(mesh: Mesh, token_id: str) -> None:
    await mesh.identities.RevokeToken(pb.RevokeTokenRequest(token_id=token_id))


def _write(file: Path, token: str, *, replace: bool) -> bool:
    """Write a token as a whole or not at all; False where somebody else has been quicker."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        write_private(draft, token + "\n")
        if replace:
            draft.replace(file)
        else:
            os.link(draft, file)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True
