"""A message on its way into the record."""

from __future__ import annotations

from dataclasses import dataclass, field

from hopline_relay.domain.values import VETOED, Actor
from hopline_relay.held import Offer
from hopline_relay.hooks.items import Note, Shaped
from hopline_relay.store.sessions import SessionWish
from hopline_relay.store.sql import Record
from hopline_relay.store.turns import Start


@dataclass(slots=True, kw_only=True)
class Copy:
    """One recipient's copy. `turn_id` empty: nothing is queued. Either `session_id` or `wish` is given."""

    kind: str
    id: str
    state: str = "queued"
    session_id: str = ""
    wish: SessionWish | None = None
    turn_id: str = ""
    place: bool = False
    # What hooks have made of it, where that differs from what the message says.
    shaped: Shaped | None = None
    # The place at which its turn may start at once.
    offer: Offer | None = None
    # Filled in; with a turn that has started, what the record says of it.
    ordinal: int = 0
    start: Start | None = None
    session: Record = None
    turn: Record = None
    debt: Record = None


@dataclass(slots=True, kw_only=True)
class Outgoing:
    """A message that was admitted and is to be written.

    `cap`: how many messages its thread takes; 0 where it passes that rail. `takes_place`: it uses the
    place that a fan-out keeps for its sender. `owed`: its turn owes an answer, for which `wait_id` waits.
    """

    workspace_id: str
    id: str
    kind: str
    sender: Actor
    session_id: str = ""
    inbox: SessionWish | None = None
    turn_id: str = ""
    # The turn whose chain goes on with it: `turn_id` of what starts something, the asking one of an answer.
    chain_turn_id: str = ""
    subject: str = ""
    body: str = ""
    payload: str = ""
    thread_id: str
    opens_thread: bool
    cap: int = 0
    takes_place: bool = False
    in_reply_to: str = ""
    depth: int
    from_depth: int
    root_id: str
    admitted_as: str
    day: str
    traceparent: str = ""
    copies: list[Copy] = field(default_factory=list)
    owed: bool = False
    wait_id: str = ""
    # The turn that is blocked meanwhile: the one that the call names, never one that merely runs beside it.
    wait_turn_id: str = ""
    # The call of a tool: how long it may run.
    run_seconds: float = 0.0
    instance_id: str = ""
    queue_seconds: float
    # What each turn that it queues costs, in millionths of a credit.
    price: int = 0
    refuse_cycles: str = "off"
    # The start of a child: see `subagent_links`.
    sender_links: int = 0
    most_links: int = 0
    # The sender's end of a standing conversation; without a session of its own the message comes from there.
    own_end: SessionWish | None = None
    request_id: str = ""
    digest: bytes = b""
    hook_generation: int = 0
    # What the audit log says of its hooks, by recipient.
    hook_notes: list[tuple[str, Note]] = field(default_factory=list)
    # The plugin that says it in its sender's name, for the audit log.
    plugin_id: str = ""
    # Filled in.
    seq: int = 0
    ordinal: int = 0
    chain: str = ""
    # That chain, where a recipient is in it already and the policy warns of it.
    cycle: str = ""
    # How many starts of subagents lead to what it starts: down the chain, and at least `sender_links` for the
    # start of one; more than `most_links` may not.
    subagent_links: int = 0
    # Filled in where a turn has started: what the record says of the message and its copies.
    row: Record = None
    delivered: list[Record] = field(default_factory=list)

    @property
    def closes_cycle(self) -> bool:
        """Whether a recipient takes part already in the chain that this goes on with."""
        chain = self.chain.split(" ")
        return any(copy.id in chain for copy in self.copies if copy.state != VETOED)

    @property
    def trace_id(self) -> str:
        """The trace it belongs to: 32 hex digits, or empty."""
        return self.traceparent[3:35]
