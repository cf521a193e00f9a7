"""`reply_to_human`: what a lead writes to the person who prompted it, sent at once or kept as a draft.

It goes the way of every reply; where the transaction that would write it finds what holds it, it is kept.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from hopline.relay.v1 import draft_pb2 as pb
from hopline_directory import Directory
from hopline_rpc import telemetry
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal

from hopline_relay.callers import Inboxes, require_active, standing_of
from hopline_relay.domain.holds import HELD, Kept, Reasons
from hopline_relay.domain.values import MESH
from hopline_relay.drafts import Draft, HeldError
from hopline_relay.endings import Ending, Endings
from hopline_relay.hold_views import HoldViews
from hopline_relay.journal import Journal
from hopline_relay.sends import Sends
from hopline_relay.store import holds, queues
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.holds import Seat
from hopline_relay.store.prompted import Prompted, answered_from
from hopline_relay.store.schema import debts, messages
from hopline_relay.store.sql import Record
from hopline_relay.store.turns import Ended

_TRIES: Final = 5


class ToHuman:
    """Serves ReplyToHuman."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        sends: Sends,
        endings: Endings,
        inboxes: Inboxes,
        views: HoldViews,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._sends = sends
        self._endings = endings
        self._inboxes = inboxes
        self._views = views

    async def reply(
        self, principal: Principal, request: pb.ReplyToHumanRequest, turn_id: str
    ) -> pb.ReplyToHumanResponse:
        """Answer the person, or keep the draft."""
        agent = require_active(self._directory, principal)
        if agent is not None and agent.is_subagent:
            raise HoplineError(
                "failed_precondition",
                "only main agents answer people; report to your lead with report_to_caller",
            )
        standing = await standing_of(
            self._journal, self._inboxes, principal, request.caller_session_id, turn_id
        )
        prompted = await self._journal.read(
            partial(
                answered_from,
                workspace_id=principal.workspace_id,
                agent_id=principal.id,
                session_id=standing.session_id,
                turn=standing.turn,
            )
        )
        if prompted is None:
            raise HoplineError(
                "failed_precondition",
                "no person has prompted you in this session; ask_owner reaches the person who owns you",
            )
        draft = Draft(
            principal=principal,
            kind="reply",
            text=request.text,
            message_id=prompted.message_id,
            request_id=request.request_id.lower(),
            caller_session_id=request.caller_session_id,
            turn_id=turn_id,
            traceparent=telemetry.current_traceparent(),
            to_human=True,
        )
        for _ in range(_TRIES):
            try:
                sent = await self._sends.send(draft)
            except HeldError as error:
                why = await self._keep(principal.workspace_id, prompted, error.ready.seat, request.text)
                if why:
                    return self._views.reply_held(principal, why)
                continue  # what held it is over by now
            return pb.ReplyToHumanResponse(
                status=pb.REPLY_STATUS_SENT, message_id=sent.message_id, thread_id=sent.thread_id
            )
        raise HoplineError("unavailable", "what holds your answer keeps changing; try again")

    async def _keep(self, workspace_id: str, prompted: Prompted, seat: Seat | None, text: str) -> Reasons:
        """Keep the newest draft, and return what it is held for; without any nothing is kept."""
        if seat is None:
            return Reasons()
        key, message = (workspace_id, prompted.turn_id), (workspace_id, prompted.message_id)

        def op(book: Book) -> tuple[Reasons, Record | None]:
            book.lock(workspace_id)
            turn = queues.find(book.connection, {key}).get(key)
            asked = by_id(book.connection, messages, {message}).get(message)
            owed = by_id(book.connection, debts, {key}, debts.c.turn_id).get(key)
            why = holds.reasons(book.connection, seat, book.now)
            if not why or turn is None or asked is None or owed is None or owed.state != "open":
                return Reasons(), None
            before = holds.find(book.connection, key)
            if before is None:
                holds.keep(book, turn, seat, asked, Kept(text, HELD))
                holds.note(book, turn, "answer.held", MESH, holds.counts(why))
            else:
                holds.change(book, before, Kept(text, HELD))
            return why, turn

        why, turn = await self._journal.write(op)
        if turn is not None and turn.state == "running" and turn.run_session_id:
            # A prompt that was pulled is done with; its answer is owed on.
            ended = Ended(*key, ("running",), "completed", "done", attempt=turn.attempt)
            await self._endings.end(Ending(ended))
        return why
