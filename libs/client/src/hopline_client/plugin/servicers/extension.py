"""Serves ExtensionService: gives events to their handlers, and calls of tools to their functions."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import grpc
import grpc.aio
from hopline.hooks.v1 import extension_pb2 as pb
from hopline.hooks.v1.extension_pb2_grpc import ExtensionServiceServicer
from hopline_rpc.clock import from_timestamp
from hopline_rpc.errors import HoplineError

from hopline_client.plugin.chat import Chat
from hopline_client.plugin.events import Event, EventKind, Handler
from hopline_client.plugin.host import current_chat
from hopline_client.tool_threads import ToolThreads
from hopline_client.tools import ServerTool, ToolFailed, ToolRefusal
from hopline_client.turn import readable

log = logging.getLogger("hopline.plugin")

_FAILURE: Final = 2000
# So many events are known to have been handled.
_KNOWN: Final = 1_000

Handed = Callable[[pb.HandedSession | None, str], Chat]
"""Returns the session that was handed over, and the turn it comes from."""


class Extension(ExtensionServiceServicer):
    """The service."""

    def __init__(
        self,
        tools: Mapping[str, ServerTool],
        handlers: Mapping[EventKind, Sequence[Handler]],
        handed: Handed,
    ) -> None:
        self._tools = tools
        self._handlers = handlers
        self._handed = handed
        self._threads = ToolThreads()
        self._done: OrderedDict[str, None] = OrderedDict()
        self._handling: dict[str, asyncio.Task[None]] = {}

    async def HandleEvent(self, request: pb.HandleEventRequest, context: Any) -> pb.HandleEventResponse:
        """Take an event; what a handler raises has it told again later."""
        if request.event_id in self._done:
            return pb.HandleEventResponse()
        # Told again while it is being handled, it is not handled beside itself.
        task = self._handling.get(request.event_id)
        if task is None:
            task = asyncio.create_task(self._handle(request), name=f"event {request.event_id}")
            self._handling[request.event_id] = task
            task.add_done_callback(lambda done: self._handled(request.event_id, done))
        try:
            await asyncio.shield(task)
        except Exception as error:
            await context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}")
        return pb.HandleEventResponse()

    def _handled(self, event_id: str, task: asyncio.Task[None]) -> None:
        del self._handling[event_id]
        if task.cancelled():
            return
        if task.exception() is None:
            self._done[event_id] = None
            if len(self._done) > _KNOWN:
                self._done.popitem(last=False)

    async def _handle(self, request: pb.HandleEventRequest) -> None:
        event = self._event(request)
        if event is None:
            return
        current_chat.set(event.chat)
        for handler in self._handlers.get(event.kind, ()):
            try:
                result = handler(event)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                log.exception("%s could not be handled; it is told again", event.kind)
                raise

    def _event(self, request: pb.HandleEventRequest) -> Event | None:
        """Read an event; None for one of a newer contract."""
        kind: Any = request.WhichOneof("event")
        if kind is None:
            return None
        told = getattr(request, kind)
        session = told.session if kind == "session_started" and told.HasField("session") else None
        return Event(
            id=request.event_id,
            kind=kind,
            at=from_timestamp(request.at),
            attempt=request.attempt,
            chat=self._handed(session, ""),
            version=getattr(told, "version", ""),
            previous_version=getattr(told, "previous_version", ""),
        )

    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        """Run a tool."""
        found = self._tools.get(request.name)
        if found is None:
            return pb.CallToolResponse(failure=f"this plugin has no tool {request.name!r}")
        chat = self._handed(request.session if request.HasField("session") else None, request.turn_id)
        current_chat.set(chat)
        try:
            return pb.CallToolResponse(
                result_json=await found.run(request.arguments_json, chat, self._threads)
            )
        except ToolRefusal as refusal:
            return pb.CallToolResponse(refusal=_words(str(refusal), "they do not fit"))
        except ToolFailed as failed:
            return pb.CallToolResponse(failure=_words(str(failed), "the tool failed"))
        except HoplineError as error:
            return pb.CallToolResponse(failure=_words(f"{error.reason}: {error.message}", "it failed"))
        except Exception as error:
            log.exception("the tool %s failed", request.name)
            return pb.CallToolResponse(failure=_words(f"{type(error).__name__}: {error}", "it failed"))


def _words(text: str, otherwise: str) -> str:
    return readable(text, _FAILURE) or otherwise
