"""Which items of a batch get as far as the counters: what is malformed or not its sender's stays behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal

from hopline_quota.domain.values import FROM_OUTSIDE, Decision, Item, Refusal, Settlement
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
        self, epoch: int, settled: Sequence[Settlement], entries: Sequence[tuple[Item, str]]
    ) -> list[Decision]:
        """Decide each item in order, each with its sender's assertion, empty where none came along.

        CountersLostError, with nothing done, where the store has no counters of this epoch.
        """
        checked = [self._check(item, assertion) for item, assertion in entries]
        items = [each for each in checked if isinstance(each, Item)]
        decided = iter(await self._store.admit(epoch, settled, items))
        return [next(decided) if isinstance(each, Item) else each for each in checked]

    def _check(self, item: Item, assertion: str) -> Item | Refusal:
        if len(item.recipients) > 1 and len(dict(item.recipients)) < len(item.recipients):
            return _TWICE
        if not assertion:
            return item
        try:
            subject = self._verify(assertion)
        except HoplineError:
            return _NOT_SENDER
        if subject.id != item.sender_id or subject.workspace_id != item.workspace_id:
            return _NOT_SENDER
        if subject.kind == "user":
            return item._replace(by_person=True)
        return _NOT_PERSON if item.kind in FROM_OUTSIDE else item
