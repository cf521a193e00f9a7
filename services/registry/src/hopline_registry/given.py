"""Credentials that were made elsewhere, by whoever sets a mesh up: honoured from a start on.

A folder holds a file for each: `quota.token`, `relay.token`, `gateway.token`, `console.token` of the services
and `admin.token`, the installation's own. So the parts of a mesh can be started together, in any order, each
with its file, and nobody has to hand out what another has made.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import looks_like_token
from hopline_rpc.service import ORDER

from hopline_registry.bootstrap import admin_of_the_first
from hopline_registry.core import ITSELF, Core, Tx
from hopline_registry.domain.tokens import Kind
from hopline_registry.store import tokens as rows
from hopline_registry.tokens import mint, revoke

log = logging.getLogger("hopline.registry")

_NAME: Final = "given"
_ADMIN: Final = "admin"


async def take_in(core: Core, folder: Path) -> None:
    """Honour the tokens of a folder, and no more those that were there at an earlier start.

    Raises `HoplineError`: one is no token of its kind, cannot be read, or was revoked.
    """
    found = {name: _read(folder / f"{name}.token", name) for name in (_ADMIN, *ORDER[1:])}

    def op(tx: Tx) -> None:
        for name, secret in found.items():
            if secret:
                _honour(tx, name, secret)

    await core.write(ITSELF, op)


def _honour(tx: Tx, name: str, secret: str) -> None:
    kind: Kind = "user" if name == _ADMIN else "service"
    workspace_id, subject_id = admin_of_the_first(tx) if name == _ADMIN else ("", name)
    known = rows.token_by_secret(tx.conn, secret)
    if known is not None:
        if (known.workspace_id, known.kind, known.subject_id) != (workspace_id, kind, subject_id):
            raise HoplineError("failed_precondition", f"{name}.token is the credential of somebody else")
        if known.revoked_at is not None:
            raise HoplineError("failed_precondition", f"{name}.token was revoked; put a new one in its place")
        return
    for token in rows.live_tokens(tx.conn, workspace_id, kind, subject_id, tx.now):
        if token.name == _NAME or token.installation:
            revoke(tx, token)
    mint(tx, workspace_id, kind, subject_id, name=_NAME, installation=name == _ADMIN, secret=secret)
    log.info("the credential in %s.token is honoured", name)


def _read(file: Path, name: str) -> str:
    """Return what is in a file; nothing where there is none."""
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise HoplineError("failed_precondition", f"{file} cannot be read: {error}") from None
    letter = "u" if name == _ADMIN else "s"
    if not (looks_like_token(secret) and secret.startswith(f"hpl_{letter}_")):
        raise HoplineError(
            "failed_precondition",
            f"{file} holds no token: it must be hpl_{letter}_ and 32 random bytes in base64url",
        )
    return secret
