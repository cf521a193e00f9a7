"""An agent in a dozen lines."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterable
from pathlib import Path

from hopline_rpc.clock import Clock
from hopline_rpc.tls import TlsSettings

from hopline_client.dialing import Dial
from hopline_client.discovery import Source, TokenSource
from hopline_client.host import WORKER, Host
from hopline_client.tools import Function, ServerTool
from hopline_client.turn import Handler


class Worker:
    """Runs one agent: calls `handler` for each turn, up to `max_turns` at once.

    `where` is a data directory (a Path), a gateway's URL or a relay's address; without it, and without a
    token, the environment says (HOPLINE_URL, HOPLINE_DATA, HOPLINE_TOKEN_FILE)::

        from hopline_client import Turn, Worker

        async def handle(turn: Turn) -> str:
            answer = await turn.mesh.ask("reviewer", f"Is this sound? {turn.text}")
            return f"The reviewer says: {answer.text}"

        Worker("http://127.0.0.1:7400", handle, token_file="me.token").run_forever()

    It reconnects, renews leases and resumes turns by itself; only a credential that is refused ends it.
    The handler runs on the event loop: what blocks belongs into `asyncio.to_thread`. `tools` are functions
    that other agents may call, without a turn of this one.
    """

    def __init__(
        self,
        where: str | Path | Source | None,
        handler: Handler,
        *,
        token: str | TokenSource | None = None,
        token_file: str | Path | None = None,
        tools: Iterable[ServerTool | Function] = (),
        max_turns: int = 8,
        isolation: str = "none",
        worker: str = WORKER,
        tls: TlsSettings | None = None,
        insecure: bool = False,
        dial: Dial | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._host = Host(where, tls=tls, insecure=insecure, dial=dial, clock=clock)
        self._seat = self._host.add(
            handler,
            token=token,
            token_file=token_file,
            tools=tools,
            max_turns=max_turns,
            isolation=isolation,
            worker=worker,
        )

    async def run(self) -> None:
        """Serve until `stop`; raises HoplineError when the credential is refused."""
        await self._host.run()

    async def ready(self) -> None:
        """Wait until the agent is attached."""
        await self._seat.attached.wait()

    async def stop(self, grace: float = 10.0) -> None:
        """Take nothing new, give running turns `grace` seconds to end, then leave."""
        await self._host.stop(grace)

    def run_forever(self) -> None:
        """Run in an event loop of its own until SIGINT or SIGTERM, then stop gracefully."""
        asyncio.run(self._until_signal())

    async def _until_signal(self) -> None:
        loop = asyncio.get_running_loop()
        stopping: set[asyncio.Task[None]] = set()
        for number in (signal.SIGINT, signal.SIGTERM):
            # Not everywhere, and not outside the main thread.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, lambda: stopping.add(loop.create_task(self.stop())))
        await self.run()
        for task in stopping:
            await task
