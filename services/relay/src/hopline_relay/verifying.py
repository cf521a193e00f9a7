"""Proves that the audit log is what was sealed, and names the first event that is not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

from hopline.relay.v1 import audit_pb2 as pb
from hopline_directory import ADMIN, Directory, needs_role
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.principals import Principal
from sqlalchemy import Connection

from hopline_relay.domain.chain import Head, beginning, next_link
from hopline_relay.journal import Journal
from hopline_relay.retention import CUT
from hopline_relay.sealing import Sealer
from hopline_relay.store import audit, seals
from hopline_relay.store.sql import Record

_PAGE: Final = 500


class Fault(Exception):  # noqa: N818 - what was found, not what failed
    """The first place at which the log is not what was sealed."""

    def __init__(self, seq: int, kind: str, text: str) -> None:
        super().__init__(text)
        self.seq, self.kind, self.text = seq, kind, text


class Verifying:
    """Serves `VerifyEvents`."""

    def __init__(self, journal: Journal, directory: Directory, sealer: Sealer) -> None:
        self._journal = journal
        self._directory = directory
        self._sealer = sealer

    async def verify(
        self, principal: Principal, request: pb.VerifyEventsRequest
    ) -> AsyncIterator[pb.VerifyEventsResponse]:
        """Walk along the chain; yields after each page, and the result at the end."""
        self._require_admin(principal)
        kept = _kept(request)
        await self._sealer.seal(principal.workspace_id)
        walk = Walk(principal.workspace_id, kept, after_kept=request.after_kept)
        while not walk.done:
            await self._journal.read(walk.step)
            yield walk.response()
            self._require_admin(principal)

    def _require_admin(self, principal: Principal) -> None:
        if self._directory.workspace_role(principal.workspace_id, principal.id) < ADMIN:
            raise needs_role(ADMIN)


def _kept(request: pb.VerifyEventsRequest) -> Head | None:
    kept = request.kept
    if bool(kept.seq) != bool(kept.hash):
        raise invalid("kept", "needs both the number of an event and the hash that was kept of it")
    if request.after_kept and not kept.seq:
        raise invalid("after_kept", "needs the head that was kept")
    return Head(kept.seq, bytes.fromhex(kept.hash)) if kept.seq else None


class Walk:
    """One walk along a workspace's chain, page by page, each on a snapshot of its own."""

    def __init__(self, workspace_id: str, kept: Head | None, *, after_kept: bool = False) -> None:
        self._workspace_id = workspace_id
        self._kept = kept
        self._after_kept = after_kept
        self._at = beginning(workspace_id)
        self._cut: Head | None = None
        # The newest event that tells of a deletion: what it says was deleted.
        self._told_cut: tuple[Any, Any] | None = None
        self._begun = False
        self.done = False
        self.checked = 0
        self.unsealed = 0
        self.fault: Fault | None = None

    def step(self, connection: Connection) -> None:
        """Go on by one page."""
        try:
            self._step(connection)
        except Fault as fault:
            self.fault, self.done = fault, True

    def response(self) -> pb.VerifyEventsResponse:
        """Return how far it has come."""
        response = pb.VerifyEventsResponse(checked=self.checked, done=self.done, unsealed=self.unsealed)
        response.head.seq, response.head.hash = self._at.seq, self._at.text
        if self._cut is not None:
            response.cut.seq, response.cut.hash = self._cut.seq, self._cut.text
        if self.fault is not None:
            response.fault.seq, response.fault.kind = self.fault.seq, self.fault.kind
            response.fault.message = self.fault.text
        return response

    def _step(self, connection: Connection) -> None:
        self._begin(connection)
        number = self._at.seq + 1
        seal = seals.covering(connection, self._workspace_id, number)
        if seal is None or seal.last_seq < number:
            later = seals.covering(connection, self._workspace_id, seals.END)
            if later is not None and later.first_seq > number:
                raise Fault(number, "seal", f"the seal of event {number} is gone; later events have theirs")
            self._finish(connection)
            return
        rows = seals.events(connection, self._workspace_id, self._at.seq, seal.last_seq, _PAGE)
        for row in rows:
            self._pass(row, seal)
        if not rows:
            raise Fault(number, "removed", f"event {number} was removed: it is sealed and not there")
        if self._at.seq == seal.last_seq and self._at.link != seal.link:
            raise Fault(self._at.seq, "seal", f"the seal of event {self._at.seq} was changed")

    def _begin(self, connection: Connection) -> None:
        """Start where the log starts; retention may move that while we walk."""
        cut = seals.cut(connection, self._workspace_id)
        if cut is not None and cut.seq == self._at.seq and cut.link != self._at.link:
            raise Fault(cut.seq, "cut", f"event {cut.seq} was deleted with another link than it had")
        if cut is not None and cut.seq > self._at.seq:
            self._start_at(cut)
        self._cut = cut
        if self._begun:
            return
        self._begun = True
        first = cut.seq if cut is not None else 0
        # What stands before the cut is deleted by and by, and shown to nobody.
        for stray in seals.events(connection, self._workspace_id, -seals.END, 0, 1):
            text = f"event {stray.seq!r} was inserted before the log begins with {first + 1}"
            raise Fault(max(int(stray.seq), 0), "inserted", text)
        if self._after_kept and self._kept is not None and self._kept.seq > self._at.seq:
            self._skip(connection, self._kept)

    def _start_at(self, cut: Head) -> None:
        kept = self._kept
        if kept is not None and self._at.seq < kept.seq <= cut.seq:
            if kept.seq < cut.seq:
                raise HoplineError(
                    "failed_precondition",
                    f"events up to {cut.seq} were deleted by retention, the kept head {kept.seq} with them; "
                    "keep a newer one",
                )
            self._compare(cut)
        self._at = cut

    def _skip(self, connection: Connection, kept: Head) -> None:
        seal = seals.covering(connection, self._workspace_id, kept.seq)
        if seal is not None and seal.last_seq >= kept.seq:
            self._compare(Head(kept.seq, seals.sealed_link(seal, kept.seq)))
            self._at = kept

    def _compare(self, head: Head) -> None:
        if self._kept is not None and self._kept.seq == head.seq and self._kept.link != head.link:
            raise Fault(
                head.seq,
                "kept",
                f"the log up to event {head.seq} was rewritten, seals included, after its head was kept",
            )

    def _pass(self, row: Record, seal: Record) -> None:
        number = self._at.seq + 1
        _expect(row.seq, number)
        link = next_link(self._at.link, row)
        if link != seals.sealed_link(seal, number):
            raise Fault(number, "changed", f"event {number} was changed, or another one stands in its place")
        self._at = Head(number, link)
        self.checked += 1
        self._compare(self._at)
        self._hear(row)

    def _hear(self, row: Record) -> None:
        """Note what an event says of older ones that were deleted."""
        if row.action == CUT:
            details = json.loads(row.details)
            self._told_cut = (details.get("through"), details.get("hash"))

    def _finish(self, connection: Connection) -> None:
        """Look at what is not sealed yet: it must be there without a gap, and no more than was written."""
        last = audit.last_seq(connection, self._workspace_id)
        number = self._at.seq
        if last < number:
            raise Fault(last + 1, "inserted", f"event {last + 1} is sealed and was never written")
        while rows := seals.events(connection, self._workspace_id, number, seals.END, _PAGE):
            for row in rows:
                if number >= last:
                    raise Fault(number + 1, "inserted", f"event {row.seq!r} was inserted behind the last one")
                _expect(row.seq, number + 1)
                number += 1
                self._hear(row)
        if number < last:
            raise Fault(number + 1, "removed", f"event {number + 1} was removed before it was sealed")
        kept = self._kept
        if kept is not None and kept.seq > self._at.seq:
            text = f"events after {self._at.seq} were removed: the kept head stood at {kept.seq}"
            raise Fault(self._at.seq + 1, "removed", text)
        told = self._told_cut
        if self._cut is not None and told != (self._cut.seq, self._cut.text) and not self._after_kept:
            text = f"events up to {self._cut.seq} are gone and the log does not tell of their deletion"
            raise Fault(self._cut.seq, "cut", text)
        self.unsealed = last - self._at.seq
        self.done = True


def _expect(found: Any, number: int) -> None:
    if found == number:
        return
    if isinstance(found, int) and found > number:
        raise Fault(number, "removed", f"event {number} was removed")
    raise Fault(number, "inserted", f"event {found!r} was inserted before {number}")
