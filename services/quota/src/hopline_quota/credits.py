"""Paying in, and what is left: who may, and what they are told."""

from __future__ import annotations

from collections.abc import Sequence

from hopline_directory import ADMIN, VIEWER, Directory, needs_role
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.faults import point
from hopline_rpc.ids import IdMaker
from hopline_rpc.principals import Principal

from hopline_quota.domain import money
from hopline_quota.domain.values import Balance
from hopline_quota.store import CountersLostError, Store
from hopline_quota.store.ledger import Deposit, Ledger


class Credits:
    """One method an RPC."""

    def __init__(
        self, ledger: Ledger, store: Store, directory: Directory, clock: Clock, ids: IdMaker
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._directory = directory
        self._clock = clock
        self._ids = ids

    async def deposit(self, caller: Principal, amount: str, note: str, request_id: str) -> Deposit:
        """Pay in; it is on disk when this returns, and counts from then on."""
        self._require(caller, ADMIN)
        millionths = money.read(amount)
        if not millionths:
            raise invalid("amount", "must be more than 0")
        user = self._directory.user(caller.workspace_id, caller.id)
        wanted = Deposit(
            caller.workspace_id,
            self._ids.new_id("dep"),
            millionths,
            note,
            caller.id,
            user.name if user is not None else "",
            request_id,
            self._clock.now(),
        )
        made = await self._ledger.add(wanted, self._store.deposited)
        point("quota.deposited")
        return made

    async def balance(self, caller: Principal) -> Balance:
        """Return what is there; `unavailable` while there are no counters."""
        self._require(caller, VIEWER)
        try:
            return await self._store.balance(caller.workspace_id)
        except CountersLostError:
            raise rebuilding() from None

    async def deposits(self, caller: Principal, before: str, limit: int) -> Sequence[Deposit]:
        """Return what was paid in, newest first."""
        self._require(caller, VIEWER)
        return await self._ledger.page(caller.workspace_id, before, limit)

    def price(self, workspace_id: str) -> str:
        """Return the price of a turn, or `off`."""
        return money.write_price(self._directory.policy(workspace_id).credits)

    def _require(self, caller: Principal, role: int) -> None:
        if self._directory.workspace_role(caller.workspace_id, caller.id) < role:
            raise needs_role(role)


def rebuilding() -> HoplineError:
    """Return the answer of a service that has no counters just now."""
    return HoplineError(
        "unavailable", "the counters are being rebuilt; try again in a moment", retry_after=1.0
    )
