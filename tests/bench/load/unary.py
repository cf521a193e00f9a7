"""Unary calls: the echo floor, `Send` from many agents, and how long a send takes to reach a reader."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping
from typing import Any, Final

import grpc.aio
from hopline.relay.v1 import message_pb2 as pb
from hopline.relay.v1.message_pb2_grpc import MessageServiceStub

from tests.bench.load.serve import closed_loop, configuration, run, serve

TEXT: Final = "x" * 1024
# How long a reader gets to be really waiting before the next message is sent.
_SETTLE_SECONDS: Final = 0.005


def metadata(token: str) -> tuple[tuple[str, str], ...]:
    """Return the credential of a call."""
    return (("authorization", f"Bearer {token}"),)


class Unary:
    """One channel and the agents that call over it: agent i sends to recipient i."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._channel = grpc.aio.insecure_channel(config["target"])
        self._stub = MessageServiceStub(self._channel)
        self._echo = self._channel.unary_unary(
            "/bench.Echo/Echo", pb.SendRequest.SerializeToString, pb.SendRequest.FromString
        )
        self._senders = [metadata(token) for token in config.get("senders", [])]
        self._requests = [pb.SendRequest(to=[name], text=TEXT) for name in config.get("recipients", ["echo"])]
        self._reader = metadata(config.get("reader", ""))

    async def echo(self, number: int) -> None:
        await self._echo(self._requests[number % len(self._requests)])

    async def send(self, number: int) -> None:
        agent = number % len(self._senders)
        await self._stub.Send(self._requests[agent], metadata=self._senders[agent])

    async def wake(self, seconds: float) -> dict[str, Any]:
        """Measure from the start of a send to the return of the recipient's waiting call."""
        times: list[float] = []
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            waiting = asyncio.ensure_future(self._take())
            await asyncio.sleep(_SETTLE_SECONDS)
            begun = time.perf_counter()
            sending = asyncio.ensure_future(self.send(0))
            taken = await waiting
            times.append(time.perf_counter() - begun)
            await sending
            for message in taken.messages:
                await self._stub.Done(pb.DoneRequest(message_id=message.id), metadata=self._reader)
        return {"p50": statistics.median(times)}

    async def _take(self) -> pb.TakeInboxResponse:
        return await self._stub.TakeInbox(pb.TakeInboxRequest(wait_seconds=20), metadata=self._reader)

    async def play(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Play one round."""
        if request["call"] == "wake":
            return await self.wake(request["seconds"])
        call = {"echo": self.echo, "send": self.send}[request["call"]]
        return await closed_loop(call, request["outstanding"], request["seconds"])

    async def close(self) -> None:
        await self._channel.close()


async def main() -> None:
    load = Unary(configuration())
    await serve(load.play)
    await load.close()


if __name__ == "__main__":
    run(main)
