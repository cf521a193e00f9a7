"""What is admitted, and what comes of it. Named tuples: they are made for every message of the mesh."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Kind(Enum):
    """What a message is to the rails."""

    # Starts something: every rail.
    START = "start"
    # Discharges a debt: counted, never refused.
    ANSWER = "answer"
    # A person's own message: counted for those who receive it, refused for credits alone, opens a root at
    # depth 0.
    PERSON = "person"
    # A firing of a schedule, or a delivery to a webhook: as a person's message, but refused for a full
    # inbox too. Nobody sits there who would stop.
    SOURCE = "source"
    # A note of the mesh itself that wakes a session. It runs where what it goes back to ran, is held to the
    # turns of that root, to what waits already and to credits, and is nobody's quota.
    WAKE = "wake"


FROM_OUTSIDE: Final = frozenset({Kind.PERSON, Kind.SOURCE})
"""What runs at depth 0, under a root of its own."""


class Limits(NamedTuple):
    """The policy values that apply to one item. Windows are in seconds; a pair budget of 0 is off."""

    max_depth: int
    root_turns: int
    sent_per_day: int
    received_per_day: int
    pair_budget: int
    pair_window_seconds: int
    inbox_backlog: int
    causality_window_seconds: int
    agents: int
    # What a turn costs, in millionths of a credit; 0: nothing.
    turn_price: int = 0


class Recipient(NamedTuple):
    """One recipient, and the turn that will be queued for it; empty when nothing is queued."""

    agent_id: str
    turn_id: str


class RootCount(NamedTuple):
    """What a root has started by the record, and what people granted it beyond the policy."""

    turns: int
    extra: int


class Handed(NamedTuple):
    """What a plugin that starts something was handed: the deepest of it, and its roots."""

    depth: int
    root_ids: tuple[str, ...]


class Item(NamedTuple):
    """One message that asks to be admitted, to all of its recipients or to none."""

    key: str
    workspace_id: str
    kind: Kind
    sender_id: str
    # True where a person sends: what people send is nobody's daily quota.
    by_person: bool
    recipients: tuple[Recipient, ...]
    cause_turn_id: str
    new_root_id: str
    answer_depth: int
    answer_root_id: str
    limits: Limits
    # Given for a root that is not of just now: it may have rested so long that it was forgotten.
    answer_root: RootCount | None = None
    # Given where a plugin starts something.
    handed: Handed | None = None

    @property
    def counts_as_sent(self) -> bool:
        """Whether it is an agent's daily quota: neither people's words nor the mesh's own are."""
        return not (self.by_person or self.kind is Kind.WAKE)

    @property
    def counts_as_received(self) -> bool:
        """Whether it counts among what its recipients receive in a day: the mesh's own notes do not."""
        return self.kind is not Kind.WAKE


class Admitted(NamedTuple):
    """The item is charged."""

    depth: int
    root_id: str
    opened_root: bool
    # The UTC day it was charged to, such as 2026-11-30.
    day: str
    # The turn that decided; empty outside any.
    cause_turn_id: str


class Refusal(NamedTuple):
    """The item is refused and charged nothing."""

    # A reason of the contract, in lower case.
    reason: str
    # For a model and a person; names no figures of others.
    message: str
    limit: int = 0
    used: int = 0
    # Unix seconds; None where only a person can change it.
    resets_at: float | None = None
    recipient_id: str = ""
    # The policy key of the rail.
    rail: str = ""
    # What else its sender may see.
    figures: tuple[tuple[str, str], ...] = ()


Decision = Admitted | Refusal


class Settlement(NamedTuple):
    """What became of an admitted item: committed, or to be given back."""

    key: str
    committed: bool


class Begin(NamedTuple):
    """A turn that is about to run."""

    turn_id: str
    workspace_id: str
    agent_id: str
    depth: int
    root_id: str
    attempt: int
    needs_slot: bool
    # The workspace's run slots; read with `needs_slot`.
    concurrent_runs: int
    # As `Item.answer_root`.
    root: RootCount | None = None


class EndKind(Enum):
    """How a turn left."""

    ENDED = "ended"
    # Never ran.
    DROPPED = "dropped"
    # Ran, and is queued again.
    REQUEUED = "requeued"


class Price(Enum):
    """What becomes of a turn's price when it leaves."""

    # It goes on, or another call says so.
    OPEN = "open"
    KEPT = "kept"
    # It never ran.
    GIVEN_BACK = "given back"


class End(NamedTuple):
    """A turn that ended, was dropped, or goes back to its queue. Attempt 0 is whichever runs."""

    turn_id: str
    workspace_id: str
    attempt: int
    kind: EndKind
    price: Price = Price.OPEN


class Waiting(NamedTuple):
    """A running turn that begins or stops to wait for another."""

    turn_id: str
    workspace_id: str
    waiting: bool


class DaySum(NamedTuple):
    """What an agent sent and received on a UTC day."""

    workspace_id: str
    agent_id: str
    day: str
    sent: int
    received: int


class SeedState(Enum):
    """Where a seeded turn stands."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


class SeedTurn(NamedTuple):
    """A turn in the record. `ended_at` is in unix seconds and read for ended ones alone."""

    turn_id: str
    workspace_id: str
    agent_id: str
    depth: int
    root_id: str
    attempt: int
    state: SeedState
    holds_slot: bool
    waiting: bool
    ended_at: float
    # What it was charged, if it has not ended.
    price: int = 0


class SeedRoot(NamedTuple):
    """A root, the turns it has started, and those a person granted on top of the policy."""

    workspace_id: str
    root_id: str
    turns: int
    extra_turns: int


class SeedPair(NamedTuple):
    """The starts between two agents, in unix seconds."""

    workspace_id: str
    agent_a: str
    agent_b: str
    starts: tuple[float, ...]


class SeedCredit(NamedTuple):
    """What the turns of a workspace were charged, in millionths of a credit."""

    workspace_id: str
    charged: int


class Record(NamedTuple):
    """All that the counters are rebuilt from."""

    days: tuple[DaySum, ...] = ()
    turns: tuple[SeedTurn, ...] = ()
    roots: tuple[SeedRoot, ...] = ()
    pairs: tuple[SeedPair, ...] = ()
    credits: tuple[SeedCredit, ...] = ()


class Balance(NamedTuple):
    """What a workspace has paid in and was charged, in millionths of a credit."""

    deposited: int
    charged: int

    @property
    def left(self) -> int:
        """What is there; below zero where answers were charged that nothing was left for."""
        return self.deposited - self.charged


class PairUsed(NamedTuple):
    """The starts between an agent and another that count; `frees_at` in unix seconds, None: there is room."""

    agent_id: str
    used: int
    frees_at: float | None


class Usage(NamedTuple):
    """What an agent has used of its limits. `resets_at` is the end of the UTC day, in unix seconds."""

    sent_today: int
    received_today: int
    queued: int
    root_turns: int
    depth: int
    resets_at: float
    # Run slots of the workspace in use.
    running: int
    balance: Balance
    # The root of `root_turns`, and what a person granted it; empty and 0 outside any.
    root_id: str
    root_extra: int
    # The agents with which starts count, most first.
    pairs: tuple[PairUsed, ...]
    # What all agents of the workspace sent together.
    sent_by_all: int
