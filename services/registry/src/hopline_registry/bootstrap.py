"""The first start: a workspace, a user, a signing key, and the installation's own token in a file."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from hopline_registry.core import ITSELF, Core, Tx
from hopline_registry.keys import add_key
from hopline_registry.store import people, tokens, workspaces
from hopline_registry.tokens import mint, revoke
from hopline_registry.workspaces import ADMIN_NAME, DEFAULT_NAME, add_workspace

TOKEN_FILE: Final = "admin.token"  # noqa: S105 - a file's name
_NAME: Final = "installation"


async def install(core: Core, token_file: Path, *, replace_lost: bool) -> bool:
    """Make what every mesh has; tells whether this was the first start.

    The token is in the database before it is in the file: whoever stops in between finds no file at the
    next start, and with `replace_lost` a missing file means a new token in place of the old one.
    """

    def op(tx: Tx) -> tuple[bool, str]:
        if workspaces.count_workspaces(tx.conn) == 0:
            add_workspace(tx, DEFAULT_NAME)
            add_key(tx, tx.now)
            return True, _installation_token(tx)
        if replace_lost and not token_file.exists():
            return False, _installation_token(tx)
        return False, ""

    first, secret = await core.write(ITSELF, op)
    if secret:
        write_secret(token_file, secret)
    return first


def _installation_token(tx: Tx) -> str:
    """Make the installation's token, in place of an earlier one."""
    for token in tokens.installation_tokens(tx.conn):
        revoke(tx, token)
    workspace_id, user_id = admin_of_the_first(tx)
    return mint(tx, workspace_id, "user", user_id, name=_NAME, installation=True)[1]


def admin_of_the_first(tx: Tx) -> tuple[str, str]:
    """Return the workspace that every mesh has, and its user `admin`."""
    home = workspaces.workspace_by_name(tx.conn, DEFAULT_NAME)
    admin = people.find_user(tx.conn, home.id, ADMIN_NAME) if home is not None else None
    if home is None or admin is None:
        raise RuntimeError("the default workspace and its user 'admin' cannot be removed")
    return home.id, admin.id


def write_secret(path: Path, secret: str) -> None:
    """Write a file that only its owner can read, as a whole or not at all."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secret + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
