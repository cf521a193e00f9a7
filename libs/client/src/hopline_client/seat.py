"""One agent of a worker: its turns and its calls, which outlive the stream they are on."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hopline.relay.v1.escalation_pb2 import AskOwnerRequest, CheckEscalationRequest
from hopline.relay.v1.message_pb2 import AskRequest, CheckRequest
from hopline.relay.v1.tool_pb2 import CallToolRequest
from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline_rpc.clock import Clock, Handle, wait_for
from hopline_rpc.errors import REASONS, HoplineError
from hopline_rpc.faults import point
from hopline_rpc.frames import FrameQueue

from hopline_client.actions import MAX_WAIT, Method
from hopline_client.discovery import TokenSource
from hopline_client.mesh import Mesh
from hopline_client.tool_seat import ToolSeat
from hopline_client.tools import ServerTool
from hopline_client.turn import Handler, Turn, TurnFailed, readable

log = logging.getLogger("hopline.client")

ANSWER_BYTES: Final = 256 * 1024
# The relay gives a turn away 30 s after its stream broke; what runs must have ended before.
LEASE_SECONDS: Final = 25.0
_PIECE: Final = 16 * 1024  # characters: at most 64 KiB of UTF-8
_PROGRESS: Final = 1024
# The reply mode in which others see what is written as it grows.
_STREAMED: Final = "all"
_FAILURE: Final = 2000
_MAX_CALLS: Final = 256
_CALL_SECONDS: Final = 30.0
# Safe to say again on another stream, because a request_id or their nature makes them so.
_REPEATABLE: Final = frozenset(
    {
        "send",
        "reply",
        "ask",
        "check",
        "done",
        "ask_owner",
        "check_escalation",
        "call_tool",
        "list_server_tools",
        "start_subagent",
        "start_self_subagent",
        "report_to_caller",
        "message_agent",
        "send_message_to_session",
        "close_subagent",
        "add_todos",
        "list_todos",
        "update_todo",
        "complete_todo",
        "snooze_todo",
        "set_timer",
        "list_timers",
    }
)

Outbox = FrameQueue[pb.WorkerItem]


class Unary(Protocol):
    """Makes clients for what does not travel over a tunnel."""

    def __call__(self, token: TokenSource, traceparent: str) -> Mesh:
        """Return a client that acts with this token."""
        ...


@dataclass(eq=False, slots=True)
class _Running:
    """A turn in our hands, until the relay has acknowledged its end."""

    start: pb.StartTurn
    task: asyncio.Task[None] | None = None
    begun: bool = False
    end: pb.TurnEnded | None = None
    stopped: bool = False
    forgotten: bool = False
    # What was written, where it is shown as it grows: a relay that was away is told again.
    written: str = ""


@dataclass(eq=False, slots=True)
class _Pending:
    """A call that has not been answered."""

    call: pb.Call
    result: asyncio.Future[pb.CallResult]


class Seat:
    """An agent of this worker. `number` names it on every stream it is attached to."""

    def __init__(
        self,
        token: TokenSource,
        handler: Handler,
        *,
        tools: Mapping[str, ServerTool],
        max_turns: int,
        isolation: str,
        worker: str,
        clock: Clock,
        unary: Unary,
    ) -> None:
        self.token = token
        self.max_turns = max_turns
        self.number = 0
        self.agent_id = ""
        self.agent_name = ""
        # The credential of the last attempt, to see whether there is another one to try.
        self.tried = ""
        self.closing = False
        self.attached = asyncio.Event()
        self._handler = handler
        self.tools = ToolSeat(tools, self, self._put)
        self._isolation = isolation
        self._worker = worker
        self._clock = clock
        self._make_unary = unary
        self._turns: dict[str, _Running] = {}
        self._calls: dict[int, _Pending] = {}
        self._call_ids = itertools.count(1)
        self._room = asyncio.Semaphore(_MAX_CALLS)
        self._outbox: Outbox | None = None
        self._lease: Handle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def turns(self) -> int:
        """How many turns are in our hands."""
        return len(self._turns)

    async def idle(self) -> None:
        """Wait until every turn has ended and the relay knows it, and every call of a tool has ended."""
        await self._idle.wait()
        await self.tools.idle()

    # -- on and off a stream -----------------------------------------------------------------------

    def request(self, credential: str) -> pb.WorkerItem:
        """Return what attaches this agent, with the turns it still holds."""
        self.tried = credential
        held = [
            pb.HeldTurn(turn_id=turn_id, attempt=running.start.attempt)
            for turn_id, running in self._turns.items()
        ]
        attach = pb.AttachAgent(
            attachment=self.number,
            credential=credential,
            max_turns=self.max_turns,
            held=held,
            isolation=self._isolation,
            worker=self._worker,
            server_tools=self.tools.definitions(),
        )
        return pb.WorkerItem(attach=attach)

    def on_attached(self, item: pb.Attached, outbox: Outbox) -> None:
        """Go on where the last stream broke."""
        self.agent_id, self.agent_name = item.agent_id, item.agent_name
        self._outbox = outbox
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None
        resumed = {(one.turn_id, one.attempt) for one in item.resumed}
        for turn_id, running in list(self._turns.items()):
            if (turn_id, running.start.attempt) not in resumed:
                self._forget(running)
                continue
            for piece in self._pieces(running.start, running.written, 0):
                outbox.put(pb.WorkerItem(output=piece))
            if running.end is not None:
                outbox.put(pb.WorkerItem(ended=running.end))
        for pending in list(self._calls.values()):
            if pending.call.WhichOneof("method") in _REPEATABLE:
                outbox.put(pb.WorkerItem(call=pending.call))
            elif not pending.result.done():
                pending.result.set_exception(HoplineError("unavailable", "the stream broke during the call"))
        self.attached.set()

    def on_lost(self) -> None:
        """Note that the stream is gone; what runs may go on for as long as its lease lasts."""
        self.attached.clear()
        self._outbox = None
        self.tools.drop()
        if self._lease is None and self._turns:
            self._lease = self._clock.call_later(LEASE_SECONDS, self._lease_over)

    def _lease_over(self) -> None:
        self._lease = None
        log.warning("%s: no stream for %.0f s, its turns are given up", self.agent_name, LEASE_SECONDS)
        self.drop_turns()

    def drop_turns(self) -> None:
        """Stop every turn; another attempt takes them, nothing is said of them any more."""
        for running in list(self._turns.values()):
            self._forget(running)

    def refuse(self, error: HoplineError) -> None:
        """End everything because the mesh does not take this agent any more."""
        self.on_lost()
        self.drop_turns()
        for pending in self._calls.values():
            if not pending.result.done():
                pending.result.set_exception(error)

    async def finish(self) -> None:
        """Wait until the handlers of stopped turns and tools have returned."""
        self.tools.drop()
        await self.tools.idle()
        tasks = [running.task for running in self._turns.values() if running.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    # -- turns -------------------------------------------------------------------------------------

    def on_start(self, start: pb.StartTurn) -> None:
        """Run a turn; one of an earlier attempt is stopped first."""
        if self.closing:
            return  # given back when we detach
        earlier = self._turns.get(start.turn_id)
        if earlier is not None and earlier.start.attempt >= start.attempt:
            return
        point("worker.started")
        running = _Running(start)
        self._turns[start.turn_id] = running
        self._idle.clear()
        waits_for = None
        if earlier is not None:
            self._stop(earlier)
            earlier.forgotten = True
            waits_for = earlier.task
        running.task = asyncio.create_task(self._run(running, waits_for), name=f"turn {start.turn_id}")

    def on_cancel(self, item: pb.CancelTurn) -> None:
        """Stop a turn as told; its end is reported like any other."""
        running = self._turns.get(item.turn_id)
        if running is not None and running.start.attempt == item.attempt:
            self._stop(running)

    def on_acknowledged(self, item: pb.TurnEndedAck) -> None:
        """Forget a turn whose end is recorded, or was not ours to record."""
        running = self._turns.get(item.turn_id)
        point("worker.ended")
        if running is not None and running.start.attempt == item.attempt and running.end is not None:
            self._remove(running)

    def _stop(self, running: _Running) -> None:
        """Cancel the handler, once: how it ends then is its own business."""
        # A task that is cancelled before its first step never runs at all, and says nothing of its end.
        if running.begun and not running.stopped and running.task is not None:
            running.task.cancel()
        running.stopped = True

    def _forget(self, running: _Running) -> None:
        running.forgotten = True
        if running.task is not None and not running.task.done():
            self._stop(running)
        else:
            self._remove(running)

    def _remove(self, running: _Running) -> None:
        if self._turns.get(running.start.turn_id) is running:
            del self._turns[running.start.turn_id]
        if not self._turns:
            self._idle.set()

    async def _run(self, running: _Running, waits_for: asyncio.Task[None] | None) -> None:
        start = running.start
        end = pb.TurnEnded(attachment=self.number, turn_id=start.turn_id, attempt=start.attempt)
        running.begun = True
        try:
            if waits_for is not None:
                await asyncio.wait({waits_for})
            if not running.stopped:
                accepted = pb.TurnAccepted(
                    attachment=self.number, turn_id=start.turn_id, attempt=start.attempt
                )
                self._put(pb.WorkerItem(accepted=accepted))
                await self._work(start, end)
        except asyncio.CancelledError:
            end.failure = "the handler was cancelled"
        if running.stopped:
            end.canceled = True
        if running.forgotten:
            self._remove(running)
        else:
            point("worker.ending")
            running.end = end
            self._put(pb.WorkerItem(ended=end))

    async def _work(self, start: pb.StartTurn, end: pb.TurnEnded) -> None:
        """Run the handler and write down how it ended."""
        point("worker.accepted")
        try:
            turn = Turn(start, self)
            try:
                end.answer = _checked(await self._answer(turn))
            finally:
                await turn.mesh.close()
        except TurnFailed as error:
            end.failure = readable(str(error), _FAILURE)
        except HoplineError as error:
            end.failure = readable(f"{error.reason}: {error.message}", _FAILURE)
        except SystemExit as error:
            # It was called to end a program of its own; the worker has other turns.
            end.failure = readable(f"its handler called sys.exit({error.code!r})", _FAILURE)
        except Exception as error:
            log.exception("the handler of %s failed in turn %s", self.agent_name, start.turn_id)
            end.failure = readable(f"{type(error).__name__}: {error}", _FAILURE)

    async def _answer(self, turn: Turn) -> object:
        result = self._handler(turn)
        if not isinstance(result, AsyncIterator):
            return await result
        pieces: list[str] = []
        try:
            async for piece in result:
                pieces.append(piece)
                await turn.write(piece)
        finally:
            if isinstance(result, AsyncGenerator):
                await result.aclose()
        return "".join(pieces)

    # -- what handlers do --------------------------------------------------------------------------

    async def call(self, turn_id: str, traceparent: str, method: Method, request: Any) -> Any:
        """Make a call over the tunnel; while the stream is broken it waits for the next one."""
        async with self._room:
            call = pb.Call(
                attachment=self.number,
                call_id=next(self._call_ids),
                turn_id=turn_id,
                traceparent=traceparent,
                **{method: request},
            )
            pending = _Pending(call, asyncio.get_running_loop().create_future())
            self._calls[call.call_id] = pending
            self._put(pb.WorkerItem(call=call))
            try:
                result = await wait_for(self._clock, pending.result, _patience(method, request))
            except TimeoutError:
                raise HoplineError("deadline_exceeded", "the mesh does not answer the call") from None
            finally:
                del self._calls[call.call_id]
                if not pending.result.done() or pending.result.cancelled():
                    canceled = pb.CallCanceled(attachment=self.number, call_id=call.call_id)
                    self._put(pb.WorkerItem(call_canceled=canceled))
        if result.HasField("error"):
            raise _error(result.error)
        return getattr(result, method)

    def on_result(self, item: pb.CallResult) -> None:
        """Hand a result to whoever waits for it."""
        pending = self._calls.get(item.call_id)
        if pending is not None and not pending.result.done():
            pending.result.set_result(item)

    async def write(self, start: pb.StartTurn, text: str) -> None:
        """Pass on a piece of output; what is said while there is no stream is said again on the next."""
        running = self._turns.get(start.turn_id)
        offset = None
        if running is not None and start.reply_mode == _STREAMED:
            offset = len(running.written.encode())
            if offset > ANSWER_BYTES:
                return  # the relay has been told that it is too long
            text = readable(text, len(text))
            running.written += text
        for output in self._pieces(start, text, offset):
            if self._outbox is not None:
                self._outbox.put(pb.WorkerItem(output=output))
                await self._outbox.drained()

    def _pieces(self, start: pb.StartTurn, text: str, offset: int | None) -> Iterator[pb.TurnOutput]:
        for begin in range(0, len(text), _PIECE):
            piece = readable(text[begin : begin + _PIECE], _PIECE)
            yield pb.TurnOutput(
                attachment=self.number,
                turn_id=start.turn_id,
                attempt=start.attempt,
                text=piece,
                offset=offset,
            )
            if offset is not None:
                offset += len(piece.encode())

    def progress(self, start: pb.StartTurn, text: str) -> None:
        """Give a sign of life."""
        progress = pb.TurnProgress(
            attachment=self.number,
            turn_id=start.turn_id,
            attempt=start.attempt,
            text=readable(text, _PROGRESS),
        )
        self._put(pb.WorkerItem(progress=progress))

    def unary(self, traceparent: str) -> Mesh:
        """Return a client for what does not travel over the tunnel."""
        return self._make_unary(self.token, traceparent)

    def _put(self, item: pb.WorkerItem) -> None:
        if self._outbox is not None:
            self._outbox.put(item)


def _patience(method: Method, request: Any) -> float:
    """Return how long an answer may take: the wait that was asked for, and time for the way."""
    if isinstance(request, CallToolRequest):
        asked = request.timeout_seconds or MAX_WAIT
    elif isinstance(request, (AskRequest, CheckRequest, AskOwnerRequest, CheckEscalationRequest)):
        asked = request.wait_seconds if request.HasField("wait_seconds") else MAX_WAIT
    else:
        asked = request.wait_seconds if method == "take_inbox" else 0
    return _CALL_SECONDS + min(asked, MAX_WAIT)


def _error(error: pb.CallError) -> HoplineError:
    details = {key: error.details[key] for key in error.details}
    reason = error.code if error.code in REASONS else "internal"
    return HoplineError(reason, error.message, details=details)


def _checked(answer: object) -> str:
    """Return an answer that the mesh can carry, or say what is wrong with it: nothing is cut or replaced."""
    if answer is None:
        return ""
    if not isinstance(answer, str):
        raise TypeError(f"the handler returned {type(answer).__name__}, not text")
    try:
        size = len(answer.encode())
    except UnicodeEncodeError:
        raise ValueError("the answer is not valid Unicode (it holds half of a surrogate pair)") from None
    if size > ANSWER_BYTES:
        raise ValueError(f"the answer has {size} bytes; at most {ANSWER_BYTES} are allowed")
    return answer
