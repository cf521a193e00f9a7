"""Many agents on one stream: connects, attaches, stays connected, goes on after a break."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Final

from hopline_rpc.clock import Clock, SystemClock, wait_for
from hopline_rpc.errors import REASONS, HoplineError
from hopline_rpc.tls import TlsSettings

from hopline_client.dialing import Dial, dialer
from hopline_client.discovery import Source, TokenSource, source, token_source
from hopline_client.link import Link
from hopline_client.mesh import Mesh
from hopline_client.seat import Seat
from hopline_client.tools import Function, ServerTool, by_name
from hopline_client.turn import Handler

log = logging.getLogger("hopline.client")

WORKER: Final = "hopline-client/0.1"
_FIRST_PAUSE: Final = 0.1
_LAST_PAUSE: Final = 3.0
_LEAVE_SECONDS: Final = 5.0
# After these the agent attaches again with what it holds; after any other it is refused for good.
_PASSING: Final = frozenset({"unavailable", "overloaded", "internal", "deadline_exceeded"})


class Host:
    """Runs agents of one process over one stream.

    `add` takes agents, also while it runs; `run` returns after `stop`, and raises when the mesh takes
    none of them any more.
    """

    def __init__(
        self,
        where: str | Path | Source | None = None,
        *,
        tls: TlsSettings | None = None,
        insecure: bool = False,
        dial: Dial | None = None,
        clock: Clock | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._source = source(where)
        self._dial = dial or dialer(tls, insecure=insecure)
        self._clock = clock or SystemClock()
        self._jitter = jitter
        self._seats: list[Seat] = []
        self._numbers = 0
        self._link: Link | None = None
        self._stopping = False
        # Ends the pause between two connections.
        self._over = asyncio.Event()
        self._refusal: HoplineError | None = None
        self._complaint = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._connected_once = False

    def add(
        self,
        handler: Handler,
        *,
        token: str | TokenSource | None = None,
        token_file: str | Path | None = None,
        tools: Iterable[ServerTool | Function] = (),
        max_turns: int = 8,
        isolation: str = "none",
        worker: str = WORKER,
    ) -> Seat:
        """Take an agent, with the tools that others may call.

        `isolation` is `user` only where the agent's command cannot read the token.
        """
        seat = Seat(
            token_source(token, token_file),
            handler,
            tools=by_name(tools),
            max_turns=max_turns,
            isolation=isolation,
            worker=worker,
            clock=self._clock,
            unary=self._unary,
        )
        self._numbers += 1
        seat.number = self._numbers
        self._seats.append(seat)
        if self._link is not None:
            self._spawn(self._attach(self._link, seat, 0.0))
        return seat

    async def run(self) -> None:
        """Serve until `stop`; raises HoplineError when no agent's credential is taken any more."""
        pause = _FIRST_PAUSE
        try:
            while self._seats and not self._stopping:
                self._connected_once = False
                try:
                    await self._serve()
                except HoplineError as error:
                    self._complain(error)
                pause = _FIRST_PAUSE if self._connected_once else min(pause * 2, _LAST_PAUSE)
                if self._seats and not self._stopping:
                    await self._pause(pause * (0.5 + self._jitter() / 2))
        finally:
            await self._end()
        if self._refusal is not None and not self._seats:
            raise self._refusal

    async def stop(self, grace: float = 10.0) -> None:
        """Take nothing new, give running turns `grace` seconds to end, then leave.

        What has not ended by then is stopped here, and run again by another worker.
        """
        for seat in self._seats:
            seat.closing = True
        if self._link is not None:
            await self._within(grace, self._idle())
        for seat in self._seats:
            seat.drop_turns()
            await seat.finish()
        self._stopping = True
        self._over.set()
        if self._link is not None:
            self._link.leave()
            await self._within(_LEAVE_SECONDS, self._link.ended.wait())
            if self._link is not None:
                self._link.abandon()

    # -- one connection after the other ------------------------------------------------------------

    async def _serve(self) -> None:
        """Connect, attach everyone, and stay until the stream ends."""
        opener = self._seats[0]
        try:
            credential = await opener.token()
        except HoplineError as error:
            if error.reason in _PASSING:
                raise
            await self._refused(opener, error)
            return
        target = (await self._source.endpoints()).target("relay")
        try:
            channel = self._dial(target)
        except HoplineError as error:
            self._refusal = error  # nothing that time would mend
            self._seats.clear()
            return
        link = self._link = Link(channel, credential, self._clock, self._on_detached, self._on_attached)
        try:
            for seat in list(self._seats):
                self._spawn(self._attach(link, seat, 0.0))
            await link.run()
        except HoplineError as error:
            if not link.attached and error.reason in {"unauthenticated", "permission_denied"}:
                opener.tried = credential
                await self._refused(opener, error)
            else:
                raise
        finally:
            self._link = None
            for seat in self._seats:
                seat.on_lost()
            await channel.close()

    async def _attach(self, link: Link, seat: Seat, delay: float) -> None:
        if delay:
            await self._clock.sleep(delay)
        if link is not self._link or seat not in self._seats or self._stopping:
            return
        try:
            credential = await seat.token()
        except HoplineError as error:
            self._judge(seat, error)
            return
        if link is self._link:
            link.attach(seat, credential)

    def _on_attached(self, seat: Seat) -> None:
        self._connected_once = True
        self._complaint = ""
        log.info("attached as %s (%s)", seat.agent_name, seat.agent_id)

    def _on_detached(self, seat: Seat, code: str, message: str) -> None:
        seat.on_lost()
        if code:
            self._judge(seat, HoplineError(code if code in REASONS else "internal", message))

    def _judge(self, seat: Seat, error: HoplineError) -> None:
        """Decide whether an agent that was sent away comes back."""
        link = self._link
        if error.reason in _PASSING or error.reason == "agent_paused":
            self._complain(error)
            if error.reason == "agent_paused":
                seat.drop_turns()
            if link is not None:
                self._spawn(self._attach(link, seat, _LAST_PAUSE * (0.5 + self._jitter() / 2)))
        else:
            self._spawn(self._refused(seat, error))

    async def _refused(self, seat: Seat, error: HoplineError) -> None:
        """Try another token where there is one by now, else let the agent go."""
        try:
            fresh = await seat.token()
        except HoplineError:
            fresh = seat.tried
        if fresh != seat.tried and error.reason == "unauthenticated":
            if self._link is not None:
                self._link.attach(seat, fresh)
            return
        if seat not in self._seats:
            return
        self._seats.remove(seat)
        self._refusal = error
        log.error("%s is refused: %s", seat.agent_name or "an agent", error.message)
        seat.refuse(error)
        if not self._seats:
            self._over.set()
            if self._link is not None:
                self._link.leave()

    def _complain(self, error: HoplineError) -> None:
        """Say what is wrong, once for as long as it stays the same."""
        if error.message != self._complaint:
            self._complaint = error.message
            log.warning("not connected: %s", error.message)

    # -- helpers -----------------------------------------------------------------------------------

    def _unary(self, token: TokenSource, traceparent: str) -> Mesh:
        return Mesh(self._source, token=token, dial=self._dial, traceparent=traceparent, clock=self._clock)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _idle(self) -> None:
        for seat in self._seats:
            await seat.idle()

    async def _pause(self, seconds: float) -> None:
        await self._within(seconds, self._over.wait())

    async def _within(self, seconds: float, work: Any) -> None:
        try:
            await wait_for(self._clock, work, seconds)
        except TimeoutError:
            return

    async def _end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        for seat in self._seats:
            seat.drop_turns()
            await seat.finish()
