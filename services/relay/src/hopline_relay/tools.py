"""Calls of server tools.

A call goes the way of an ask, but that its turn starts in the transaction that writes it or is not written
at all, and that it ends with its caller's wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

from hopline.relay.v1 import message_pb2, tool_pb2
from hopline_rpc import telemetry
from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.ids import IdMaker
from hopline_rpc.principals import Principal

from hopline_relay.asks import Asks
from hopline_relay.cancel import Cancels
from hopline_relay.domain.payloads import payload_problem
from hopline_relay.domain.values import MAX_WAIT_SECONDS, TOOL, Fault
from hopline_relay.drafts import Draft, Sent
from hopline_relay.journal import Journal
from hopline_relay.sends import Sends
from hopline_relay.slots import Slots
from hopline_relay.store import queues, waiting
from hopline_relay.tool_queue import NoPlaceError
from hopline_relay.tool_runs import GRACE_SECONDS, ToolRuns
from hopline_relay.tool_schemas import arguments_of
from hopline_relay.view import Views, turn_view
from hopline_relay.waits import Outcome, Waiter, Waits

log = logging.getLogger("hopline.relay.tools")

_ENDED: Final = frozenset(
    {
        message_pb2.TURN_STATUS_COMPLETED,
        message_pb2.TURN_STATUS_FAILED,
        message_pb2.TURN_STATUS_CANCELED,
    }
)


class Tools:
    """Serves calls of tools."""

    def __init__(
        self,
        journal: Journal,
        sends: Sends,
        asks: Asks,
        waits: Waits,
        slots: Slots,
        cancels: Cancels,
        runs: ToolRuns,
        views: Views,
        ids: IdMaker,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._sends = sends
        self._asks = asks
        self._waits = waits
        self._slots = slots
        self._cancels = cancels
        self._runs = runs
        self._views = views
        self._ids = ids
        self._clock = clock
        self._background: set[asyncio.Task[None]] = set()

    async def call(
        self,
        principal: Principal,
        request: tool_pb2.CallToolRequest,
        turn_id: str,
        counted: Mapping[str, Any],
    ) -> tool_pb2.CallToolResponse:
        """Run a tool and wait for its result; cancelling this ends it.

        `counted`: what else its draft holds where a plugin calls.
        """
        arguments = request.arguments_json or "{}"
        if (problem := payload_problem(arguments)) is not None:
            raise invalid("arguments_json", problem)
        arguments_of(arguments)
        draft = Draft(
            principal=principal,
            kind=TOOL,
            to=(request.agent,),
            subject=request.name,
            text=arguments,
            request_id=request.request_id.lower(),
            caller_session_id=request.caller_session_id,
            turn_id=turn_id,
            traceparent=telemetry.current_traceparent(),
            **counted,
        )
        seconds = min(request.timeout_seconds or MAX_WAIT_SECONDS, MAX_WAIT_SECONDS)
        view = await self._run(draft, seconds)
        _raise_for(view, seconds)
        response = tool_pb2.CallToolResponse(
            turn=view, result_json=view.reply, cycle=self._views.chain(principal, draft.cycle)
        )
        response.turn.ClearField("reply")
        response.turn.ClearField("has_reply")
        return response

    async def drained(self) -> None:
        """Wait until calls whose callers have left are over."""
        while self._background:
            await asyncio.wait(set(self._background))

    # --- running ----------------------------------------------------------------------------------

    async def _run(self, draft: Draft, seconds: int) -> message_pb2.TurnView:
        ends_at = self._clock.monotonic() + seconds
        principal = draft.principal
        async with AsyncExitStack() as standing_still:
            work, waiter = await self._begin(draft, ends_at, seconds, standing_still)
            sent = work.result()
            copy = sent.copies[0]
            if sent.repeated:
                left = max(0, round(ends_at - self._clock.monotonic()))
                return await self._asks.look(principal, copy.turn_id, left, from_turn_id=draft.turn_id)
            draft.cycle = sent.cycle
            try:
                outcome = await self._asks.wait(waiter, ends_at - self._clock.monotonic(), copy.id)
                if outcome is None:
                    outcome = await self._over(principal, copy.turn_id, waiter, seconds)
            except BaseException:
                self._drop(work, waiter, principal.workspace_id)
                raise
        self._waits.leave(waiter)
        self._waits.forget(principal.workspace_id, waiter)
        return turn_view(
            "running",
            outcome,
            session_id=copy.session_id,
            turn_id=copy.turn_id,
            thread_id=sent.thread_id,
            message_id=sent.message_id,
            depth=sent.depth,
            agent=self._views.party(principal, "agent", copy.id, known=True),
        )

    async def _begin(
        self, draft: Draft, ends_at: float, seconds: int, standing_still: AsyncExitStack
    ) -> tuple[asyncio.Future[Sent], Waiter]:
        """Have a call start, once there is a place for it; the turn that it comes from stands still."""
        queue, workspace_id = self._runs.queue, draft.principal.workspace_id
        place = queue.enter(workspace_id)
        given_back = False
        try:
            while True:
                waiter = draft.waiter = Waiter(self._ids.new_id("wai"), draft.principal.id)
                draft.run_seconds = max(0.0, ends_at - self._clock.monotonic()) + GRACE_SECONDS
                work = self._sends.enqueue(draft)
                try:
                    await asyncio.shield(work)
                except NoPlaceError as why:
                    full = why
                except asyncio.CancelledError:
                    self._drop(work, waiter, workspace_id)
                    raise
                else:
                    return work, waiter
                if waiter.slot_turn_id and not given_back:
                    given_back = True
                    await self._stand_still(draft.principal, waiter.slot_turn_id, standing_still)
                await queue.wait(place, full, ends_at - self._clock.monotonic())
        except TimeoutError:
            what = "run slot" if full.slot else "place at a worker"
            text = f"no {what} came free within {seconds} s; it has not run and cost nothing"
            raise HoplineError("deadline_exceeded", text) from None
        finally:
            queue.leave(place)

    async def _stand_still(self, principal: Principal, turn_id: str, until: AsyncExitStack) -> None:
        """Give the run slot of a turn back until its call is over; the record says so, as of any wait."""
        waiter = Waiter(self._ids.new_id("wai"), principal.id)
        waiter.slot_turn_id = turn_id
        row = {
            "workspace_id": principal.workspace_id,
            "id": waiter.id,
            "turn_id": "",  # there is none yet
            "instance_id": self._journal.instance_id,
            "waiter_kind": principal.kind,
            "waiter_id": principal.id,
            "waiter_turn_id": turn_id,
            "created_at": self._clock.now(),
        }
        until.callback(self._waits.forget, principal.workspace_id, waiter)
        await self._journal.write(
            lambda book: waiting.add(book.connection, row), within=[principal.workspace_id]
        )
        await until.enter_async_context(self._slots.given_back(principal.workspace_id, turn_id))

    async def _over(self, principal: Principal, turn_id: str, waiter: Waiter, seconds: int) -> Outcome:
        """End a call whose time is over, unless it has ended just now; either way the outcome is told."""
        key = (principal.workspace_id, turn_id)
        text = f"it did not end within {seconds} s and was stopped; it may have had effects"
        fault = Fault("deadline_exceeded", text)
        row = (await self._journal.read(lambda connection: queues.find(connection, {key}))).get(key)
        if row is not None and row.state == "running":
            await self._cancels.fail(row, fault)
        found = waiter.outcome or await self._asks.outcome_of(principal, turn_id)
        return found or Outcome("failed", fault=fault)

    def _drop(self, work: asyncio.Future[Sent], waiter: Waiter, workspace_id: str) -> None:
        """End a call that nobody waits for any more, or that is about to start for nobody."""
        self._waits.leave(waiter)
        self._spawn(self._cancel(work, waiter, workspace_id))

    async def _cancel(self, work: Awaitable[Sent], waiter: Waiter, workspace_id: str) -> None:
        try:
            sent = await work
            if not sent.repeated:
                fault = Fault("canceled", "its caller has left")
                await self._cancels.cancel(workspace_id, sent.copies[0].turn_id, fault, tell=False)
                self._waits.forget(workspace_id, waiter)
        except (HoplineError, NoPlaceError):
            return  # it has not begun; or the sweep ends it
        except Exception:
            log.exception("a call whose caller has left cannot be ended yet")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = detach(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _raise_for(view: message_pb2.TurnView, seconds: int) -> None:
    """Raise what is no outcome of the tool's own: its time is over, or it would not take the arguments."""
    details = {"turn_id": view.turn_id, "session_id": view.session_id}
    if view.status not in _ENDED:
        text = f"it still runs after {seconds} s; call again with the same request_id to wait on"
        raise HoplineError("deadline_exceeded", text, details=details)
    if view.error.code == "deadline_exceeded":
        raise HoplineError("deadline_exceeded", view.error.message, details=details)
    if view.error.code == "invalid_argument":
        raise invalid("arguments", view.error.message)
