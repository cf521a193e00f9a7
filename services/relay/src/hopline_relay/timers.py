"""Sessions set timers and call them off; people look at them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

from hopline.relay.v1 import timer_pb2 as pb
from hopline_directory import Directory
from hopline_rpc.clock import rfc3339, to_timestamp
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import IdMaker
from hopline_rpc.paging import Pager, fit, page_size
from hopline_rpc.principals import Principal

from hopline_relay.callers import actor_of
from hopline_relay.domain.handing import By
from hopline_relay.domain.left import MAX_TIMERS
from hopline_relay.hooks.items import SCHEDULED
from hopline_relay.hooks.left import LeftHooks
from hopline_relay.journal import Journal
from hopline_relay.left import Key, Seat, Seats
from hopline_relay.store import requests, timers
from hopline_relay.store.book import Book
from hopline_relay.store.sql import Record
from hopline_relay.view import Views


class Timers:
    """Serves TimerService; each method also takes the turn that a call over a tunnel comes from."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        seats: Seats,
        views: Views,
        pager: Pager,
        ids: IdMaker,
        hooks: LeftHooks,
        changed: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._seats = seats
        self._views = views
        self._pager = pager
        self._ids = ids
        self._hooks = hooks
        # Called when one may be due earlier than was known.
        self._changed = changed

    async def set_timer(
        self,
        principal: Principal,
        request: pb.SetTimerRequest,
        *,
        turn_id: str = "",
        by: By | None = None,
    ) -> pb.SetTimerResponse:
        """Set one; `by`: the plugin that does it in the agent's name."""
        seat = await self._seats.take(principal, request.caller_session_id, turn_id, by)
        timer_id = self._ids.new_id("tmr")
        text, kept = await self._shape(seat, request)
        if kept is not None:
            # Other content under the same request id is refused here as well.
            await self._journal.write(lambda book: self._keep(book, seat, request, timer_id, kept))
            return pb.SetTimerResponse(is_canceled=bool(kept), cancel_reason=kept)
        row = await self._journal.write(lambda book: self._set(book, seat, request, timer_id, text))
        self._seats.remember(seat)
        self._changed()
        return pb.SetTimerResponse(timer=self._shown(principal, row))

    async def _shape(self, seat: Seat, request: pb.SetTimerRequest) -> tuple[str, str | None]:
        """Have hooks asked about a timer; returns its words, and why it is kept back, if it is.

        A request that was made before is not asked about again.
        """
        if not self._hooks.concern(seat.principal.workspace_id, SCHEDULED):
            return request.message, None
        now, request_id = self._journal.clock.now(), request.request_id
        known = await self._journal.read(
            lambda connection: requests.find(connection, seat.principal, request_id, now)
        )
        if known is not None:
            return request.message, json.loads(known.kept) if known.kept else None
        place = self._hooks.left_from(seat)
        shaped = await self._hooks.timer(place, request.message, now + request.delay_seconds)
        return shaped.words.text, None if shaped.goes_on else shaped.canceled

    def _keep(self, book: Book, seat: Seat, request: pb.SetTimerRequest, timer_id: str, kept: str) -> None:
        """Remember a request of which hooks let nothing be."""
        if request.request_id:
            digest, request_id = _digest(seat.session(book), request), request.request_id.lower()
            requests.result_of(book, seat.principal, request_id, digest, timer_id, json.dumps(kept))

    def _set(self, book: Book, seat: Seat, request: pb.SetTimerRequest, timer_id: str, text: str) -> Record:
        principal = seat.principal
        book.lock(principal.workspace_id)
        session = seat.session(book)
        self._seats.check_open(book, session)
        if request.request_id:
            digest = _digest(session, request)
            earlier = requests.result_of(book, principal, request.request_id.lower(), digest, timer_id)
            if earlier:
                found = timers.find(book.connection, (principal.workspace_id, earlier))
                if found is None:
                    raise _over(earlier)
                return found
        used = timers.count(book.connection, *session)
        if used >= MAX_TIMERS:
            raise HoplineError(
                "limit_reached",
                f"this session has {used} timers, which is all it may have at a time; cancel one, or wait",
                details={"limit": MAX_TIMERS, "used": used},
            )
        origin = self._seats.origin(book, seat, timer_id)
        timers.add(book, session, principal.id, timer_id, text, request.delay_seconds, origin)
        row = timers.find(book.connection, (principal.workspace_id, timer_id))
        details = {
            "due_at": rfc3339(book.now + request.delay_seconds),
            "depth": origin.depth,
            "root_id": origin.root_id,
            **seat.details,
        }
        timers.note(book, row, "timer.set", actor_of(self._directory, principal), details)
        return row

    async def list_timers(
        self, principal: Principal, request: pb.ListTimersRequest, *, turn_id: str = ""
    ) -> pb.ListTimersResponse:
        """Return those of a session, the next one first."""
        size = page_size(request.page_size)
        seen = self._seats.seen
        session = await seen(principal, request.session_id, request.caller_session_id, turn_id)
        if session is None:
            return pb.ListTimersResponse()
        key: Key = (session.workspace_id, session.id)
        query = ("timers", principal.workspace_id, principal.id, session.id)
        position = self._pager.position(query, request.page_token)
        after = (float(position[0] or 0), str(position[1])) if position else (0.0, "")
        rows = await self._journal.read(lambda connection: timers.page(connection, *key, after, size + 1))
        page = fit(self._shown(principal, row) for row in rows[:size])
        response = pb.ListTimersResponse(timers=page)
        if len(rows) > len(page):
            last = rows[len(page) - 1]
            response.next_page_token = self._pager.token(query, [last.fires_at, last.id])
        return response

    async def cancel_timer(
        self, principal: Principal, request: pb.CancelTimerRequest, *, turn_id: str = ""
    ) -> pb.CancelTimerResponse:
        """Call one off."""
        key = (principal.workspace_id, request.timer_id)
        if principal.kind == "user":
            row = await self._seats.owned(
                principal,
                lambda connection: timers.find(connection, key),
                lambda: no_timer(request.timer_id),
                "the agent of this timer",
            )
            session = (row.workspace_id, row.session_id)
            await self._journal.write(lambda book: self._cancel(book, principal, key, session))
            return pb.CancelTimerResponse()
        seat = await self._seats.take(principal, request.caller_session_id, turn_id)
        await self._journal.write(lambda book: self._cancel(book, principal, key, seat.session(book)))
        self._seats.remember(seat)
        return pb.CancelTimerResponse()

    def _cancel(self, book: Book, principal: Principal, key: Key, session: Key) -> None:
        book.lock(principal.workspace_id)
        row = timers.find(book.connection, key)
        if row is None or row.session_id != session[1]:
            raise no_timer(key[1])
        timers.remove(book, row)
        timers.note(book, row, "timer.canceled", actor_of(self._directory, principal))

    def _shown(self, principal: Principal, row: Record) -> pb.Timer:
        return pb.Timer(
            id=row.id,
            message=row.body,
            session_id=row.session_id,
            turn_id=row.turn_id,
            depth=row.depth,
            root_id=row.root_id,
            created_at=to_timestamp(row.created_at),
            due_at=to_timestamp(row.fires_at),
            agent=self._views.party(principal, "agent", row.agent_id, known=True),
        )


def _digest(session: Key, request: pb.SetTimerRequest) -> bytes:
    content = ("timer", session[1], str(request.delay_seconds), request.message)
    return hashlib.blake2b("\0".join(content).encode(), digest_size=16).digest()


def _over(timer_id: str) -> HoplineError:
    return HoplineError(
        "failed_precondition",
        f"this request has set the timer {timer_id}, which has fired or was called off since; set another "
        "one with a fresh request_id",
        details={"timer_id": timer_id},
    )


def no_timer(timer_id: str) -> HoplineError:
    """Return the one answer for a timer that does not exist or that the caller may not know of."""
    return HoplineError("not_found", f"there is no timer {timer_id!r}", details={"timer_id": timer_id})
