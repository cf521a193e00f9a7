"""Keeps a `Directory` fresh over the registry's stream of changes."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import grpc.aio
from hopline.registry.v1.visibility_pb2 import Change, WatchChangesRequest, WatchChangesResponse
from hopline.registry.v1.visibility_pb2_grpc import VisibilityServiceStub
from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock, wait_for
from hopline_rpc.errors import HoplineError

from hopline_directory.directory import Directory, Gap

log = logging.getLogger("hopline.directory")

Listener = Callable[[list[Change]], Awaitable[None] | None]

# After so much silence the view is not to be trusted: the registry is asked.
STALE_SECONDS: Final = 0.5
# How long a call waits for the registry's answer then.
ASK_SECONDS: Final = 1.0
# A stream that says nothing for so long is dead, whatever the transport believes.
_SILENT_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 0.25


class Follower:
    """Follows the registry over `channel` (whose credential is a service's) and feeds `directory`.

    Embedded, the registry knows that a change is consumed when the follower comes back for the next:
    that is after every listener has run.
    """

    def __init__(self, channel: grpc.aio.Channel, directory: Directory, clock: Clock) -> None:
        self.directory = directory
        self._stub = VisibilityServiceStub(channel)
        self._clock = clock
        self._listeners: list[Listener] = []
        self._heard: float | None = None
        self._ready = asyncio.Event()
        self._asking: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._taking = False
        self._trouble = ""

    def add_listener(self, listener: Listener) -> None:
        """Have `listener` called with the changes that are new, in order, after the view holds them."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Begin to follow; `ready` waits for the first view."""
        self._task = detach(self._run(), name="directory follower")

    async def close(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def ready(self) -> None:
        """Wait until the view is complete for the first time."""
        await self._ready.wait()

    @property
    def fresh(self) -> bool:
        """Whether the registry was heard of within the last 500 ms, and the view holds what it said."""
        return self._heard is not None and self._clock.monotonic() - self._heard <= STALE_SECONDS

    async def ensure_fresh(self) -> None:
        """Return at once when the view is fresh, else ask the registry; no answer is `unavailable`."""
        if self.fresh:
            return
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_future()
            if self._attempt is not None and not self._taking:
                self._attempt.cancel()  # and a new stream begins at once, with the registry's head
        asking = self._asking
        try:
            await wait_for(self._clock, asyncio.shield(asking), ASK_SECONDS)
        except TimeoutError:
            if self._asking is asking:
                self._asking = None
            if not self.fresh:
                raise HoplineError(
                    "unavailable", "the registry cannot be reached just now; try again"
                ) from None

    async def _run(self) -> None:
        try:
            while True:
                self._attempt = asyncio.create_task(self._try())
                await asyncio.wait({self._attempt})
        finally:
            if self._attempt is not None:
                self._attempt.cancel()
                await asyncio.wait({self._attempt})

    async def _try(self) -> None:
        """Follow one stream to its end, then wait a little."""
        try:
            await self._follow()
        except HoplineError as error:
            ours = error.reason == "unauthenticated"
            self._note("it does not accept this service's own credential" if ours else error.message)
        except TimeoutError:
            self._note("it says nothing")
        except Gap as error:
            log.debug("the stream of changes is given up: %r", error)
        except Exception:
            log.exception("the stream of changes cannot be followed")
        await self._clock.sleep(_RETRY_SECONDS)

    def _note(self, trouble: str) -> None:
        """Say why there is no view yet, once for each reason; an interruption later mends itself."""
        waiting = not self._ready.is_set() and trouble != self._trouble
        self._trouble = trouble
        log.log(
            logging.WARNING if waiting else logging.DEBUG,
            "the registry cannot be followed, trying again: %s",
            trouble,
        )

    async def _follow(self) -> None:
        self.directory.restart()
        call = self._stub.WatchChanges(WatchChangesRequest(from_seq=self.directory.seq))
        try:
            while True:
                response = await wait_for(self._clock, call.read(), _SILENT_SECONDS)
                if not isinstance(response, WatchChangesResponse):
                    return  # the end of the stream
                heard = self._clock.monotonic()
                self._taking = True
                try:
                    await self._take(response, heard)
                finally:
                    self._taking = False
        finally:
            call.cancel()

    async def _take(self, response: WatchChangesResponse, heard: float) -> None:
        news = self.directory.apply(response)
        complete = self.directory.seq >= response.head_seq
        if complete and (not response.snapshot or response.snapshot_end):
            self._heard = heard
        if news:
            await self._tell(news)
        if self._heard == heard:
            self._ready.set()
            if self._asking is not None:
                self._asking.set_result(None)
                self._asking = None

    async def _tell(self, news: list[Change]) -> None:
        for listener in self._listeners:
            try:
                result = listener(news)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                log.exception("a listener failed on changes %d to %d", news[0].seq, news[-1].seq)
