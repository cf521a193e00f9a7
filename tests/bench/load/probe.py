"""One call at a time on a mesh: how long each of the calls takes that must not grow with the record."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from statistics import median
from typing import Any

import grpc.aio
from hopline.registry.v1.visibility_pb2 import ListPeersRequest
from hopline.registry.v1.visibility_pb2_grpc import VisibilityServiceStub
from hopline.relay.v1 import message_pb2 as pb
from hopline.relay.v1.message_pb2_grpc import MessageServiceStub

from tests.bench.load.serve import configuration, run, serve
from tests.bench.load.unary import TEXT, metadata

_PAGE = 50
Timed = Callable[[], Awaitable[object]]


class Probe:
    """An agent with a long history, `sender`, and one that it sends to, `reader`."""

    def __init__(
        self, config: Mapping[str, Any], relay: grpc.aio.Channel, registry: grpc.aio.Channel
    ) -> None:
        self._messages = MessageServiceStub(relay)
        self._agents = VisibilityServiceStub(registry)
        self._sender = metadata(config["sender"])
        self._reader = metadata(config["reader"])
        self._to = config["to"]

    async def send(self) -> object:
        return await self._messages.Send(pb.SendRequest(to=[self._to], text=TEXT), metadata=self._sender)

    async def take(self) -> pb.TakeInboxResponse:
        return await self._messages.TakeInbox(pb.TakeInboxRequest(), metadata=self._reader)

    async def threads(self) -> object:
        return await self._messages.ListThreads(pb.ListThreadsRequest(page_size=_PAGE), metadata=self._reader)

    async def peers(self) -> object:
        return await self._agents.ListPeers(ListPeersRequest(page_size=_PAGE), metadata=self._reader)

    async def play(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Repeat one call of each kind for a while; return the medians in seconds."""
        times: dict[str, list[float]] = {"send": [], "inbox": [], "threads": [], "agents": []}
        until = time.perf_counter() + request["seconds"]
        while time.perf_counter() < until:
            await _timed(times["send"], self.send())
            taken = await _timed(times["inbox"], self.take())
            await _timed(times["threads"], self.threads())
            await _timed(times["agents"], self.peers())
            for message in taken.messages:
                await self._messages.Done(pb.DoneRequest(message_id=message.id), metadata=self._reader)
        return {name: median(found) for name, found in times.items()}


async def _timed(times: list[float], call: Awaitable[Any]) -> Any:
    begun = time.perf_counter()
    answer = await call
    times.append(time.perf_counter() - begun)
    return answer


async def main() -> None:
    config = configuration()
    async with (
        grpc.aio.insecure_channel(config["relay"]) as relay,
        grpc.aio.insecure_channel(config["registry"]) as registry,
    ):
        await serve(Probe(config, relay, registry).play)


if __name__ == "__main__":
    run(main)
