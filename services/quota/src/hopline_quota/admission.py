"""Which items of a batch get as far as the counters: what is malformed or not its sender's stays behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hopline.quota.v1 import admission_pb2 as pb
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal

from hopline_quota.domain.values import Decision, Item, Refusal, Settlement
from hopline_quota.servicers import convert
from hopline_quota.store import Store

Verify = Callable[[str], Principal]
"""Returns who an assertion speaks for, or raises `HoplineError`."""

_NOT_SENDER: Final = Refusal(
    "permission_denied", "the assertion that came along does not speak for the sender"
)
_NOT_PERSON: Final = Refusal("permission_denied", "only a person's message passes as a person's")
_TWICE: Final = Refusal("invalid_argument", "recipients: must be distinct")


class Admission:
    """Decides batches."""

    def __init__(self, store: Store, verify: Verify) -> None:
        self._store = store
        self._verify = verify

    async def admit(
        self, epoch: int, settled: list[Settlement], entries: list[pb.AdmitItem]
    ) -> list[Decision]:
        """Decide each item in order; CountersLostError where the store has no counters of this epoch."""
        checked = [self._check(entry) for entry in entries]
        items = [each for each in checked if isinstance(each, Item)]
        decided = iter(await self._store.admit(epoch, settled, items))
        return [next(decided) if isinstance(each, Item) else each for each in checked]

    def _check(self, entry: pb.AdmitItem) -> Item | Refusal:
        by_person = False
        if entry.subject_assertion:
            try:
                subject = self._verify(entry.subject_assertion)
            except HoplineError:
                return _NOT_SENDER
            if subject.id != entry.sender_id or subject.workspace_id != entry.workspace_id:
                return _NOT_SENDER
            by_person = subject.kind == "user"
            if entry.kind == pb.ADMIT_KIND_PERSON and not by_person:
                return _NOT_PERSON
        item = convert.item(entry, by_person=by_person)
        if len(item.recipients) > 1 and len({each.agent_id for each in item.recipients}) < len(
            item.recipients
        ):
            return _TWICE
        return item
