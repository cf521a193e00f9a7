"""One stream to the relay, from its opening to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import grpc
import grpc.aio
from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline.runtime.v1.tunnel_pb2_grpc import TunnelServiceStub
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError, from_rpc_error
from hopline_rpc.frames import FrameQueue

from hopline_client.dialing import bearer
from hopline_client.seat import Outbox, Seat

_HEARTBEAT_SECONDS: Final = 10.0
_SILENT_BEATS: Final = 3


class Link:
    """A stream with agents on it. `run` returns when the stream ended as asked, and raises when it broke."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        credential: str,
        clock: Clock,
        on_detached: Callable[[Seat, str, str], None],
        on_attached: Callable[[Seat], None],
    ) -> None:
        self._stream: Any = TunnelServiceStub(channel).Attach(metadata=bearer(credential))
        self._clock = clock
        self._on_detached = on_detached
        self._on_attached = on_attached
        self._outbox: Outbox = FrameQueue(refuses=False)
        self._seats: dict[int, Seat] = {}
        self._interval = _HEARTBEAT_SECONDS
        self._heard = clock.monotonic()
        self._leaving = False
        self.attached = False
        self.ended = asyncio.Event()

    def attach(self, seat: Seat, credential: str) -> None:
        """Attach an agent with all it still holds."""
        self._seats[seat.number] = seat
        self._outbox.put(seat.request(credential))

    def leave(self) -> None:
        """Detach everyone, write what is left, and let the stream end."""
        self._leaving = True
        for number in self._seats:
            self._outbox.put(pb.WorkerItem(detach=pb.DetachAgent(attachment=number)))
        self._outbox.close()

    def abandon(self) -> None:
        """End the stream at once."""
        self._stream.cancel()

    async def run(self) -> None:
        """Carry items both ways until the stream ends."""
        reader = asyncio.create_task(self._read())
        tasks = {reader, asyncio.create_task(self._write()), asyncio.create_task(self._beat())}
        pending = tasks
        try:
            while reader in pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            self._stream.cancel()
            await asyncio.wait(tasks)
            self.ended.set()

    async def _read(self) -> None:
        try:
            while (frame := await self._stream.read()) is not grpc.aio.EOF:
                self._heard = self._clock.monotonic()
                for item in frame.items:
                    self._take(item)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        except asyncio.CancelledError:
            # Ours, or gRPC's way of saying that the stream was cancelled under us.
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
            if not self._leaving:
                raise HoplineError("unavailable", "the stream was cancelled") from None
        if not self._leaving:
            raise HoplineError("unavailable", "the relay has ended the stream")

    async def _write(self) -> None:
        try:
            while items := await self._outbox.take():
                await self._stream.write(pb.AttachRequest(items=items))
            await self._stream.done_writing()
        except (grpc.aio.AioRpcError, HoplineError, asyncio.InvalidStateError):
            return  # the stream is over; the reader learns why

    async def _beat(self) -> None:
        while True:
            await self._clock.sleep(self._interval)
            if self._clock.monotonic() - self._heard > _SILENT_BEATS * self._interval:
                raise HoplineError("unavailable", "the relay has fallen silent")
            self._outbox.put(pb.WorkerItem(heartbeat=pb.Heartbeat()))

    def _take(self, item: pb.RelayItem) -> None:
        kind = item.WhichOneof("item")
        if kind == "draining":
            # Elsewhere, or here once it is back: the turns stay ours meanwhile.
            self._leaving = True
            self._outbox.close()
            return
        content: Any = getattr(item, kind) if kind else None
        seat = self._seats.get(getattr(content, "attachment", 0))
        if seat is None:
            return
        if kind == "attached":
            self.attached = True
            self._interval = content.heartbeat_ms / 1000 or _HEARTBEAT_SECONDS
            seat.on_attached(content, self._outbox)
            self._on_attached(seat)
        elif kind == "detached":
            del self._seats[seat.number]
            self._on_detached(seat, content.code, content.message)
        elif kind == "start":
            seat.on_start(content)
        elif kind == "cancel":
            seat.on_cancel(content)
        elif kind == "ended_ack":
            seat.on_acknowledged(content)
        elif kind == "call_result":
            seat.on_result(content)
        elif kind == "tool_call":
            seat.tools.on_call(content)
        elif kind == "tool_call_canceled":
            seat.tools.on_canceled(content.call_id)
