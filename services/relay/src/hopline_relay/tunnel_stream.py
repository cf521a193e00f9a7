"""One worker's stream: the agents attached on it, what they are sent and what they say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import grpc.aio
from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline_directory.directory import Directory
from hopline_rpc.auth import Authenticator
from hopline_rpc.calls import CallInfo
from hopline_rpc.clock import Clock, Handle
from hopline_rpc.errors import HoplineError, internal, invalid, unauthenticated
from hopline_rpc.frames import FRAME_ITEMS, FrameQueue
from hopline_rpc.ids import IdMaker
from hopline_rpc.interceptors import Refused, Unreadable
from hopline_rpc.principals import Principal, looks_like_token
from hopline_rpc.telemetry import RpcSpans
from hopline_rpc.validation import check

from hopline_relay.dispatch import NOT_ISOLATED, Attachment, Dispatcher, Holding
from hopline_relay.domain.writing import Writing
from hopline_relay.held import ToolRun
from hopline_relay.outputs import Outputs
from hopline_relay.servicers.messages import MessageHandlers
from hopline_relay.tool_runs import ToolRuns
from hopline_relay.tool_schemas import MAX_TOOLS, Tool, read
from hopline_relay.tunnel_calls import TunnelCalls
from hopline_relay.turns import Held, TurnEnd, Turns

log = logging.getLogger("hopline.relay.tunnel")

HEARTBEAT_SECONDS: Final = 10.0
# As long as a lease: a stream on which nothing moves for so long holds turns it cannot end.
SILENCE_SECONDS: Final = 30.0
MAX_ATTACHMENTS: Final = 10_000
# A token is exchanged again this long before its assertion ends.
_RENEW_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Tunnels:
    """What every stream works with."""

    dispatcher: Dispatcher
    turns: Turns
    tools: ToolRuns
    handlers: MessageHandlers
    outputs: Outputs
    authenticator: Authenticator
    directory: Directory
    ensure_fresh: Callable[[], Awaitable[None]]
    clock: Clock
    ids: IdMaker
    refused: Refused


class _Seat:
    """What the stream keeps of an attachment."""

    __slots__ = ("alarm", "attachment", "calls", "credential")

    def __init__(self, attachment: Attachment, credential: str, calls: TunnelCalls) -> None:
        self.attachment = attachment
        self.credential = credential
        self.calls = calls
        self.alarm: Handle | None = None


class Stream:
    """One stream: a `Sink` for the dispatcher, a reader of frames, and the watch over both directions."""

    def __init__(self, tunnels: Tunnels, call: CallInfo) -> None:
        self._tunnels = tunnels
        self._clock = tunnels.clock
        self._dispatcher = tunnels.dispatcher
        self._call = call
        self._outbox: FrameQueue[pb.RelayItem] = FrameQueue()
        self._in_flight: list[pb.RelayItem] = []
        self._spans = RpcSpans("relay")
        self._seats: dict[int, _Seat] = {}
        self._attaching: dict[int, pb.AttachAgent] = {}
        self._accepted: dict[Attachment, dict[str, Held]] = {}
        self._ends: set[asyncio.Task[None]] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._held_back = False
        self._closed = False
        self._heard = self._clock.monotonic()
        self._writing_since: float | None = None
        self._watch = self._clock.call_later(SILENCE_SECONDS, self._look)
        self._take: dict[str, Callable[[Any], None]] = {
            "attach": self._on_attach,
            "detach": self._on_detach,
            "accepted": self._on_accepted,
            "output": self._on_output,
            "ended": self._on_ended,
            "call": self._on_call,
            "call_canceled": self._on_call_canceled,
            "tool_result": self._on_tool_result,
            "heartbeat": self._on_heartbeat,
        }

    # -- towards the worker ------------------------------------------------------------------------

    async def frames(self) -> AsyncIterator[pb.AttachResponse]:
        """Yield what is to be written, until the stream ends."""
        while items := await self._outbox.take():
            self._in_flight = items
            self._writing_since = self._clock.monotonic()
            yield pb.AttachResponse(items=items)
            self._in_flight = []
            self._writing_since = None
            if self._held_back and not self._outbox.congested:
                self._held_back = False
                keys = {seat.attachment.key for seat in self._seats.values()}
                self._dispatcher.wake(keys)
                for key in keys:
                    self._tunnels.tools.queue.place_free(*key)

    def send(self, item: pb.RelayItem) -> None:
        """Queue an item; a worker that lets too much pile up loses the stream."""
        try:
            self._outbox.put(item)
        except HoplineError as error:
            self.fail(error)

    def ready(self) -> bool:
        """Whether the worker keeps up with what is sent to it."""
        self._held_back = self._held_back or self._outbox.congested
        return not self._outbox.congested

    def fail(self, error: HoplineError) -> None:
        """End the stream with an error."""
        if not self._closed:
            self._call.end(error)

    def _look(self) -> None:
        """End a stream on which nothing moves any more."""
        now = self._clock.monotonic()
        written = self._writing_since if self._writing_since is not None else now
        if now - written >= SILENCE_SECONDS:
            self.fail(HoplineError("overloaded", "the worker does not read what is sent to it"))
        elif now - self._heard >= SILENCE_SECONDS:
            self.fail(HoplineError("unavailable", f"no heartbeat for {SILENCE_SECONDS:.0f} s"))
        else:
            left = SILENCE_SECONDS - (now - min(self._heard, written))
            self._watch = self._clock.call_later(left, self._look)

    def close(self) -> None:
        """Let go of everything; what the worker holds waits for it to come back."""
        self._closed = True
        self._watch.cancel()
        unsent = self._outbox.abandon()
        never_sent: dict[int, list[Held]] = {}
        for item in unsent:
            if item.HasField("start"):
                held = Held(item.start.turn_id, item.start.attempt)
                never_sent.setdefault(item.start.attachment, []).append(held)
        for item in (*self._in_flight, *unsent):
            seat = self._seats.get(item.call_result.attachment)
            if item.HasField("call_result") and seat is not None:
                seat.calls.not_received(item.call_result.call_id)
        for number in list(self._seats):
            if number in never_sent:
                self._dispatcher.give_back(self._seats[number].attachment, never_sent[number])
            self._leave(number)

    # -- from the worker ---------------------------------------------------------------------------

    async def read(self, context: Any) -> None:
        """Take the worker's frames until it has no more to say."""
        try:
            while (frame := await context.read()) is not grpc.aio.EOF:
                if isinstance(frame, Unreadable):
                    raise frame.error()
                if self._seats:
                    self._heard = self._clock.monotonic()
                self._take_frame(frame)
                await self._outbox.drained()
            while self._ends:
                await asyncio.wait(set(self._ends))
            self._outbox.close()
        except HoplineError as error:
            self.fail(error)
        except grpc.aio.UsageError:
            return  # the worker has hung up meanwhile: there is nobody to tell
        except Exception as error:
            self.fail(internal(error, log))

    def _take_frame(self, frame: pb.AttachRequest) -> None:
        if len(frame.items) > FRAME_ITEMS:
            raise invalid("items", f"must hold at most {FRAME_ITEMS} items")
        for item in frame.items:
            kind = item.WhichOneof("item") or ""
            take = self._take.get(kind)
            if take is not None:  # progress changes nothing
                take(getattr(item, kind))
        for attachment, accepted in self._accepted.items():
            held = list(accepted.values())
            self._dispatcher.spawn(self._tunnels.turns.accepted(*attachment.key, held, attachment.epoch))
        self._accepted.clear()

    # -- attaching ---------------------------------------------------------------------------------

    def _on_attach(self, item: pb.AttachAgent) -> None:
        if item.attachment in self._seats or item.attachment in self._attaching:
            raise invalid("attachment", f"{item.attachment} is in use on this stream")
        self._attaching[item.attachment] = item
        self._dispatcher.spawn(self._attach(item))

    async def _attach(self, item: pb.AttachAgent) -> None:
        try:
            await self._admit(item)
        except HoplineError as error:
            self._detached(item.attachment, error.reason, error.message)
        except Exception as error:
            self._detached(item.attachment, "internal", internal(error, log).message)
        finally:
            if self._attaching.get(item.attachment) is item:
                del self._attaching[item.attachment]

    async def _admit(self, item: pb.AttachAgent) -> None:
        check(item)
        if len(self._seats) + len(self._attaching) > MAX_ATTACHMENTS:
            raise HoplineError("overloaded", f"a stream carries at most {MAX_ATTACHMENTS} agents")
        principal = await self._tunnels.authenticator.principal(item.credential)
        await self._tunnels.ensure_fresh()
        self._require_attachable(principal, item.isolation)
        turns, key = self._tunnels.turns, (principal.workspace_id, principal.id)
        tools = await read(item.server_tools) if item.server_tools else {}
        self._require_room_for(key, tools)
        told = {
            "isolation": item.isolation or "none",
            "max_turns": item.max_turns,
            "worker": item.worker,
            "token_id": principal.token_id,
        }
        epoch = await turns.attach(*key, told)
        held = [Held(one.turn_id, one.attempt) for one in item.held]
        with self._dispatcher.handing_over() as canceled:
            resumed = await turns.resume(*key, held, epoch) if held else []
            written = await self._written(key, resumed) if resumed else {}
            try:
                # All this took time: the agent may have been paused, the stream may be gone.
                self._require_attachable(principal, item.isolation)
                if self._closed or self._attaching.get(item.attachment) is not item:
                    raise HoplineError("unavailable", "the worker is gone")
            except HoplineError:
                if resumed:
                    self._dispatcher.spawn(turns.tunnel_lost(*key, resumed, epoch))
                raise
            going_on = [one for one in resumed if one not in canceled]
            self._seat(item, principal, epoch, going_on, tools)
            holdings = self._seats[item.attachment].attachment.held
            for turn_id, writing in written.items():
                if turn_id in holdings:
                    holdings[turn_id].writing = writing

    async def _written(self, key: tuple[str, str], resumed: list[Held]) -> dict[str, Writing]:
        """Return what an agent in reply mode `all` had written in turns that it goes on with."""
        if not self._streams(key):
            return {}
        found = await self._tunnels.outputs.load([(key[0], one.turn_id) for one in resumed])
        at = {one.turn_id: one.attempt for one in resumed}
        return {
            turn_id: writing for (_, turn_id), (attempt, writing) in found.items() if attempt == at[turn_id]
        }

    def _streams(self, key: tuple[str, str]) -> bool:
        """Tell whether what an agent writes is shown as it grows."""
        agent = self._tunnels.directory.agent(*key)
        return agent is not None and agent.reply_mode == "all"

    def _require_room_for(self, key: tuple[str, str], tools: dict[str, Tool]) -> None:
        others = self._tunnels.tools.offered(*key)
        if tools and len(others.keys() | tools.keys()) > MAX_TOOLS:
            raise HoplineError(
                "limit_reached",
                f"the workers of an agent offer at most {MAX_TOOLS} tools together; {len(others)} are there",
                details={"limit": MAX_TOOLS, "used": len(others)},
            )

    def _seat(
        self,
        item: pb.AttachAgent,
        principal: Principal,
        epoch: int,
        resumed: list[Held],
        tools: dict[str, Tool],
    ) -> None:
        attachment = Attachment(item.attachment, principal, epoch, item.max_turns, item.isolation, self)
        attachment.tools = tools
        attachment.held = {one.turn_id: Holding(one.attempt, accepted=True) for one in resumed}

        async def caller() -> Principal:
            return await self._tunnels.authenticator.principal(item.credential)

        def at_hand() -> Principal | None:
            return self._tunnels.authenticator.at_hand(item.credential)

        calls = TunnelCalls(
            attachment,
            caller,
            at_hand,
            self._tunnels.handlers,
            self._tunnels.ids,
            self._spans,
            self._tunnels.refused,
        )
        seat = _Seat(attachment, item.credential, calls)
        self._seats[item.attachment] = seat
        agent = self._tunnels.directory.agent(*attachment.key)
        self.send(
            pb.RelayItem(
                attached=pb.Attached(
                    attachment=item.attachment,
                    agent_id=principal.id,
                    agent_name=agent.name if agent is not None else principal.name,
                    epoch=epoch,
                    resumed=[pb.HeldTurn(turn_id=one.turn_id, attempt=one.attempt) for one in resumed],
                    heartbeat_ms=round(HEARTBEAT_SECONDS * 1000),
                )
            )
        )
        self._heard = self._clock.monotonic()
        self._dispatcher.add(attachment)
        if tools:
            self._tunnels.tools.queue.place_free(*attachment.key)
        self._watch_credential(seat)

    def _require_attachable(self, principal: Principal, isolation: str) -> None:
        if principal.kind != "agent":
            raise HoplineError("permission_denied", "only agents attach: use the token of an agent")
        directory = self._tunnels.directory
        agent = directory.agent(principal.workspace_id, principal.id)
        if agent is None or agent.deleted or directory.is_revoked(principal):
            raise unauthenticated()
        if agent.state == "paused":
            raise HoplineError("agent_paused", "the agent is paused; it can attach when it is resumed")
        if agent.state != "active":
            raise HoplineError("failed_precondition", f"the agent is {agent.state}, not active")
        if directory.policy(principal.workspace_id).require_isolation and isolation != "user":
            raise HoplineError("failed_precondition", NOT_ISOLATED)

    # -- ending an attachment ----------------------------------------------------------------------

    def end(self, attachment: Attachment, code: str, message: str) -> None:
        """End an attachment from this side; its worker stops unless it may come back with its turns."""
        seat = self._seats.get(attachment.number)
        if seat is None or seat.attachment is not attachment:
            return
        self._leave(attachment.number)
        self._detached(attachment.number, code, message)

    def _detached(self, number: int, code: str, message: str) -> None:
        self.send(pb.RelayItem(detached=pb.Detached(attachment=number, code=code, message=message)))

    def _leave(self, number: int) -> None:
        seat = self._seats.pop(number)
        if seat.alarm is not None:
            seat.alarm.cancel()
        seat.calls.end()
        self._dispatcher.remove(seat.attachment)
        self._tunnels.tools.lost(seat.attachment)

    def _on_detach(self, item: pb.DetachAgent) -> None:
        self._attaching.pop(item.attachment, None)
        seat = self._seats.get(item.attachment)
        if seat is not None:
            # What it was sent and has not taken goes to another worker at once.
            held = seat.attachment.held
            untaken = [one for one in seat.attachment.still_held() if not held[one.turn_id].accepted]
            if untaken:
                self._dispatcher.give_back(seat.attachment, untaken)
            self._leave(item.attachment)
        self._detached(item.attachment, "", "")

    def _watch_credential(self, seat: _Seat) -> None:
        """Look at the credential again when what is known of it ends."""
        left = seat.attachment.principal.expires_at - self._clock.now()
        if looks_like_token(seat.credential):
            left = max(left - _RENEW_SECONDS, _RETRY_SECONDS)
        self._recheck_in(seat, left)

    def _recheck_in(self, seat: _Seat, seconds: float) -> None:
        def begin() -> None:
            self._dispatcher.spawn(self._recheck(seat))

        seat.alarm = self._clock.call_later(seconds, begin)

    async def _recheck(self, seat: _Seat) -> None:
        attachment = seat.attachment
        try:
            principal = await self._tunnels.authenticator.principal(seat.credential)
        except HoplineError as error:
            expired = self._clock.now() - attachment.principal.expires_at
            if error.reason == "unauthenticated":
                self.end(attachment, error.reason, error.message)
            elif expired > SILENCE_SECONDS:
                self.end(attachment, "unavailable", "the agent's credential cannot be checked just now")
            elif self._seats.get(attachment.number) is seat:
                self._recheck_in(seat, _RETRY_SECONDS)
            return
        if self._seats.get(attachment.number) is seat:
            attachment.principal = principal
            self._watch_credential(seat)

    # -- turns -------------------------------------------------------------------------------------

    def _on_accepted(self, item: pb.TurnAccepted) -> None:
        seat = self._seats.get(item.attachment)
        holding = seat.attachment.held.get(item.turn_id) if seat is not None else None
        if seat is not None and holding is not None and holding.ours and holding.attempt == item.attempt:
            holding.accepted = True
            accepted = self._accepted.setdefault(seat.attachment, {})
            accepted[item.turn_id] = Held(item.turn_id, item.attempt)

    def _on_output(self, item: pb.TurnOutput) -> None:
        seat = self._seats.get(item.attachment)
        holding = seat.attachment.held.get(item.turn_id) if seat is not None else None
        if seat is None or holding is None or holding.ending or holding.attempt != item.attempt:
            return
        key = seat.attachment.key
        if not holding.ours or "\0" in item.text or not self._streams(key):
            return
        if holding.writing is None:
            holding.writing = Writing()
        if holding.writing.add(item.text, item.offset if item.HasField("offset") else None):
            self._tunnels.outputs.changed((key[0], item.turn_id), item.attempt, holding.writing)

    def _on_ended(self, item: pb.TurnEnded) -> None:
        seat = self._seats.get(item.attachment)
        if seat is None:
            return  # it crossed the end of the attachment; the worker says it again where it attaches next
        holding = seat.attachment.held.get(item.turn_id)
        if holding is None or holding.attempt != item.attempt:
            self._acknowledge(item, recorded=False)
            return
        if holding.ending:
            return  # said twice; the first is on its way
        holding.accepted = holding.ending = True
        # A turn that ends in the frame that accepts it has one thing to write, not two.
        self._accepted.get(seat.attachment, {}).pop(item.turn_id, None)
        self._tunnels.outputs.ended((seat.attachment.key[0], item.turn_id))
        task = self._dispatcher.spawn(self._end_turn(seat, item, holding))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _end_turn(self, seat: _Seat, item: pb.TurnEnded, holding: Holding) -> None:
        attachment = seat.attachment
        while writes := seat.calls.writes_of(item.turn_id):
            await asyncio.wait(set(writes))
        recorded = False
        try:
            recorded = await self._record(_turn_end(attachment, item, holding))
        except Exception:
            log.exception("the end of turn %s cannot be recorded", item.turn_id)
            held = Held(item.turn_id, item.attempt)
            self._dispatcher.spawn(self._tunnels.turns.tunnel_lost(*attachment.key, [held], attachment.epoch))
        self._dispatcher.ended(attachment, item.turn_id)
        self._acknowledge(item, recorded=recorded)

    async def _record(self, end: TurnEnd) -> bool:
        """Write the end of a turn, again and again while the store cannot take it."""
        while True:
            try:
                return await self._tunnels.turns.end(end)
            except HoplineError as error:
                if not error.retryable or self._closed:
                    raise  # the stream's end, or the lease's, gives the turn to another attempt
            await self._clock.sleep(_RETRY_SECONDS)

    def _acknowledge(self, item: pb.TurnEnded, *, recorded: bool) -> None:
        self.send(
            pb.RelayItem(
                ended_ack=pb.TurnEndedAck(
                    attachment=item.attachment, turn_id=item.turn_id, attempt=item.attempt, recorded=recorded
                )
            )
        )

    def _on_tool_result(self, item: pb.ToolResult) -> None:
        seat = self._seats.get(item.attachment)
        run = self._tunnels.tools.run_of(seat.attachment, item.call_id) if seat is not None else None
        if seat is not None and run is not None:
            run.stopped = True  # said twice it counts once
            task = self._dispatcher.spawn(self._end_tool(seat, run, item))
            self._ends.add(task)
            task.add_done_callback(self._ends.discard)

    async def _end_tool(self, seat: _Seat, run: ToolRun, item: pb.ToolResult) -> None:
        while writes := seat.calls.writes_of(run.turn_id):
            await asyncio.wait(set(writes))
        await self._tunnels.tools.ended(run, item)

    def _on_heartbeat(self, item: pb.Heartbeat) -> None:
        self.send(pb.RelayItem(heartbeat=item))
        if self._renewing is None:
            self._renewing = self._dispatcher.spawn(self._renew())

    async def _renew(self) -> None:
        try:
            held = [seat.attachment for seat in self._seats.values() if seat.attachment.held]
            await asyncio.gather(*(self._dispatcher.renew(attachment) for attachment in held))
        finally:
            self._renewing = None

    # -- calls -------------------------------------------------------------------------------------

    def _on_call(self, item: pb.Call) -> None:
        seat = self._seats.get(item.attachment)
        if seat is not None:
            seat.calls.start(item)
            return
        error = pb.CallError(code="unavailable", message="this agent is not attached", retryable=True)
        result = pb.CallResult(attachment=item.attachment, call_id=item.call_id, error=error)
        self.send(pb.RelayItem(call_result=result))

    def _on_call_canceled(self, item: pb.CallCanceled) -> None:
        seat = self._seats.get(item.attachment)
        if seat is not None:
            seat.calls.cancel(item.call_id)


def _turn_end(attachment: Attachment, item: pb.TurnEnded, holding: Holding) -> TurnEnd:
    """Read how a turn ended; an answer that no other text may hold fails it, nothing is replaced in it."""
    outcome, answer, failure = item.WhichOneof("outcome"), item.answer, item.failure
    if holding.writing is not None and outcome in {"answer", None}:
        answer = holding.writing.final(answer)
        if holding.writing.over:
            outcome, failure = "failure", "what it wrote is over 256 KiB and was not delivered"
    if "\0" in answer:
        outcome, failure = "failure", "the final answer contains the NUL character (U+0000)"
    return TurnEnd(
        *attachment.key,
        Held(item.turn_id, item.attempt),
        attachment.epoch,
        answer=answer if outcome in {"answer", None} else None,
        failure=failure.replace("\0", "\N{REPLACEMENT CHARACTER}") if outcome == "failure" else None,
        canceled=outcome == "canceled",
        known=holding.known,
        wrote=holding.writing is not None,
    )
