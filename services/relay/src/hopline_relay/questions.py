"""Agents ask their owners: the question goes into the record, then the call waits for its end.

As with an ask, the end of the wait never ends the question: what is answered later is delivered as a
message into the session that asked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hopline.relay.v1 import escalation_pb2 as pb
from hopline_directory import Directory
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError, request_conflict
from hopline_rpc.faults import point
from hopline_rpc.ids import IdMaker
from hopline_rpc.principals import Principal

from hopline_relay.callers import (
    Inboxes,
    Standing,
    actor_of,
    cause_of,
    no_escalation,
    require_active,
    standing_of,
)
from hopline_relay.domain.escalations import KIND_QUESTION, digest_of
from hopline_relay.domain.values import Actor, clamp_wait, sibling
from hopline_relay.escalation_ends import note_escalation
from hopline_relay.handover import HandOver
from hopline_relay.journal import Journal
from hopline_relay.outbox import Outbox
from hopline_relay.settings import RelaySettings
from hopline_relay.slots import Slots
from hopline_relay.store import escalating, outbox, queues, waiting, wakes
from hopline_relay.store import sessions as session_store
from hopline_relay.store.book import Book
from hopline_relay.store.copies import copies_of
from hopline_relay.store.facts import Names, look_up
from hopline_relay.store.outgoing import Copy, Outgoing
from hopline_relay.store.requests import request_row
from hopline_relay.store.schema import requests
from hopline_relay.store.sql import Record, insert
from hopline_relay.store.writing import write
from hopline_relay.taking import Taking
from hopline_relay.view import Views
from hopline_relay.waits import Waiter, Waits


@dataclass(slots=True, kw_only=True)
class Question:
    """What an agent asks. `turn_id`: the running turn that the call comes from, where that is known."""

    principal: Principal
    text: str
    options: Sequence[str] = ()
    session_id: str = ""
    turn_id: str = ""
    request_id: str = ""
    traceparent: str = ""
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.digest = digest_of(self.text, self.options)


class Questions:
    """Serves the agents' side of EscalationService."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        waits: Waits,
        hand_over: HandOver,
        taking: Taking,
        slots: Slots,
        inboxes: Inboxes,
        views: Views,
        posts: Outbox,
        settings: RelaySettings,
        ids: IdMaker,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._waits = waits
        self._hand_over = hand_over
        self._taking = taking
        self._slots = slots
        self._inboxes = inboxes
        self._views = views
        self._outbox = posts
        self._settings = settings
        self._ids = ids
        self._clock = clock

    async def ask(self, question: Question, wait_seconds: int | None) -> pb.Escalation:
        """Ask the caller's owner, and wait for the answer."""
        principal = question.principal
        require_active(self._directory, principal)
        standing = await self._standing(principal, question.session_id, question.turn_id)
        waiter = self._waiter(principal, standing, wait_seconds)
        actor = actor_of(self._directory, principal)
        message_id = self._ids.new_id("msg")
        try:
            row = await self._journal.write(
                lambda book: self._enter(book, question, standing, actor, message_id, waiter)
            )
        except BaseException:
            if waiter is not None:
                self._waits.forget(principal.workspace_id, waiter)
            raise
        if standing.inbox is not None and standing.inbox.id:
            self._inboxes.remember(standing.inbox)
        self._outbox.wake()
        point("escalation.asked")
        return await self._see(principal, row, waiter, clamp_wait(wait_seconds))

    async def check(
        self,
        principal: Principal,
        escalation_id: str,
        wait_seconds: int | None,
        *,
        session_id: str,
        turn_id: str,
    ) -> pb.Escalation:
        """Look at a question of the caller's, or wait for its end."""
        require_active(self._directory, principal)
        standing = await self._standing(principal, session_id, turn_id)
        row = await self._own(principal, escalation_id)
        waiter = None
        if row.state == "pending":
            waiter = self._waiter(principal, standing, wait_seconds)
        if waiter is not None:
            await self._journal.write(lambda book: self._wait_row(book, row, waiter))
        return await self._see(principal, row, waiter, clamp_wait(wait_seconds))

    def hand_back(self, principal: Principal, escalation: pb.Escalation) -> None:
        """Deliver an answer as a message that a call returned and its caller never received."""
        self._hand_over.back(principal.workspace_id, escalation.id)

    # --- asking -----------------------------------------------------------------------------------

    async def _standing(self, principal: Principal, session_id: str, turn_id: str) -> Standing:
        return await standing_of(self._journal, self._inboxes, principal, session_id, turn_id)

    def _enter(
        self,
        book: Book,
        question: Question,
        standing: Standing,
        actor: Actor,
        message_id: str,
        waiter: Waiter | None,
    ) -> Record:
        """Write the question, unless it stands there already; returns it."""
        row = self._repeated(book, question)
        if row is None:
            if standing.inbox is not None:
                # Found or made first: the limit and the same question go by the session.
                session_store.settle(book, [standing.inbox])
                standing = replace(standing, session_id=standing.inbox.id, inbox=None)
            row = self._again(book, question, standing)
            if row is None:
                row = self._write(book, question, standing, actor, message_id)
            elif question.request_id:
                _remember(book, question, row)
        if waiter is not None and row.state == "pending":
            self._wait_row(book, row, waiter)
        return row

    def _repeated(self, book: Book, question: Question) -> Record | None:
        """Return what the same request has asked before; another content is refused."""
        if not question.request_id:
            return None
        principal = question.principal
        key = (principal.workspace_id, principal.id, question.request_id)
        known = look_up(book.connection, Names(requests={key}), book.now).requests.get(key)
        if known is None:
            return None
        row = escalating.of_message(book.connection, principal.workspace_id, known.message_id)
        if known.digest != question.digest or row is None:
            raise request_conflict(question.request_id)
        return row

    def _again(self, book: Book, question: Question, standing: Standing) -> Record | None:
        """Return the same question of this session, if it is pending or an earlier attempt has asked it."""
        principal = question.principal
        row = escalating.same(
            book.connection, principal.workspace_id, principal.id, standing.session_id, question.digest
        )
        turn = standing.turn
        if row is None and turn is not None and turn.attempt > 1:
            row = escalating.earlier(
                book.connection,
                principal.workspace_id,
                principal.id,
                turn.id,
                turn.attempt,
                question.digest,
            )
        return row

    def _write(
        self,
        book: Book,
        question: Question,
        standing: Standing,
        actor: Actor,
        message_id: str,
    ) -> Record:
        principal = question.principal
        owner_id = self._owner(book, principal, standing)
        self._check_room(book, principal, standing)
        window = self._directory.policy(principal.workspace_id).causality_window_seconds
        cause = cause_of(book.connection, principal, standing, book.now - window)
        outgoing = Outgoing(
            workspace_id=principal.workspace_id,
            id=message_id,
            kind=KIND_QUESTION,
            sender=actor,
            session_id=standing.session_id,
            turn_id=cause.id if cause is not None else "",
            body=question.text,
            thread_id=sibling("thr", message_id),
            opens_thread=True,
            depth=cause.depth if cause is not None else 0,
            from_depth=cause.depth if cause is not None else 0,
            root_id=cause.root_id if cause is not None else sibling("rot", message_id),
            admitted_as="answer",
            day="",  # charged to nobody
            traceparent=question.traceparent,
            copies=[Copy(kind="user", id=owner_id, state="delivered")],
            queue_seconds=0.0,
            request_id=question.request_id,
            digest=question.digest if question.request_id else b"",
        )
        write(book, [outgoing])
        row = escalating.add(book.connection, self._row(book, question, outgoing, cause, owner_id))
        note_escalation(book, row, "escalation.asked", actor, {})
        owner = self._directory.user(principal.workspace_id, owner_id)
        if owner is not None and owner.has_webhook:
            notice = (principal.workspace_id, sibling("ntc", message_id))
            outbox.add(book.connection, notice, outbox.ESCALATION, row.id, owner_id, book.now)
        return row

    def _owner(self, book: Book, principal: Principal, standing: Standing) -> str:
        """Return whom the question goes to. Here, where nothing that ends questions can come between."""
        agent = require_active(self._directory, principal)
        owner = self._directory.user(principal.workspace_id, agent.owner_id) if agent is not None else None
        if owner is None:
            raise HoplineError("failed_precondition", "this agent has no owner who could be asked")
        if standing.turn is not None:
            key = (principal.workspace_id, standing.turn.id)
            if queues.find(book.connection, {key})[key].state != "running":
                raise HoplineError("failed_precondition", "the turn that this call comes from has ended")
        return owner.id

    def _check_room(self, book: Book, principal: Principal, standing: Standing) -> None:
        """Hold the number of pending questions down: they are for people to answer."""
        pending = escalating.pending_sessions(book.connection, principal.workspace_id, principal.id)
        here = pending.count(standing.session_id)
        for count, limit, where in (
            (len(pending), self._settings.escalations_per_agent, "this agent"),
            (here, self._settings.escalations_per_session, "this session"),
        ):
            if count >= limit:
                raise HoplineError(
                    "limit_reached",
                    f"{where} has {count} questions pending, and {limit} is the limit; "
                    "wait until the owner has answered some",
                    details={"limit": limit, "used": count},
                )

    def _row(
        self, book: Book, question: Question, outgoing: Outgoing, cause: Record | None, owner_id: str
    ) -> dict[str, Any]:
        running = cause if cause is not None and cause.state == "running" else None
        return {
            "workspace_id": outgoing.workspace_id,
            "id": sibling("esc", outgoing.id),
            "ordinal": book.ordinal(outgoing.workspace_id),
            "agent_id": outgoing.sender.id,
            "owner_id": owner_id,
            "state": "pending",
            "message_id": outgoing.id,
            "thread_id": outgoing.thread_id,
            "session_id": outgoing.session_id,
            "turn_id": (running.batch_id or running.id) if running is not None else "",
            "attempt": running.attempt if running is not None else 0,
            "depth": outgoing.depth,
            "root_id": outgoing.root_id,
            "traceparent": question.traceparent,
            "question": question.text,
            "options": json.dumps(list(question.options), ensure_ascii=False) if question.options else "",
            "digest": question.digest,
            "answer": "",
            "answer_message_id": "",
            "ended_by_kind": "",
            "ended_by_id": "",
            "created_at": book.now,
            "expires_at": book.now + self._settings.escalation_seconds,
            "ended_at": None,
        }

    # --- waiting ----------------------------------------------------------------------------------

    def _waiter(self, principal: Principal, standing: Standing, wait_seconds: int | None) -> Waiter | None:
        if not clamp_wait(wait_seconds):
            return None
        waiter = Waiter(self._ids.new_id("wai"), principal.id)
        if standing.turn is not None and standing.turn.slot:
            waiter.slot_turn_id = standing.turn.id
        return waiter

    def _wait_row(self, book: Book, row: Record, waiter: Waiter) -> None:
        values = {
            "workspace_id": row.workspace_id,
            "id": waiter.id,
            "turn_id": row.id,
            "instance_id": self._journal.instance_id,
            "waiter_kind": "agent",
            "waiter_id": waiter.principal_id,
            "waiter_turn_id": waiter.slot_turn_id,
            "created_at": book.now,
        }
        waiting.add(book.connection, values)

    async def _see(
        self, principal: Principal, row: Record, waiter: Waiter | None, seconds: int
    ) -> pb.Escalation:
        """Wait for the end of a question, if the caller does, and return how it stands."""
        if waiter is not None and row.state == "pending":
            asked = row
            self._waits.register(row.workspace_id, row.id, waiter)
            try:
                # It may have ended between the look and the registration.
                row = await self._own(principal, row.id)
                if row.state == "pending":
                    await self._slots.wait(waiter, seconds, waiter.slot_turn_id)
                # From here on nobody is told through it: what ends for a waiting call is a message then.
                self._waits.leave(waiter)
                row = await self._own(principal, row.id)
                if waiter.outcome is None and not await self._is_to_take(row):
                    row = asked
            except BaseException:
                self._gone(waiter)
                raise
            self._waits.forget(row.workspace_id, waiter)
        if row.state != "pending":
            await self._take(row)
        return self._views.escalation(principal, row)

    def _gone(self, waiter: Waiter) -> None:
        """End a wait whose call was cancelled: what it was handed in the meantime is delivered instead."""
        self._waits.leave(waiter)
        if waiter.outcome is not None:
            self._hand_over.back(*waiter.key)
        self._waits.forget(waiter.key[0], waiter)

    async def _own(self, principal: Principal, escalation_id: str) -> Record:
        key = (principal.workspace_id, escalation_id)
        row = await self._journal.read(lambda connection: escalating.find(connection, key))
        if row is None or row.agent_id != principal.id:
            raise no_escalation(escalation_id)
        return row

    async def _is_to_take(self, row: Record) -> bool:
        """Tell whether an answer waits for whoever takes it; one without a message waits for nobody."""
        if row.state == "pending" or not row.answer_message_id:
            return True
        key = (row.workspace_id, row.answer_message_id)
        copies = await self._journal.read(lambda connection: copies_of(connection, [key]))
        return any(copy.state == "queued" for copy in copies[key])

    async def _take(self, row: Record) -> None:
        """Mark an answer as taken that is handed over, and drop the wake that is still queued."""
        if row.answer_message_id and await self._is_to_take(row):
            key = (row.workspace_id, row.answer_message_id)
            await self._taking.take((row.workspace_id, row.id), lambda book: _drop_wake(book, key))


def _remember(book: Book, question: Question, row: Record) -> None:
    """Have the same request find the question that was there before it."""
    asked = request_row(
        book, row.workspace_id, row.agent_id, question.request_id, question.digest, row.message_id
    )
    insert(book.connection, requests, [asked])


def _drop_wake(book: Book, key: tuple[str, str]) -> list[Record]:
    """Take an answer off its recipient's queue; returns the turn that would have taken it."""
    copies = copies_of(book.connection, [key])[key]
    return wakes.drop(book, [copy for copy in copies if copy.state == "queued"])
