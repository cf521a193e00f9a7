"""TunnelService: the streams over which workers run turns.

One stream carries many agents, each attached with a credential of its own, checked by itself and for as
long as it is attached. Flow is bounded both ways: turns by what each worker said it takes, calls by a
number an attachment, what waits to be written by the frame queue. While that is congested nothing more is
read, so a worker that floods is slowed; one that does not read at all loses its stream (`overloaded`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline.runtime.v1.tunnel_pb2_grpc import TunnelServiceServicer
from hopline_rpc.calls import current_call
from hopline_rpc.clock import wait_for
from hopline_rpc.errors import HoplineError

from hopline_relay.tunnel_stream import Stream, Tunnels


class TunnelServicer(TunnelServiceServicer):
    """Serves the streams and knows them all, for the drain."""

    def __init__(self, tunnels: Tunnels) -> None:
        self._tunnels = tunnels
        self._streams: dict[Stream, None] = {}
        self._draining = False
        self._emptied = asyncio.Event()

    async def Attach(  # noqa: N802 - the contract's name
        self, request_iterator: Any, context: Any
    ) -> AsyncIterator[pb.AttachResponse]:
        """Serve one stream; the rules stand in the contract."""
        call = current_call()
        if call is None:
            raise RuntimeError("served without the interceptor")
        if self._draining:
            raise HoplineError("unavailable", "the relay is shutting down; attach elsewhere")
        # Each agent of the stream is watched by itself: the stream outlives the one that opened it.
        call.principal = None
        # At once: a client may wait for the server's first sign before it writes.
        await context.send_initial_metadata(())
        stream = Stream(self._tunnels, call)
        self._streams[stream] = None
        # Straight from the context: an item that breaks a limit is answered by itself, while the
        # checked iterator would end the stream of every agent on it.
        reader = asyncio.create_task(stream.read(context))
        try:
            async for frame in stream.frames():
                yield frame
        finally:
            reader.cancel()
            stream.close()
            self._streams.pop(stream, None)
            self._emptied.set()

    async def drain(self, seconds: float) -> None:
        """Hand out nothing more, ask every worker to go elsewhere, and wait up to `seconds` for them."""
        self._draining = True
        self._tunnels.dispatcher.drain()
        for stream in self._streams:
            stream.send(pb.RelayItem(draining=pb.Draining()))
        with contextlib.suppress(TimeoutError):
            await wait_for(self._tunnels.clock, self._empty(), seconds)
        for stream in list(self._streams):
            stream.fail(HoplineError("unavailable", "the relay is shutting down; attach elsewhere"))
        await self._empty()

    async def _empty(self) -> None:
        while self._streams:
            self._emptied.clear()
            await self._emptied.wait()
