"""The counters of admission, behind one interface.

What every store promises:

- **Atomic.** Each call happens at one moment, and no other call comes between its parts. Within a call,
  settlements come first, then the items in order, each seeing what those before it changed.
- **All or nothing for an item.** An admitted item is charged in full before the answer; a refused one
  changes nothing that a later decision could notice. Items do not depend on each other.
- **Once for a key.** Until a key is settled, admitting it again returns the same decision and charges
  nothing. Refusals are not remembered: the same key is decided afresh.
- **Exact refunds.** A refund gives back what its item was charged, on the day it was charged, and nothing
  else; a second settlement of a key, or one of an unknown key, changes nothing.
- **Nothing lapses.** Charges, running turns and slots stand until they are settled or ended, or until a
  seed replaces everything.
- **The store's time.** The store has the clock. Its day never goes back when the clock does, but is at most
  one day ahead of it. A stamp counts for as long as it is younger than its window.
- **Epochs.** A store without counters is in epoch 0. Every call but `seed` names the epoch it believes in
  and raises `CountersLostError`, having changed nothing, when that is not the store's or is 0.
- **Order of calls.** `begin` for an attempt must have been answered before `end` for it is called: the
  store does not remember attempts that are over.
- **Credits.** A turn is charged the price that its item came with, once, and keeps it until its end says what
  becomes of it; a refund of the item gives it back. What was paid in outlives epochs: a seed replaces what
  was charged alone.
- **Roots.** The count of a root is kept while a turn of it is queued, running or in a window, and then for
  a day; of the roots that nothing refers to any more a workspace keeps at least the latest 10 000.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from hopline_quota.domain.values import (
    Balance,
    Begin,
    Decision,
    End,
    Item,
    Record,
    Settlement,
    Usage,
    Waiting,
)


class CountersLostError(Exception):
    """The call names another epoch than the counters are of, or there are none yet."""


class Store(Protocol):
    """The counters. See the module's text for what every implementation keeps to."""

    async def admit(self, epoch: int, settled: Sequence[Settlement], items: Sequence[Item]) -> list[Decision]:
        """Settle, then decide and charge each item in order; one decision for each."""
        ...

    async def settle(self, epoch: int, settled: Sequence[Settlement]) -> None:
        """Forget committed charges and give the others back."""
        ...

    async def begin(self, epoch: int, turns: Sequence[Begin]) -> list[bool]:
        """Make turns running, each out of its queue; False where no slot was free and nothing changed.

        An attempt that runs already, or an older one, is True and changes nothing. A newer attempt takes
        the place of the one that runs, and its slot.
        """
        ...

    async def end(self, epoch: int, turns: Sequence[End]) -> None:
        """Take turns out of what runs and is queued, or put them back into their queue.

        What has run counts within the causality window from now on, also when it goes back to its queue.
        A turn that is not known, or runs in another attempt, is left alone.
        """
        ...

    async def set_waiting(self, epoch: int, turns: Sequence[Waiting]) -> None:
        """Give a running turn's slot back, or retake it, over the limit if need be."""
        ...

    async def extend_root(self, epoch: int, workspace_id: str, root_id: str, extra: int) -> None:
        """Let a root start so many turns more than the policy allows it; less than before changes nothing."""
        ...

    async def seed(self, epoch: int, record: Record) -> tuple[bool, int]:
        """Replace everything when `epoch` is above the one in force; return whether, and the one in force."""
        ...

    async def usage(
        self,
        workspace_id: str,
        agent_id: str,
        window_seconds: int,
        pair_budget: int = 0,
        pair_seconds: int = 0,
    ) -> Usage:
        """Return what an agent uses, with a causality window, and the budget and window of pairs.

        CountersLostError in epoch 0. Of pairs it returns the 20 most used.
        """
        ...

    def fullest(self, limits_of: Callable[[str], Mapping[str, int]]) -> tuple[dict[str, float], int]:
        """Return the greatest part of each limit that is used anywhere, and how many run slots are taken.

        `limits_of` gives a workspace's limits by policy key. Nothing is said of whom it is. Of credits it is
        the part of what was paid in.
        """
        ...

    def deposited(self, workspace_id: str, amount: int) -> None:
        """Add to what a workspace has paid in; that is on disk already, and told once."""
        ...

    async def balance(self, workspace_id: str) -> Balance:
        """Return what a workspace has paid in and was charged; CountersLostError in epoch 0."""
        ...
