"""What the tests of the quota service are made of: a clock for the hand, a desk to speak to a store."""

from __future__ import annotations

from itertools import count

from hopline_quota.domain.values import (
    FROM_OUTSIDE,
    Admitted,
    Begin,
    Decision,
    End,
    EndKind,
    Handed,
    Item,
    Kind,
    Limits,
    Recipient,
    Record,
    Refusal,
    Settlement,
    Usage,
    Waiting,
)
from hopline_quota.store import Store

NOON = 1_764_504_000.0  # 2025-11-30T12:00:00Z
DAY = 86_400.0

LIMITS = Limits(
    max_depth=4,
    root_turns=200,
    sent_per_day=200,
    received_per_day=500,
    pair_budget=30,
    pair_window_seconds=300,
    inbox_backlog=1000,
    causality_window_seconds=600,
    agents=25,
)
WIDE = LIMITS._replace(
    max_depth=32,
    root_turns=10**6,
    sent_per_day=10**6,
    received_per_day=10**6,
    pair_budget=0,
    inbox_backlog=10**6,
)


class HandClock:
    """Stands still until it is moved; its wall clock can also be set back."""

    def __init__(self, wall: float = NOON) -> None:
        self.wall = wall
        self.seconds = 0.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.seconds += seconds


class Desk:
    """Speaks to a store the way a relay does, with everything that a test leaves out filled in."""

    def __init__(self, store: Store, clock: HandClock, epoch: int = 1) -> None:
        self.store = store
        self.clock = clock
        self.epoch = epoch
        self._numbers = count(1)

    def item(
        self,
        sender: str,
        *recipients: str,
        kind: Kind = Kind.START,
        limits: Limits = LIMITS,
        key: str = "",
        turns: bool = True,
        cause: str = "",
        new_root: str = "",
        depth: int = 0,
        root: str = "",
        workspace: str = "ws",
        by_person: bool = False,
        handed: Handed | None = None,
    ) -> Item:
        """Make an item; its turns are named `<key>/<recipient>`, its root `root of <key>`."""
        key = key or f"key {next(self._numbers)}"
        return Item(
            key=key,
            workspace_id=workspace,
            kind=kind,
            sender_id=sender,
            by_person=by_person or kind in FROM_OUTSIDE,
            recipients=tuple(Recipient(each, f"{key}/{each}" if turns else "") for each in recipients),
            cause_turn_id=cause,
            new_root_id=new_root or f"root of {key}",
            answer_depth=depth,
            answer_root_id=root,
            limits=limits,
            handed=handed,
        )

    async def admit(self, *items: Item, settled: tuple[Settlement, ...] = ()) -> list[Decision]:
        return await self.store.admit(self.epoch, settled, items)

    async def start(
        self,
        sender: str,
        *recipients: str,
        limits: Limits = LIMITS,
        key: str = "",
        turns: bool = True,
        cause: str = "",
        workspace: str = "ws",
    ) -> Decision:
        item = self.item(
            sender, *recipients, limits=limits, key=key, turns=turns, cause=cause, workspace=workspace
        )
        return (await self.admit(item))[0]

    async def commit(self, key: str) -> None:
        await self.store.settle(self.epoch, [Settlement(key, True)])

    async def refund(self, key: str) -> None:
        await self.store.settle(self.epoch, [Settlement(key, False)])

    async def run(
        self,
        turn: str,
        agent: str,
        depth: int = 0,
        root: str = "R",
        *,
        attempt: int = 1,
        slots: int | None = None,
        workspace: str = "ws",
    ) -> bool:
        """Begin a turn; with `slots`, one of so many run slots is needed."""
        begin = Begin(turn, workspace, agent, depth, root, attempt, slots is not None, slots or 0)
        return (await self.store.begin(self.epoch, [begin]))[0]

    async def end(
        self, turn: str, kind: EndKind = EndKind.ENDED, *, attempt: int = 0, workspace: str = "ws"
    ) -> None:
        await self.store.end(self.epoch, [End(turn, workspace, attempt, kind)])

    async def wait(self, turn: str, waiting: bool = True, *, workspace: str = "ws") -> None:
        await self.store.set_waiting(self.epoch, [Waiting(turn, workspace, waiting)])

    async def seed(self, epoch: int, record: Record | None = None) -> tuple[bool, int]:
        answer = await self.store.seed(epoch, record or Record())
        self.epoch = epoch
        return answer

    async def usage(self, agent: str, *, window: int = 600, workspace: str = "ws") -> Usage:
        return await self.store.usage(workspace, agent, window)


def admitted(decision: Decision) -> Admitted:
    assert isinstance(decision, Admitted), decision
    return decision


def refused(decision: Decision, reason: str) -> Refusal:
    assert isinstance(decision, Refusal), decision
    assert decision.reason == reason, decision
    return decision
