"""What the mesh tells of children, reports and sessions, as plain values. Times are unix seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hopline.relay.v1 import delegation_pb2 as pb
from hopline.relay.v1 import session_pb2

from hopline_client.models import Party, party

Outcome = Literal["created", "forbidden", "depth_exceeded"]


@dataclass(frozen=True, slots=True)
class Child:
    """What became of the wish to start a child; all but the outcome is empty where there is none."""

    outcome: Outcome
    session_id: str
    turn_id: str
    thread_id: str
    message_id: str
    depth: int

    @property
    def created(self) -> bool:
        """Whether it was started."""
        return self.outcome == "created"


@dataclass(frozen=True, slots=True)
class Reported:
    """What became of a report; `reason` says why it was not delivered."""

    delivered: bool
    canceled: bool
    reason: str
    message_id: str
    thread_id: str


@dataclass(frozen=True, slots=True)
class Spoken:
    """A message in a standing conversation: the other's end of it, and one's own."""

    session_id: str
    own_session_id: str
    message_id: str
    turn_id: str
    thread_id: str
    depth: int
    # It was vetoed, and why; then all else is empty.
    canceled: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """Words into a session; `canceled` where they were vetoed, and `reason` why."""

    delivered: bool
    canceled: bool
    reason: str
    message_id: str
    turn_id: str


@dataclass(frozen=True, slots=True)
class Session:
    """A session that the caller may read.

    `child_state` is `live`, `ended` or `closed` where it was started as a subagent's, else empty.
    """

    id: str
    agent: Party
    title: str
    channel: str
    state: str
    opened_by: str
    parent_session_id: str
    child_state: str
    owes_report: bool
    live_children: int
    last_at: float


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a session's transcript. `kind` is `prompt`, `answer`, `message_in`, `message_out`, ..."""

    seq: int
    kind: str
    sender: Party
    text: str
    turn_id: str
    message_id: str
    at: float


def child(found: pb.ChildStart) -> Child:
    """Read what became of a start."""
    outcome: Any = pb.StartOutcome.Name(found.outcome).removeprefix("START_OUTCOME_").lower()
    return Child(outcome, found.session_id, found.turn_id, found.thread_id, found.message_id, found.depth)


def reported(found: pb.ReportToCallerResponse) -> Reported:
    """Read what became of a report."""
    return Reported(
        found.is_delivered, found.is_canceled, found.cancel_reason, found.message_id, found.thread_id
    )


def spoken(found: pb.MessageAgentResponse) -> Spoken:
    """Read where a message of a standing conversation went."""
    return Spoken(
        found.session_id,
        found.own_session_id,
        found.message_id,
        found.turn_id,
        found.thread_id,
        found.depth,
        found.is_canceled,
        found.cancel_reason,
    )


def said(found: pb.SendMessageToSessionResponse) -> Said:
    """Read what became of words into a session."""
    return Said(found.is_delivered, found.is_canceled, found.cancel_reason, found.message_id, found.turn_id)


def session(found: session_pb2.Session) -> Session:
    """Read a session."""
    return Session(
        id=found.id,
        agent=party(found.agent),
        title=found.title,
        channel=found.channel,
        state=found.state,
        opened_by=found.opened_by.name,
        parent_session_id=found.child.parent_session_id,
        child_state=found.child.state,
        owes_report=found.child.owes_report,
        live_children=found.live_children,
        last_at=found.last_at.ToMicroseconds() / 1_000_000,
    )


def entry(found: session_pb2.TranscriptEntry) -> Entry:
    """Read a line of a transcript."""
    return Entry(
        seq=found.seq,
        kind=found.kind,
        sender=party(getattr(found, "from")),
        text=found.text,
        turn_id=found.turn_id,
        message_id=found.message_id,
        at=found.at.ToMicroseconds() / 1_000_000,
    )
