"""A worker host on bare frames: agents attached to one stream, their calls, and answers at once.

Not the client library: what is measured is the mesh, and a host in another language has the same frames.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import grpc.aio
from hopline.relay.v1 import message_pb2 as relay_pb
from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline.runtime.v1.tunnel_pb2_grpc import TunnelServiceStub
from hopline_rpc.frames import FrameQueue

from tests.bench.load.serve import closed_loop, configuration, run, serve
from tests.bench.load.unary import TEXT, metadata

_MAX_TURNS: Final = 64


class Host:
    """One stream. Every turn it is given is accepted and answered in one go."""

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self._out: FrameQueue[pb.WorkerItem] = FrameQueue()
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[pb.CallResult]] = {}
        self._attaching: dict[int, asyncio.Future[pb.Attached]] = {}
        stub = TunnelServiceStub(channel)
        self._stream = stub.Attach(self._frames(), metadata=metadata(token))
        self._tasks = [asyncio.create_task(self._read())]

    async def attach(self, tokens: Sequence[str]) -> list[int]:
        """Attach agents and return their numbers on this stream."""
        numbers = [next(self._ids) for _ in tokens]
        for number, token in zip(numbers, tokens, strict=True):
            self._attaching[number] = asyncio.get_running_loop().create_future()
            attach = pb.AttachAgent(
                attachment=number, credential=token, max_turns=_MAX_TURNS, isolation="none", worker="bench"
            )
            self._out.put(pb.WorkerItem(attach=attach))
        attached = await asyncio.wait_for(asyncio.gather(*self._attaching.values()), 60)
        self._attaching.clear()
        self._tasks.append(asyncio.create_task(self._beat(attached[0].heartbeat_ms / 1000)))
        return numbers

    async def call(self, call: pb.Call) -> pb.CallResult:
        """Make a call and return its result; raises where the mesh refused it."""
        call.call_id = next(self._ids)
        result = self._waiting[call.call_id] = asyncio.get_running_loop().create_future()
        self._out.put(pb.WorkerItem(call=call))
        found: pb.CallResult = await result
        if found.HasField("error"):
            raise RuntimeError(f"{found.error.code}: {found.error.message}")
        return found

    async def close(self) -> None:
        """End the stream."""
        self._out.close()
        for task in self._tasks:
            task.cancel()
        self._stream.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _frames(self) -> AsyncIterator[pb.AttachRequest]:
        while items := await self._out.take():
            yield pb.AttachRequest(items=items)

    async def _beat(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            self._out.put(pb.WorkerItem(heartbeat=pb.Heartbeat()))

    async def _read(self) -> None:
        try:
            async for frame in self._stream:
                for item in frame.items:
                    self._take(item)
            raise RuntimeError("the mesh ended the stream")
        except Exception as error:
            for call in self._waiting.values():
                _fail(call, error)
            for attaching in self._attaching.values():
                _fail(attaching, error)

    def _take(self, item: pb.RelayItem) -> None:
        kind = item.WhichOneof("item")
        if kind == "call_result":
            self._waiting.pop(item.call_result.call_id).set_result(item.call_result)
        elif kind == "start":
            start = item.start
            accepted = pb.TurnAccepted(
                attachment=start.attachment, turn_id=start.turn_id, attempt=start.attempt
            )
            ended = pb.TurnEnded(
                attachment=start.attachment, turn_id=start.turn_id, attempt=start.attempt, answer=TEXT
            )
            self._out.put(pb.WorkerItem(accepted=accepted))
            self._out.put(pb.WorkerItem(ended=ended))
        elif kind == "attached":
            self._attaching[item.attached.attachment].set_result(item.attached)
        elif kind == "detached":
            raise RuntimeError(f"detached: {item.detached.code}: {item.detached.message}")


def _fail(waiting: asyncio.Future[Any], error: Exception) -> None:
    if not waiting.done():
        waiting.set_exception(error)


class Crowd:
    """The agents of one round's players, all on one stream or each on its own."""

    def __init__(self, channel: grpc.aio.Channel, config: Mapping[str, Any]) -> None:
        self._channel = channel
        self._config = config
        self._hosts: list[Host] = []
        self._callers: list[tuple[Host, int]] = []

    async def attach(self) -> None:
        """Attach the callers, and the agents that answer them where there are some."""
        self._callers = await self._attached(self._config["callers"])
        await self._attached(self._config.get("workers", []))

    async def _attached(self, tokens: Sequence[str]) -> list[tuple[Host, int]]:
        if not tokens:
            return []
        if not self._config["own_streams"]:
            if not self._hosts:
                self._hosts.append(Host(self._channel, tokens[0]))
            host = self._hosts[0]
            return [(host, number) for number in await host.attach(tokens)]
        hosts = [Host(self._channel, token) for token in tokens]
        self._hosts += hosts
        attached = await asyncio.gather(
            *(host.attach([token]) for host, token in zip(hosts, tokens, strict=True))
        )
        return [(host, numbers[0]) for host, numbers in zip(hosts, attached, strict=True)]

    async def send(self, number: int) -> None:
        caller = number % len(self._callers)
        host, attachment = self._callers[caller]
        send = relay_pb.SendRequest(to=[self._config["recipients"][caller]], text=TEXT)
        await host.call(pb.Call(attachment=attachment, send=send))

    async def ask(self, number: int) -> None:
        caller = number % len(self._callers)
        host, attachment = self._callers[caller]
        ask = relay_pb.AskRequest(agent=self._config["recipients"][caller], text=TEXT)
        result = await host.call(pb.Call(attachment=attachment, ask=ask))
        if result.ask.turn.reply != TEXT:
            raise RuntimeError(f"not the answer: {result.ask.turn}")

    async def play(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Play one round."""
        call = {"send": self.send, "ask": self.ask}[request["call"]]
        return await closed_loop(call, request["outstanding"], request["seconds"])

    async def close(self) -> None:
        """End every stream."""
        await asyncio.gather(*(host.close() for host in self._hosts))


async def main() -> None:
    config = configuration()
    async with grpc.aio.insecure_channel(config["target"]) as channel:
        crowd = Crowd(channel, config)
        await crowd.attach()
        await serve(crowd.play)
        await crowd.close()


if __name__ == "__main__":
    run(main)
