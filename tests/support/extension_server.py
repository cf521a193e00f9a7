"""A plugin's endpoint for tests: a real gRPC server that notes what it is asked and answers as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from hopline.hooks.v1 import extension_pb2 as pb
from hopline.hooks.v1.extension_pb2_grpc import (
    ExtensionServiceServicer,
    add_ExtensionServiceServicer_to_server,
)

SECRET = "hps_of-this-installation"


class RefusalError(Exception):
    """The endpoint answers with this status."""

    def __init__(self, code: grpc.StatusCode, text: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass
class ExtensionServer(ExtensionServiceServicer):
    """What was asked, and what is answered."""

    secret: str = SECRET
    events: list[pb.HandleEventRequest] = field(default_factory=list)
    calls: list[pb.CallToolRequest] = field(default_factory=list)
    canceled: int = 0
    address: str = ""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    on_event: Callable[[pb.HandleEventRequest], Awaitable[None]] | None = None
    on_call: Callable[[pb.CallToolRequest], Awaitable[pb.CallToolResponse]] | None = None

    async def HandleEvent(self, request: pb.HandleEventRequest, context: Any) -> pb.HandleEventResponse:
        await self._check(context)
        self.events.append(request)
        self.news.set()
        try:
            if self.on_event is not None:
                await self.on_event(request)
        except RefusalError as refusal:
            await context.abort(refusal.code, refusal.text)
        return pb.HandleEventResponse()

    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        await self._check(context)
        self.calls.append(request)
        self.news.set()
        try:
            if self.on_call is not None:
                return await self.on_call(request)
        except RefusalError as refusal:
            await context.abort(refusal.code, refusal.text)
        except asyncio.CancelledError:
            self.canceled += 1
            raise
        return pb.CallToolResponse(result_json='"done"')

    async def _check(self, context: Any) -> None:
        metadata = dict(context.invocation_metadata())
        if metadata.get("authorization") != f"Bearer {self.secret}":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")

    async def told(self, count: int) -> list[pb.HandleEventRequest]:
        """Wait until so many events have come."""
        await self._until(self.events, count)
        return self.events

    async def called(self, count: int) -> list[pb.CallToolRequest]:
        """Wait until so many calls have come."""
        await self._until(self.calls, count)
        return self.calls

    async def _until(self, kept: list[Any], count: int) -> None:
        async with asyncio.timeout(20):
            while len(kept) < count:
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def extension_server(address: str = "127.0.0.1:0", **fields: Any) -> AsyncIterator[ExtensionServer]:
    """Serve an endpoint on this machine."""
    serving = ExtensionServer(**fields)
    server = grpc.aio.server()
    add_ExtensionServiceServicer_to_server(serving, server)
    port = server.add_insecure_port(address)
    serving.address = f"127.0.0.1:{port}"
    await server.start()
    try:
        yield serving
    finally:
        await server.stop(None)
