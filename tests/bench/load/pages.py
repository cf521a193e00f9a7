"""A person who opens pages of the console one after the other, and the calls that are behind them."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import aiohttp
import grpc.aio
from hopline.relay.v1 import audit_pb2, exchange_pb2, floor_pb2, message_pb2
from hopline.relay.v1.audit_pb2_grpc import AuditServiceStub
from hopline.relay.v1.exchange_pb2_grpc import ExchangeServiceStub
from hopline.relay.v1.floor_pb2_grpc import FloorServiceStub
from hopline.relay.v1.message_pb2_grpc import MessageServiceStub

from tests.bench.load.serve import configuration, run, serve
from tests.bench.load.unary import metadata

_PAGE: Final = 50
_DEEP: Final = 60
_LONG_THREAD: Final = 1_000
_OUTSTANDING: Final = 64
Metadata = tuple[tuple[str, str], ...]
Open = Callable[[], Awaitable[object]]


class Reader:
    """The admin of the workspace `default`. Without a relay: somebody who opens one page of a bare server."""

    def __init__(self, config: Mapping[str, Any], http: aiohttp.ClientSession) -> None:
        self._url = config["url"]
        self._http = http
        self._tokens: list[str] = config.get("agents", [])
        self._admin: Metadata = (*metadata(config.get("admin", "")), ("hopline-workspace", "default"))
        self._secret = config.get("admin", "")
        if "relay" in config:
            channel = grpc.aio.insecure_channel(config["relay"])
            self._messages = MessageServiceStub(channel)
            self._exchanges = ExchangeServiceStub(channel)
            self._floor = FloorServiceStub(channel)
            self._events = AuditServiceStub(channel)

    async def fill(self, count: int) -> Mapping[str, Any]:
        """Have every agent write to all others in turn, and two of them a long thread; sign in."""
        first = message_pb2.SendRequest(to=["agent-1"], text="number 0 of a long thread")
        begun = await self._messages.Send(first, metadata=metadata(self._tokens[0]))
        numbers = iter(range(1, count))

        async def write() -> None:
            for number in numbers:
                sender = number % len(self._tokens)
                to = (sender + 1 + number // len(self._tokens) % (len(self._tokens) - 1)) % len(self._tokens)
                rare = " quince" if number % 5_000 == 7 else ""
                text = f"word{number % 97} number {number} pears apples{rare}"
                request = message_pb2.SendRequest(text=text)
                if number < _LONG_THREAD:
                    sender, to, request.thread_id = 0, 1, begun.thread_id
                request.to.append(f"agent-{to}")
                await self._messages.Send(request, metadata=metadata(self._tokens[sender]))

        async with asyncio.TaskGroup() as group:
            for _ in range(_OUTSTANDING):
                group.create_task(write())
        form = {"token": self._secret, "workspace": "default", "next": "/floor"}
        async with self._http.post(
            f"{self._url}/signin", data=form, headers={"Origin": self._url}, allow_redirects=False
        ) as answer:
            assert answer.status == 303, await answer.text()
        return {"thread": begun.thread_id, "token": await self._deep()}

    async def _deep(self) -> str:
        """Turn the window's pages, and return the token of one far back."""
        token = ""
        for _ in range(_DEEP):
            token = (await self._window(page_token=token)).next_page_token
            assert token
        return token

    async def _window(self, **more: Any) -> exchange_pb2.ListExchangesResponse:
        request = exchange_pb2.ListExchangesRequest(agent="agent-0", page_size=_PAGE, **more)
        found: exchange_pb2.ListExchangesResponse = await self._exchanges.ListExchanges(
            request, metadata=self._admin
        )
        return found

    def calls(self, thread_id: str, token: str, turn_id: str) -> dict[str, Open]:
        """Return the call behind each page."""
        threads = message_pb2.ListThreadsRequest(page_size=_PAGE)
        thread = message_pb2.ListMessagesRequest(thread_id=thread_id, page_size=_PAGE, from_end=True)
        events = audit_pb2.ListEventsRequest(descending=True, page_size=_PAGE)
        who = self._admin
        return {
            "floor": lambda: self._floor.GetFloor(floor_pb2.GetFloorRequest(page_size=_PAGE), metadata=who),
            "window": self._window,
            "deep": lambda: self._window(page_token=token),
            "search": lambda: self._window(query="pears"),
            "rare": lambda: self._window(query="quince"),
            "activity": lambda: self._events.ListEvents(events, metadata=who),
            "threads": lambda: self._messages.ListThreads(threads, metadata=who),
            "thread": lambda: self._messages.ListMessages(thread, metadata=who),
            "turn": lambda: self._floor.GetTree(floor_pb2.GetTreeRequest(turn_id=turn_id), metadata=who),
        }

    async def turn_id(self) -> str:
        """Return a turn that the newest exchange leads to."""
        return str((await self._window()).exchanges[0].turn_id)

    async def open(self, path: str) -> None:
        """Open a page, all of it."""
        async with self._http.get(self._url + path, allow_redirects=False) as answer:
            await answer.read()
            assert answer.status == 200, (path, answer.status)

    async def play(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Open each page and make each call for a while; return medians and 95th percentiles in seconds."""
        if "fill" in request:
            filled = await self.fill(request["fill"])
            return {**filled, "turn": await self.turn_id()}
        opened: dict[str, Open] = {}
        for name, path in request["paths"].items():
            opened[f"page_{name}"] = lambda path=path: self.open(path)  # type: ignore[misc]
        if "thread" in request:
            calls = self.calls(request["thread"], request["token"], request["turn"])
            opened |= {f"call_{name}": call for name, call in calls.items()}
        times: dict[str, list[float]] = {name: [] for name in opened}
        until = time.perf_counter() + request["seconds"]
        while time.perf_counter() < until:
            for name, look in opened.items():
                begun = time.perf_counter()
                await look()
                times[name].append(time.perf_counter() - begun)
        return {
            key: figure
            for name, found in times.items()
            for key, figure in ((name, statistics.median(found)), (f"{name}_p95", _p95(found)))
        }


def _p95(times: list[float]) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.95))]


async def main() -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        await serve(Reader(configuration(), http).play)


if __name__ == "__main__":
    run(main)
