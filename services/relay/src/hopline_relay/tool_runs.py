"""Calls of server tools at the workers of this process: their places, and how they begin and end.

A worker takes so many at once beside its turns. A call ends with the first of: its result, the end of its
attachment, its time, a cancellation. None is made a second time, since a tool may have effects.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline_rpc.clock import Clock, to_timestamp
from hopline_rpc.errors import HoplineError
from hopline_rpc.faults import point
from hopline_rpc.principals import Principal
from sqlalchemy import bindparam, select

from hopline_relay.cancel import Cancels
from hopline_relay.dispatch import Attachment, Dispatcher
from hopline_relay.domain.payloads import payload_problem
from hopline_relay.domain.values import MAX_ANSWER_BYTES, MESH, TOOL, Actor, Fault
from hopline_relay.endings import Endings
from hopline_relay.ends import Ending
from hopline_relay.held import Known, ToolRun
from hopline_relay.journal import Journal
from hopline_relay.store.outgoing import Copy, Outgoing
from hopline_relay.store.schema import RUNNING, instances, turns
from hopline_relay.store.sql import Statement
from hopline_relay.store.turns import Ended
from hopline_relay.tool_queue import ToolQueue
from hopline_relay.tool_schemas import Tool
from hopline_relay.view import Views
from hopline_relay.waits import Waits

log = logging.getLogger("hopline.relay.tools")

# Calls at once at one worker.
MAX_CALLS: Final = 32
# So much later than its caller gives up a turn is ended by the sweep, if nobody else has.
GRACE_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 1.0
_MAX_FAILURE: Final = 2000
_LOST: Final = Fault(
    "unavailable", "its worker was lost while the tool ran: it may have had effects, and is not run again"
)
_RESTARTED: Final = Fault(
    "unavailable", "the relay was lost while the tool ran: it may have had effects, and is not run again"
)
_RUNNING: Final = Statement(
    select(turns).where(
        turns.c.due_at.is_not(None),
        turns.c.state == RUNNING,
        turns.c.cause == bindparam("cause"),
        turns.c.instance_id.not_in(select(instances.c.id).where(instances.c.ended_at.is_(None))),
    )
)


class ToolRuns:
    """Runs tools at workers."""

    def __init__(
        self,
        journal: Journal,
        dispatcher: Dispatcher,
        endings: Endings,
        cancels: Cancels,
        waits: Waits,
        views: Views,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._dispatcher = dispatcher
        self._endings = endings
        self._cancels = cancels
        self._waits = waits
        self._views = views
        self._clock = clock
        self.queue = ToolQueue(clock)
        # By turn: places that are kept, and calls that run.
        self._runs: dict[str, ToolRun] = {}
        dispatcher.stop_tool = self.stop

    # -- what is offered -----------------------------------------------------------------------------

    def attached(self, workspace_id: str, agent_id: str) -> bool:
        """Tell whether a worker of the agent is attached."""
        return bool(self._dispatcher.attachments(workspace_id, agent_id))

    def offered(self, workspace_id: str, agent_id: str) -> dict[str, Tool]:
        """Return what the attached workers of an agent offer; of one name what the newest says."""
        found: dict[str, Tool] = {}
        for attachment in self._dispatcher.attachments(workspace_id, agent_id):
            found |= attachment.tools
        return found

    # -- places --------------------------------------------------------------------------------------

    def take_place(self, workspace_id: str, agent_id: str, name: str, turn_id: str) -> ToolRun | None:
        """Keep a place for a call at the worker that has the most of them free."""
        free = [
            attachment
            for attachment in self._dispatcher.attachments(workspace_id, agent_id)
            if name in attachment.tools and len(attachment.tool_turns) < MAX_CALLS and attachment.sink.ready()
        ]
        if not free or self._dispatcher.draining:
            return None
        # Of several the newest: an old one may be a stream that its worker has left.
        attachment = min(reversed(free), key=lambda each: len(each.tool_turns))
        run = ToolRun(workspace_id, agent_id, turn_id, attachment.epoch, attachment)
        attachment.tool_turns.add(turn_id)
        self._runs[turn_id] = run
        return run

    def free(self, run: ToolRun) -> None:
        """Give a place back."""
        if self._runs.pop(run.turn_id, None) is None:
            return
        attachment: Attachment = run.attachment
        attachment.tool_turns.discard(run.turn_id)
        attachment.tool_calls.pop(run.call_id, None)
        self._waits.tool_turns.discard(run.turn_id)
        self.queue.place_free(run.workspace_id, run.agent_id)

    # -- running -------------------------------------------------------------------------------------

    def start(self, run: ToolRun, message: Outgoing, copy: Copy) -> None:
        """Hand a call whose turn has started to its worker."""
        attachment: Attachment = run.attachment
        run.known = Known(copy.turn, copy.debt, message.row)
        if run.stopped:
            self.free(run)
            return
        self._waits.tool_turns.add(run.turn_id)
        if attachment not in self._dispatcher.attachments(run.workspace_id, run.agent_id):
            self._dispatcher.spawn(self._lose(run))
            return
        attachment.tool_count += 1
        run.call_id = attachment.tool_count
        attachment.tool_calls[run.call_id] = run
        reader = Principal(kind="agent", id=run.agent_id, workspace_id=run.workspace_id)
        caller = self._views.party(reader, message.sender.kind, message.sender.id, known=True)
        call = pb.ToolCall(
            attachment=attachment.number,
            call_id=run.call_id,
            name=message.subject,
            arguments_json=message.body,
            traceparent=copy.turn.span,
            deadline=to_timestamp(copy.turn.deadline_at - GRACE_SECONDS),
            turn_id=run.turn_id,
            depth=message.depth,
            session_id=copy.session_id,
            root_id=message.root_id,
        )
        setattr(call, "from", caller.display)
        attachment.sink.send(pb.RelayItem(tool_call=call))
        point("relay.dispatched")

    def stop(self, turn_id: str) -> bool:
        """Tell the worker of a turn that somebody has ended; False where it is no call of a tool here."""
        run = self._runs.get(turn_id)
        if run is None:
            return False
        run.stopped = True
        if run.call_id:
            attachment: Attachment = run.attachment
            canceled = pb.ToolCallCanceled(attachment=attachment.number, call_id=run.call_id)
            attachment.sink.send(pb.RelayItem(tool_call_canceled=canceled))
            self.free(run)
        return True

    def run_of(self, attachment: Attachment, call_id: int) -> ToolRun | None:
        """Return the call that a worker names, if it is still waited for."""
        run = attachment.tool_calls.get(call_id)
        return None if run is None or run.stopped else run

    async def ended(self, run: ToolRun, item: pb.ToolResult) -> None:
        """Record what a worker says of a call."""
        kind = item.WhichOneof("outcome")
        if kind == "result_json":
            await self._complete(run, item.result_json)
        elif kind == "refusal":
            await self._fail(run, Fault("invalid_argument", _words(item.refusal, "they do not fit")))
        else:
            await self._fail(run, Fault("tool_failed", _words(item.failure, "the tool failed")))

    async def _complete(self, run: ToolRun, result: str) -> None:
        if problem := _problem(result):
            await self._fail(run, Fault("tool_failed", f"its result {problem}"))
        else:
            await self._end(run, self._ended(run, "completed", "done"), result)

    async def _fail(self, run: ToolRun, fault: Fault) -> None:
        await self._end(run, self._ended(run, "failed", "failed", fault))

    def lost(self, attachment: Attachment) -> None:
        """End the calls of an attachment that has ended."""
        if attachment.tools:
            self.queue.gone(*attachment.key)
        for run in list(attachment.tool_calls.values()):
            if not run.stopped:
                run.stopped = True
                self._dispatcher.spawn(self._lose(run))

    async def _lose(self, run: ToolRun) -> None:
        """End a call whose worker is gone, and what only it waits for."""
        await self._fail(run, _LOST)
        if run.known is not None:
            await self._cancels.cascade([run.known.turn], _LOST, MESH)

    @staticmethod
    def _ended(run: ToolRun, state: str, delivery: str, fault: Fault | None = None) -> Ended:
        return Ended(
            run.workspace_id,
            run.turn_id,
            ("running",),
            state,
            delivery,
            attempt=1,
            epoch=run.epoch,
            fault=fault,
            actor=Actor("agent", run.agent_id),
        )

    async def _end(self, run: ToolRun, ended: Ended, result: str | None = None) -> None:
        """Write the end of a call, again and again while the store cannot take it; the sweep is behind it."""
        try:
            while True:
                try:
                    await self._endings.end(Ending(ended, result, known=run.known))
                except HoplineError as error:
                    if not error.retryable or self._dispatcher.draining:
                        raise
                else:
                    return
                await self._clock.sleep(_RETRY_SECONDS)
        finally:
            self.free(run)

    # -- what was left -------------------------------------------------------------------------------

    async def recover(self) -> None:
        """End what a process that died has left running: its workers know of no caller any more."""
        for row in await self._journal.read(partial(_RUNNING.all, values={"cause": TOOL})):
            await self._cancels.fail(row, _RESTARTED)


def _problem(result: str) -> str | None:
    """Say why no caller can be given this result."""
    if len(result.encode()) > MAX_ANSWER_BYTES:
        return f"is over {MAX_ANSWER_BYTES // 1024} KiB and was not delivered"
    return payload_problem(result)


def _words(text: str, otherwise: str) -> str:
    """Return words of a worker as a fault may hold them."""
    return text[:_MAX_FAILURE].replace("\0", "\N{REPLACEMENT CHARACTER}") or otherwise
