"""A worker on a real stream that takes turns and keeps them until it is told what to do with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline.runtime.v1.tunnel_pb2_grpc import TunnelServiceStub
from hopline_rpc.errors import HoplineError

from tests.simulation.quotas import require
from tests.simulation.world import Member

Start = pb.StartTurn
# What a stream that has ended says to whoever still writes or reads.
_ENDED = (HoplineError, grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError)


def look() -> pb.ToolDefinition:
    """Return the tool that every worker offers."""
    schema = '{"type": "object", "properties": {"at": {"type": "integer"}}}'
    return pb.ToolDefinition(name="look", description="Looks.", input_schema_json=schema)


@dataclass
class Worker:
    """One stream of one agent. `held` are the turns that it was given and has not ended."""

    agent: Member
    number: int
    # Told of each turn that arrives, and of each result of a call.
    on_start: Callable[[Worker, Start], None]
    on_result: Callable[[Worker, pb.CallResult], None]
    max_turns: int = 2
    held: dict[str, Start] = field(default_factory=dict)
    ended: list[Start] = field(default_factory=list)
    attached: bool = False
    calls: int = 0
    # Calls of its tool that have not been answered, by number, and the last ones that are over.
    tool_calls: dict[int, pb.ToolCall] = field(default_factory=dict)
    tool_calls_over: list[pb.ToolCall] = field(default_factory=list)
    # Told of each call of its tool that arrives.
    on_tool_call: Callable[[Worker, pb.ToolCall], None] = lambda worker, call: None
    _stream: Any = None
    _reader: asyncio.Task[None] | None = None

    @property
    def open(self) -> bool:
        """Whether the stream stands."""
        return self._reader is not None and not self._reader.done()

    def connect(self) -> None:
        """Open a stream and attach, with all that is still held."""
        self.attached = False
        channel: Any = self.agent._channel("relay")
        self._stream = TunnelServiceStub(channel).Attach()
        held = [pb.HeldTurn(turn_id=one.turn_id, attempt=one.attempt) for one in self.held.values()]
        attach = pb.AttachAgent(
            attachment=1,
            credential=self.agent.token,
            max_turns=self.max_turns,
            isolation="user",
            held=held,
            server_tools=[look()],
        )
        self._reader = asyncio.get_running_loop().create_task(self._read(self._stream, attach))

    def hang_up(self) -> None:
        """Break the stream, as a lost connection does; the calls of its tool end with it."""
        for number in list(self.tool_calls):
            self._over(number)
        if self._stream is not None:
            self._stream.cancel()

    def forget(self) -> None:
        """Lose everything, as a killed worker does."""
        self.hang_up()
        self.held.clear()

    def say(self, *items: pb.WorkerItem) -> None:
        """Send a frame, if the stream stands."""
        if self.open and self.attached:
            asyncio.get_running_loop().create_task(self._write(items))

    def beat(self) -> None:
        """Send a heartbeat."""
        self.say(pb.WorkerItem(heartbeat=pb.Heartbeat()))

    def end(self, start: Start, **outcome: Any) -> None:
        """Say how a turn ended."""
        if self.held.get(start.turn_id) is start:
            del self.held[start.turn_id]
            self.ended.append(start)
        ended = pb.TurnEnded(attachment=1, turn_id=start.turn_id, attempt=start.attempt, **outcome)
        self.say(pb.WorkerItem(ended=ended))

    def answer(self, call: pb.ToolCall, **outcome: Any) -> None:
        """Say how the call of a tool came out."""
        self._over(call.call_id)
        result = pb.ToolResult(attachment=1, call_id=call.call_id, **outcome)
        self.say(pb.WorkerItem(tool_result=result))

    def _over(self, number: int) -> None:
        call = self.tool_calls.pop(number, None)
        if call is not None:
            self.tool_calls_over = [*self.tool_calls_over[-4:], call]

    def accept(self, start: Start) -> None:
        """Say that a turn was taken."""
        accepted = pb.TurnAccepted(attachment=1, turn_id=start.turn_id, attempt=start.attempt)
        self.say(pb.WorkerItem(accepted=accepted))

    def call(self, turn_id: str, **method: Any) -> int:
        """Call from within a turn; returns the call's number."""
        self.calls += 1
        self.say(pb.WorkerItem(call=pb.Call(attachment=1, call_id=self.calls, turn_id=turn_id, **method)))
        return self.calls

    def cancel_call(self, number: int) -> None:
        """Wait for a call no longer."""
        self.say(pb.WorkerItem(call_canceled=pb.CallCanceled(attachment=1, call_id=number)))

    async def _write(self, items: tuple[pb.WorkerItem, ...]) -> None:
        try:
            await self._stream.write(pb.AttachRequest(items=items))
        except _ENDED:
            return  # the stream has ended meanwhile

    async def _read(self, stream: Any, attach: pb.AttachAgent) -> None:
        try:
            await stream.write(pb.AttachRequest(items=[pb.WorkerItem(attach=attach)]))
            while (frame := await stream.read()) is not grpc.aio.EOF:
                for item in frame.items:
                    self._take(item)
        except _ENDED:
            return
        finally:
            self.attached = False

    def _take(self, item: pb.RelayItem) -> None:
        kind = item.WhichOneof("item")
        if kind == "attached":
            self.attached = True
            resumed = {one.turn_id for one in item.attached.resumed}
            self.held = {key: start for key, start in self.held.items() if key in resumed}
        elif kind == "detached":
            self.attached = False
            self.hang_up()
        elif kind == "start":
            require(item.start.turn_id not in self.held, f"{item.start.turn_id} was given twice")
            self.held[item.start.turn_id] = item.start
            self.on_start(self, item.start)
        elif kind == "cancel":
            start = self.held.get(item.cancel.turn_id)
            if start is not None and start.attempt == item.cancel.attempt:
                self.end(start, canceled=True)
        elif kind == "tool_call":
            self.tool_calls[item.tool_call.call_id] = item.tool_call
            self.on_tool_call(self, item.tool_call)
        elif kind == "tool_call_canceled":
            self._over(item.tool_call_canceled.call_id)
        elif kind == "call_result":
            self.on_result(self, item.call_result)
