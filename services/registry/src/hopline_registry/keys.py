"""The keys that assertions are signed with: published before use, kept one assertion life after.

They are stored in the registry's database, whose file only its owner can read: a rotation and the change
that tells of it are one transaction, and replicas that share the database share the keys.
"""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hopline.registry.v1.identity_pb2 import SigningKey
from hopline_rpc.clock import Clock
from hopline_rpc.principals import (
    MAX_LIFE,
    SKEW,
    AssertionSigner,
    Principal,
    load_signing_key,
    new_signing_key,
)
from hopline_store import after_commit
from sqlalchemy import Connection

from hopline_registry.access import require_installation
from hopline_registry.core import ITSELF, Core, Tx
from hopline_registry.domain.keys import outlived
from hopline_registry.store import tokens as rows

# How long a key that signs no more is still needed.
_GRACE: Final = MAX_LIFE + 2 * SKEW


def add_key(tx: Tx, signs_from: float) -> rows.KeyRow:
    """Make a key and publish it; it signs from that moment on."""
    pair = new_signing_key(tx.ids.new_id("key"))
    private = pair.private.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    public = pair.public().public_bytes(Encoding.Raw, PublicFormat.Raw)
    key = rows.KeyRow(pair.kid, private, public, tx.now, signs_from)
    rows.add_key(tx.conn, key)
    tx.changed("", "key.published", {"kid": key.kid}, key=SigningKey(kid=key.kid, public_key=public))
    return key


class Keys:
    """The keys in force."""

    def __init__(self, core: Core, mesh_id: str) -> None:
        self._core = core
        self._mesh_id = mesh_id
        self._rows: list[rows.KeyRow] = []
        self._signer: AssertionSigner | None = None

    async def load(self) -> None:
        """Take over what the database holds."""
        self._adopt(await self._core.read(rows.all_keys))

    def _adopt(self, keys: list[rows.KeyRow]) -> None:
        self._rows = keys
        pairs = [load_signing_key(key.kid, key.private, key.signs_from) for key in keys]
        self._signer = AssertionSigner(pairs, self._mesh_id, self._core.clock)

    def sign(self, principal: Principal) -> str:
        """Write an assertion."""
        if self._signer is None:
            raise RuntimeError("keys are loaded before anything is signed")
        return self._signer.sign(principal)

    def published(self) -> list[SigningKey]:
        """Return the public halves."""
        return [SigningKey(kid=key.kid, public_key=key.public) for key in self._rows]

    async def rotate(self, caller: Principal) -> rows.KeyRow:
        """Publish a new key, which signs after one assertion life. While one waits for that, return it."""

        def op(tx: Tx) -> rows.KeyRow:
            require_installation(tx)
            newest = rows.all_keys(tx.conn)[-1]
            if newest.signs_from > tx.now:
                return newest
            key = add_key(tx, tx.now + MAX_LIFE)
            self._adopt_after(tx.conn)
            return key

        return await self._core.write(caller, op)

    async def withdraw_outlived(self) -> None:
        """Take back the keys that nothing in use can be signed with any more.

        What another registry rotated is taken over here first, long before it signs.
        """
        await self.load()
        if not _outlived(self._rows, self._core.clock):
            return

        def op(tx: Tx) -> None:
            for kid in _outlived(rows.all_keys(tx.conn), self._core.clock):
                rows.drop_key(tx.conn, kid)
                tx.changed("", "key.withdrawn", {"kid": kid}, key=SigningKey(kid=kid))
            self._adopt_after(tx.conn)

        await self._core.write(ITSELF, op)

    def _adopt_after(self, conn: Connection) -> None:
        keys = rows.all_keys(conn)
        after_commit(conn, lambda: self._adopt(keys))


def _outlived(keys: list[rows.KeyRow], clock: Clock) -> list[str]:
    return outlived([(key.kid, key.signs_from) for key in keys], clock.now(), _GRACE)
