"""What the mesh tells, as plain values. Times are unix seconds; a payload is parsed JSON, None for none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

from hopline.registry.v1 import visibility_pb2
from hopline.relay.v1 import draft_pb2, escalation_pb2, tool_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline_rpc.errors import HoplineError

Status = Literal["queued", "running", "waiting_for_owner", "completed", "failed", "canceled"]
EscalationStatus = Literal["pending", "answered", "expired", "withdrawn"]
_RUNNING: Final = frozenset({"queued", "running", "waiting_for_owner"})


@dataclass(frozen=True, slots=True)
class Party:
    """Somebody named in a message. `id` is empty where the reader may not know who it is."""

    id: str
    name: str
    display: str
    kind: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """One recipient's copy of a message. `state` is `queued`, `delivered`, `taken`, `answered`, ..."""

    agent: Party
    session_id: str
    state: str
    turn_id: str
    # Where it is `vetoed`: why a hook has kept it back; empty where nothing of it was left.
    cancel_reason: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a thread; `seq` counts 1, 2, 3 ... in it."""

    id: str
    thread_id: str
    seq: int
    sender: Party
    to: tuple[Party, ...]
    subject: str
    body: str
    payload: Any
    in_reply_to: str
    depth: int
    created_at: float
    reply_expected: bool
    deliveries: tuple[Delivery, ...] = ()
    # Set where it ends a question of this agent's to its owner; the payload then holds the question.
    escalation_id: str = ""
    # Of one that was shown to its recipient: how long ago it was written, and how many newer ones of the same
    # sender wait behind it; None where that is not told.
    age_seconds: int | None = None
    newer_from_sender: int | None = None
    # Set where the mesh itself woke the session with it: `todo`, `timer` or `draft`.
    note: str = ""


@dataclass(frozen=True, slots=True)
class Connected:
    """A connection that may be used now: its name, and the agent that it leads to."""

    name: str
    id: str
    slug: str
    agent_name: str
    description: str


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a send or reply. `message_id` is empty where hooks kept it from everybody."""

    message_id: str
    thread_id: str
    depth: int
    deliveries: tuple[Delivery, ...]


@dataclass(frozen=True, slots=True)
class ToHuman:
    """What became of an answer to a person: `sent`, or `held` for these subagents and so many open todos."""

    status: Literal["sent", "held"]
    waiting_on: tuple[str, ...]
    open_todos: int
    message_id: str
    thread_id: str


@dataclass(frozen=True, slots=True)
class Answer:
    """How an `ask` stands. `reply` is None until `status` is `completed`.

    `code` and `error` say why a turn `failed` or was `canceled`.
    """

    status: Status
    session_id: str
    turn_id: str
    thread_id: str
    message_id: str
    reply: str | None
    payload: Any
    code: str
    error: str
    # Of an agent that streams what it writes (reply mode `all`): what there is of it so far.
    written: str = ""
    # Of a prompt whose answer is held: the subagents whose reports it waits for, by name, and so many todos.
    held: bool = False
    waiting_on: tuple[str, ...] = ()
    open_todos: int = 0

    @property
    def pending(self) -> bool:
        """Whether the turn has not ended: `check` or `wait` for it."""
        return self.status in _RUNNING

    @property
    def text(self) -> str:
        """The reply. Raises HoplineError where there is none: `deadline_exceeded` while the turn runs."""
        if self.reply is not None:
            return self.reply
        if self.pending:
            raise HoplineError(
                "deadline_exceeded", f"no answer yet: the turn {self.turn_id} is {self.status}"
            )
        raise HoplineError(
            "failed_precondition",
            f"the turn {self.status}: {self.error or self.code or 'it gave no answer'}",
            details={"code": self.code, "turn_id": self.turn_id},
        )


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """A server tool of an agent; `output_schema` is None where it is not said.

    `available`: whether a worker that runs it is attached just now.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    available: bool


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How the call of a tool came out: `completed`, `failed` or `canceled`.

    `result` is what it returned; `code` (`tool_failed`, ...) and `error` say why there is nothing.
    """

    status: Status
    result: Any
    code: str
    error: str
    turn_id: str
    session_id: str
    depth: int

    @property
    def value(self) -> Any:
        """What the tool returned. Raises HoplineError where it has not."""
        if self.status == "completed":
            return self.result
        raise HoplineError(
            "failed_precondition",
            f"the tool {self.status}: {self.error or self.code}",
            details={"code": self.code, "turn_id": self.turn_id},
        )


@dataclass(frozen=True, slots=True)
class Escalation:
    """How a question to the agent's owner stands. `answer` holds the mesh's words where nobody answered."""

    id: str
    status: EscalationStatus
    answer: str
    answered_by: str
    thread_id: str
    expires_at: float

    @property
    def pending(self) -> bool:
        """Whether nobody has answered yet."""
        return self.status == "pending"

    @property
    def text(self) -> str:
        """The owner's answer. Raises HoplineError without one: `deadline_exceeded` while it may come."""
        if self.status == "answered":
            return self.answer
        if self.pending:
            raise HoplineError("deadline_exceeded", f"the owner has not answered yet ({self.id})")
        raise HoplineError(
            "failed_precondition", self.answer, details={"status": self.status, "escalation_id": self.id}
        )


@dataclass(frozen=True, slots=True)
class Inbox:
    """Messages that were taken; together they are the turn `turn_id`."""

    messages: tuple[Message, ...]
    remaining: int
    turn_id: str
    session_id: str


@dataclass(frozen=True, slots=True)
class Peer:
    """An agent on which the caller may start something. `presence` is empty where it is not known."""

    id: str
    slug: str
    name: str
    description: str
    relation: str
    presence: str
    # The name of the plugin that it comes from; empty for one that a person made.
    plugin: str = ""


@dataclass(frozen=True, slots=True)
class ReadMark:
    """The `seq` up to which an agent has read what was written to it in a thread; 0 for nothing."""

    agent: Party
    consumed_through: int


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread the caller takes part in."""

    id: str
    subject: str
    participants: tuple[Party, ...]
    message_count: int
    last_at: float
    read: tuple[ReadMark, ...] = ()


@dataclass(frozen=True, slots=True)
class Self:
    """Who the caller is and where it stands."""

    id: str
    slug: str
    name: str
    kind: Literal["agent", "user"]
    owner: str
    workspace: str
    session_id: str
    depth: int
    isolation: str


# --- reading the contract ------------------------------------------------------------------------


def party(named: pb.Party) -> Party:
    """Read who is named."""
    return Party(named.id, named.name, named.display, named.kind)


def _delivery(delivery: pb.Delivery) -> Delivery:
    state = pb.DeliveryState.Name(delivery.state).removeprefix("DELIVERY_STATE_").lower()
    return Delivery(
        party(delivery.agent), delivery.session_id, state, delivery.turn_id, delivery.cancel_reason
    )


def _json(text: str) -> Any:
    return json.loads(text) if text else None


def message(found: pb.Message) -> Message:
    """Read a message."""
    return Message(
        id=found.id,
        thread_id=found.thread_id,
        seq=found.seq,
        sender=party(getattr(found, "from")),
        to=tuple(party(each) for each in found.to),
        subject=found.subject,
        body=found.body,
        payload=_json(found.payload_json),
        in_reply_to=found.in_reply_to,
        depth=found.depth,
        created_at=found.created_at.ToMicroseconds() / 1_000_000,
        reply_expected=found.reply_expected,
        deliveries=tuple(_delivery(delivery) for delivery in found.deliveries),
        escalation_id=found.escalation_id,
        age_seconds=found.age_seconds if found.HasField("age_seconds") else None,
        newer_from_sender=found.newer_from_sender if found.HasField("newer_from_sender") else None,
        note=found.note,
    )


def escalation(found: escalation_pb2.Escalation) -> Escalation:
    """Read how a question to the owner stands."""
    name = escalation_pb2.EscalationStatus.Name(found.status)
    status: Any = name.removeprefix("ESCALATION_STATUS_").lower()
    return Escalation(
        id=found.id,
        status=status,
        answer=found.answer,
        answered_by=found.ended_by.name if status == "answered" else "",
        thread_id=found.thread_id,
        expires_at=found.expires_at.ToMicroseconds() / 1_000_000,
    )


def sent(found: pb.SendResponse | pb.ReplyResponse) -> Sent:
    """Read what became of a send."""
    deliveries = tuple(_delivery(delivery) for delivery in found.deliveries)
    return Sent(found.message_id, found.thread_id, found.depth, deliveries)


def answer(found: pb.TurnView) -> Answer:
    """Read how a turn stands."""
    status: Any = pb.TurnStatus.Name(found.status).removeprefix("TURN_STATUS_").lower()
    return Answer(
        status=status,
        session_id=found.session_id,
        turn_id=found.turn_id,
        thread_id=found.thread_id,
        message_id=found.message_id,
        reply=found.reply if found.has_reply else None,
        payload=_json(found.reply_payload_json),
        code=found.error.code,
        error=found.error.message,
        written=found.written,
        held=found.held,
        waiting_on=tuple(party.name for party in found.waiting_on),
        open_todos=found.open_todos,
    )


def to_human(found: draft_pb2.ReplyToHumanResponse) -> ToHuman:
    """Read what became of an answer to a person."""
    return ToHuman(
        status="held" if found.status == draft_pb2.REPLY_STATUS_HELD else "sent",
        waiting_on=tuple(each.agent.name for each in found.waiting_on),
        open_todos=found.open_todos,
        message_id=found.message_id,
        thread_id=found.thread_id,
    )


def tool_info(found: tool_pb2.ServerTool) -> ToolInfo:
    """Read a listed tool."""
    return ToolInfo(
        found.name,
        found.description,
        _json(found.input_schema_json) or {},
        _json(found.output_schema_json),
        found.available,
    )


def tool_result(found: tool_pb2.CallToolResponse) -> ToolResult:
    """Read how the call of a tool came out."""
    status: Any = pb.TurnStatus.Name(found.turn.status).removeprefix("TURN_STATUS_").lower()
    return ToolResult(
        status=status,
        result=_json(found.result_json),
        code=found.turn.error.code,
        error=found.turn.error.message,
        turn_id=found.turn.turn_id,
        session_id=found.turn.session_id,
        depth=found.turn.depth,
    )


def inbox(found: pb.TakeInboxResponse) -> Inbox:
    """Read what was taken."""
    return Inbox(
        tuple(message(one) for one in found.messages), found.remaining, found.turn_id, found.session_id
    )


def connected(message: visibility_pb2.PeerConnection) -> Connected:
    """Read a connection."""
    peer = message.peer
    return Connected(message.name, peer.id, peer.slug, peer.name, message.description)


def peer(found: visibility_pb2.Peer, presence: str) -> Peer:
    """Read a listed agent."""
    relation = visibility_pb2.Relation.Name(found.relation).removeprefix("RELATION_").lower()
    return Peer(found.id, found.slug, found.name, found.description, relation, presence, found.plugin_name)


def thread(found: pb.Thread) -> Thread:
    """Read a thread."""
    return Thread(
        found.id,
        found.subject,
        tuple(party(each) for each in found.participants),
        found.message_count,
        found.last_at.ToMicroseconds() / 1_000_000,
        tuple(ReadMark(party(mark.agent), mark.consumed_through) for mark in found.read),
    )
