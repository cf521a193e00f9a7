"""The record as one reader may see it: agents outside the reader's view appear as `another agent`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from hopline.relay.v1 import delegation_pb2, escalation_pb2, message_pb2, session_pb2
from hopline_directory import Directory
from hopline_rpc.clock import to_timestamp
from hopline_rpc.principals import Principal

from hopline_relay.domain.escalations import KIND_ANSWER
from hopline_relay.domain.sources import SOURCES, name_in
from hopline_relay.domain.values import VETOED, WAKES, sibling
from hopline_relay.drafts import Sent
from hopline_relay.hooks.items import Words
from hopline_relay.store import hooking
from hopline_relay.store.escalating import options_of
from hopline_relay.store.linked import Linked
from hopline_relay.store.sql import Record
from hopline_relay.waits import Outcome

Party = message_pb2.Party
SOMEBODY: Final = "another agent"

DELIVERY_STATES: Final[Mapping[str, message_pb2.DeliveryState.ValueType]] = {
    value.name.removeprefix("DELIVERY_STATE_").lower(): value.number  # type: ignore[misc] # an enum's value
    for value in message_pb2.DeliveryState.DESCRIPTOR.values
}
TURN_STATES: Final[Mapping[str, message_pb2.TurnStatus.ValueType]] = {
    value.name.removeprefix("TURN_STATUS_").lower(): value.number  # type: ignore[misc] # an enum's value
    for value in message_pb2.TurnStatus.DESCRIPTOR.values
}
ESCALATION_STATES: Final[Mapping[str, escalation_pb2.EscalationStatus.ValueType]] = {
    value.name.removeprefix("ESCALATION_STATUS_").lower(): value.number  # type: ignore[misc] # an enum's value
    for value in escalation_pb2.EscalationStatus.DESCRIPTOR.values
}


class Views:
    """Shows rows to readers."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def party(
        self, reader: Principal, kind: str, identifier: str, *, known: bool = False, name: str = ""
    ) -> Party:
        """Return somebody as the reader may see them; `known`: they have dealt with each other.

        `name` is that of a schedule or webhook, which nobody else knows here.
        """
        if kind == "mesh":
            return Party(name="mesh", display="the mesh", kind="mesh")
        if kind in SOURCES:
            return Party(id=identifier, name=name or kind, display=f"{kind} {name}".rstrip(), kind=kind)
        if kind == "plugin":
            plugin = self._directory.plugin(reader.workspace_id, identifier)
            name = plugin.name if plugin is not None else "a plugin"
            return Party(id=identifier, name=name, display=f"the plugin {name}", kind=kind)
        if kind != "agent":
            user = self._directory.user(reader.workspace_id, identifier)
            name = user.name if user is not None else identifier
            return Party(id=identifier, name=name, display=name, kind=kind)
        agent = self._directory.agent(reader.workspace_id, identifier)
        if agent is None or not (known or self._directory.may_know(reader, identifier)):
            return Party(name=SOMEBODY, display=SOMEBODY, kind="agent")
        return Party(id=agent.id, name=agent.name, display=self._directory.display(agent), kind="agent")

    def _stands_for(self, reader: Principal, agent_id: str) -> bool:
        """Tell whether the reader is an agent, or a person who may look at it, and so at its peers."""
        return agent_id == reader.id or (reader.kind == "user" and self._directory.may_know(reader, agent_id))

    def received(
        self, reader: Principal, row: Record, copies: Sequence[Record], now: float, newer: int | None = None
    ) -> message_pb2.Message:
        """Return a message as it is shown to its recipient: with its age, and how many newer ones follow."""
        message = self.message(reader, row, copies)
        message.age_seconds = max(0, int(now - row.created_at))
        if newer is not None:
            message.newer_from_sender = newer
        return message

    def handed(
        self,
        reader: Principal,
        turn: Record,
        row: Record,
        copies: Sequence[Record],
        now: float,
        newer: int,
    ) -> message_pb2.Message:
        """Return a message as it is handed to the agent that is to work on it, in this turn."""
        message = self.received(reader, row, copies, now, newer)
        message.chain.extend(self.chain(reader, turn.chain, row.from_id))
        return message

    def read_marks(
        self, reader: Principal, marks: Iterable[tuple[str, int]]
    ) -> Iterator[message_pb2.ReadMark]:
        """Return how far agents have read, given as (id, number)."""
        for agent_id, through in marks:
            party = self.party(reader, "agent", agent_id, known=agent_id == reader.id)
            yield message_pb2.ReadMark(agent=party, consumed_through=through)

    def message(self, reader: Principal, row: Record, copies: Sequence[Record]) -> message_pb2.Message:
        """Return a message with its deliveries."""
        own = self._stands_for(reader, row.from_id)
        to_reader = [copy for copy in copies if self._stands_for(reader, copy.recipient_id)]
        addressed = bool(to_reader)
        words = Words(row.body, row.subject, row.payload)
        if addressed and not own:
            words = _least(to_reader, words)
        message = message_pb2.Message(
            id=row.id,
            thread_id=row.thread_id,
            seq=row.seq,
            subject=words.subject,
            body=words.text,
            payload_json=words.payload,
            in_reply_to=row.in_reply_to,
            depth=row.depth,
            created_at=to_timestamp(row.created_at),
            reply_expected=row.owed or row.kind in ("ask", "prompt"),
            escalation_id=sibling("esc", row.in_reply_to) if row.kind == KIND_ANSWER else "",
            note=row.kind if row.kind in WAKES else "",
        )
        # `from` is a word of Python's.
        getattr(message, "from").CopyFrom(
            self.party(reader, row.from_kind, row.from_id, known=addressed or own, name=source_name(row))
        )
        for copy in copies:
            vetoed = copy.state == VETOED
            if vetoed and not (own or reader.kind == "user"):
                continue  # that it did not get there is its sender's business
            party = self.party(reader, copy.recipient_kind, copy.recipient_id, known=own)
            message.to.append(party)
            delivery = message.deliveries.add(agent=party, state=DELIVERY_STATES[copy.state])
            if vetoed:
                delivery.cancel_reason = hooking.cancel_reason(copy.shaped)
                delivery.is_canceled = bool(delivery.cancel_reason)
            if own or reader.kind == "user" or copy.recipient_id == reader.id:
                delivery.session_id, delivery.turn_id = copy.session_id, copy.turn_id
        return message

    def deliveries(self, reader: Principal, sent: Sent) -> Iterable[message_pb2.Delivery]:
        """Return what went to whom, for its sender."""
        for copy in sent.copies:
            yield message_pb2.Delivery(
                agent=self.party(reader, copy.kind, copy.id, known=True),
                session_id=copy.session_id,
                state=DELIVERY_STATES[copy.state],
                turn_id=copy.turn_id,
                is_canceled=bool(copy.cancel_reason),
                cancel_reason=copy.cancel_reason,
            )

    def thread(
        self,
        reader: Principal,
        row: Record,
        members: Iterable[tuple[str, str]],
        marks: Iterable[tuple[str, int]],
    ) -> message_pb2.Thread:
        """Return a thread with its participants, as (kind, id), and how far agents have read."""
        return message_pb2.Thread(
            id=row.id,
            subject=row.subject,
            participants=[
                self.party(reader, kind, identifier, known=identifier == reader.id)
                for kind, identifier in members
            ],
            message_count=row.message_count,
            last_at=to_timestamp(row.last_at),
            read=self.read_marks(reader, marks),
        )

    def session(self, reader: Principal, row: Record, last_at: float, links: Linked) -> session_pb2.Session:
        """Return a session with what hangs on it: those that it has opened elsewhere, whose child it is."""
        name = name_in(row.title) if row.opened_by_kind in SOURCES else ""
        seen = reader.kind == "user" and self._stands_for(reader, row.agent_id)
        opener = self.party(reader, row.opened_by_kind, row.opened_by_id, known=seen, name=name)
        return session_pb2.Session(
            id=row.id,
            agent=self.party(reader, "agent", row.agent_id, known=self._stands_for(reader, row.opened_by_id)),
            title=row.title if opener.id or row.opened_by_kind != "agent" else "From another agent",
            channel=row.channel,
            state=_session_state(row),
            opened_by=session_pb2.OpenedBy(
                kind=row.opened_by_kind,
                id=opener.id,
                name=opener.name,
                session_id=row.opened_by_session_id
                if self._directory.may_know(reader, row.opened_by_id)
                else "",
            ),
            created_at=to_timestamp(row.created_at),
            last_at=to_timestamp(last_at),
            opened=[self._linked(reader, each) for each in links.newest],
            opened_count=links.count,
            child=self._child(reader, links.child, owes=links.owes_report, parent=opener)
            if links.child is not None
            else None,
            live_children=links.live_children,
            peer_session_id=links.peer_session_id
            if links.peer_id and self._directory.may_know(reader, links.peer_id)
            else "",
        )

    def _child(self, reader: Principal, row: Record, *, owes: bool, parent: Party) -> session_pb2.Child:
        """Return what a session is as a child."""
        known = self._directory.may_know(reader, row.parent_agent_id)
        return session_pb2.Child(
            parent=parent,
            parent_session_id=row.parent_session_id if known else "",
            state="closed" if row.state == "closing" else row.state,
            owes_report=owes,
            is_fire_and_forget=row.fire_and_forget,
            links=row.links,
            root_id=row.root_id,
            message_id=row.message_id,
        )

    def _linked(self, reader: Principal, row: Record) -> session_pb2.LinkedSession:
        """Return the other end of a session; of an agent the reader may not look at, only which it is."""
        agent = self.party(reader, "agent", row.agent_id, known=self._stands_for(reader, row.opened_by_id))
        if row.opened_by_id != reader.id and not self._directory.may_know(reader, row.agent_id):
            return session_pb2.LinkedSession(agent=agent)
        return session_pb2.LinkedSession(id=row.id, agent=agent, title=row.title, state=_session_state(row))

    def chain(self, reader: Principal, chain: str, sender_id: str = "") -> list[Party]:
        """Return the agents of a chain of delegations; the reader has dealt with `sender_id`."""
        return [
            self.party(reader, "agent", agent_id, known=agent_id in (sender_id, reader.id))
            for agent_id in chain.split(" ")
            if agent_id
        ]

    def turn(self, reader: Principal, row: Record, *, asks_owner: bool = False) -> delegation_pb2.Turn:
        """Return a turn with its chain; `asks_owner`: it waits for its agent's owner."""
        own = self._stands_for(reader, row.caused_by_id)
        seen = reader.kind == "user" and self._stands_for(reader, row.agent_id)
        turn = delegation_pb2.Turn(
            id=row.id,
            agent=self.party(reader, "agent", row.agent_id, known=own),
            session_id=row.session_id,
            status=TURN_STATES["waiting_for_owner" if asks_owner else row.state],
            cause=row.cause,
            caused_by=self.party(reader, row.caused_by_kind, row.caused_by_id, known=own or seen),
            parent_turn_id=row.parent_turn_id,
            root_id=row.root_id,
            depth=row.depth,
            attempt=row.attempt,
            created_at=to_timestamp(row.created_at),
            trace_id=(row.span or row.traceparent)[3:35],
            message_id=row.message_id,
            thread_id=row.thread_id,
            chain=self.chain(reader, row.chain),
        )
        if row.started_at is not None:
            turn.started_at.CopyFrom(to_timestamp(row.started_at))
        if row.ended_at is not None and row.state != "queued":
            turn.ended_at.CopyFrom(to_timestamp(row.ended_at))
        if row.error_code:
            turn.error.code, turn.error.message = row.error_code, row.error_message
        return turn

    def escalation(self, reader: Principal, row: Record) -> escalation_pb2.Escalation:
        """Return a question to an owner, as its agent or a person sees it."""
        found = escalation_pb2.Escalation(
            id=row.id,
            agent=self.party(reader, "agent", row.agent_id),
            owner=self.party(reader, "user", row.owner_id),
            question=row.question,
            options=options_of(row),
            status=ESCALATION_STATES[row.state],
            answer=row.answer,
            session_id=row.session_id,
            turn_id=row.turn_id,
            thread_id=row.thread_id,
            depth=row.depth,
            created_at=to_timestamp(row.created_at),
            expires_at=to_timestamp(row.expires_at),
        )
        if row.ended_at is not None:
            found.ended_at.CopyFrom(to_timestamp(row.ended_at))
            found.ended_by.CopyFrom(self.party(reader, row.ended_by_kind, row.ended_by_id))
        return found


def _session_state(row: Record) -> str:
    return "closed" if row.closed else "busy" if row.running_turn_id else "idle"


def _least(copies: Iterable[Record], words: Words) -> Words:
    """Return what is shown to who stands for these recipients: as it is where one of them has it so."""
    found = words
    for copy in copies:
        if copy.shaped is None:
            return words
        if found is words or not found.text:
            found = hooking.words_for(copy.shaped, words)
    return found


def source_name(row: Record) -> str:
    """Return the name of the schedule or webhook that wrote a message: it stands in the subject."""
    return str(row.subject) if row.from_kind in SOURCES else ""


def turn_view(
    state: str,
    outcome: Outcome | None,
    *,
    session_id: str,
    turn_id: str,
    thread_id: str,
    message_id: str,
    depth: int,
    agent: Party,
    written: str = "",
) -> message_pb2.TurnView:
    """Return what a caller learns of a turn; `state` is the turn's own while there is no outcome yet.

    So is `written`: what it has written so far, where that is shown.
    """
    view = message_pb2.TurnView(
        status=TURN_STATES[outcome.status if outcome is not None else state],
        session_id=session_id,
        turn_id=turn_id,
        thread_id=thread_id,
        message_id=message_id,
        depth=depth,
        agent=agent,
    )
    if outcome is None:
        view.written = written
    else:
        if outcome.reply is not None:
            view.reply, view.has_reply = outcome.reply, True
            view.reply_payload_json, view.reply_message_id = outcome.payload, outcome.reply_message_id
        if outcome.fault is not None:
            view.error.code, view.error.message = outcome.fault.code, outcome.fault.message
    return view
