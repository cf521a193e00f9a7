"""Starting `hopline attach` for an agent: its token goes over by descriptor, and is revoked at its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError

from hopline_cli.attach.credential import MintedToken
from hopline_cli.attach.handover import own_command
from hopline_cli.mesh import Mesh
from hopline_cli.supervise.file import Supervised

# Where the supervisor is killed nobody revokes: they expire soon.
TOKEN_SECONDS: Final = 600


class Starter:
    """Starts workers."""

    def __init__(self, find: Callable[[], Awaitable[Mesh]], data: Path | None, clock: Clock) -> None:
        self._find = find
        self._data = data
        self._clock = clock

    async def start(self, wanted: Supervised) -> AttachProcess:
        """Mint a token for the agent and start its worker with it."""
        pipe = Pipe()
        token = MintedToken(
            wanted.agent,
            self._find,
            self._clock,
            life=TOKEN_SECONDS,
            name="supervise",
            on_renewed=pipe.write,
        )
        try:
            await token.start()
            return await self._spawn(wanted, token, pipe)
        except BaseException:
            pipe.close()
            await token.close()
            raise

    async def _spawn(self, wanted: Supervised, token: MintedToken, pipe: Pipe) -> AttachProcess:
        reader, writer = os.pipe()
        try:
            os.write(writer, (await token.current()).encode() + b"\n")
            os.close(writer)
            words = [
                *own_command(),
                "attach",
                *self._options(wanted, reader, pipe.reader),
                "--",
                *wanted.command,
            ]
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(reader, pipe.reader),
                # What ends us from the terminal is passed on by us, once.
                start_new_session=True,
            )
        except OSError as error:
            raise HoplineError("unavailable", f"hopline attach cannot be started: {error}") from None
        finally:
            os.close(reader)
        pipe.started()
        return AttachProcess(process, token, pipe)

    def _options(self, wanted: Supervised, token_fd: int, supervisor_fd: int) -> list[str]:
        options = ["--agent", wanted.agent, "--max-turns", str(wanted.max_turns), "--prompt", wanted.prompt]
        options += ["--token-fd", str(token_fd), "--supervisor-fd", str(supervisor_fd)]
        if wanted.user:
            options += ["--user", wanted.user]
        if self._data is not None:
            options += ["--data", str(self._data)]
        return options


class AttachProcess:
    """A worker that runs."""

    def __init__(self, process: asyncio.subprocess.Process, token: MintedToken, pipe: Pipe) -> None:
        self.pid = process.pid
        self._process = process
        self._token = token
        self._pipe = pipe
        self.exited: asyncio.Future[int] = detach(process.wait(), name=f"end of process {process.pid}")

    def end(self, *, at_once: bool = False) -> None:
        """Ask it to end, or kill it; what it runs then ends by its watchdog."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL if at_once else signal.SIGTERM)

    async def close(self) -> None:
        """Revoke its token."""
        self._pipe.close()
        await self._token.close()


class Pipe:
    """Leads to the worker: fresh tokens, and by its end that we are gone, however we end."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._is_open = {self.reader, self._writer}

    def write(self, token: str) -> None:
        """Hand over a fresh token; a worker that is gone needs none."""
        if self._writer in self._is_open:
            with contextlib.suppress(BrokenPipeError, BlockingIOError):
                os.write(self._writer, token.encode() + b"\n")

    def started(self) -> None:
        """Close the worker's end here: it has its own by now."""
        self._close(self.reader)

    def close(self) -> None:
        """Close both ends."""
        self._close(self.reader)
        self._close(self._writer)

    def _close(self, descriptor: int) -> None:
        if descriptor in self._is_open:
            self._is_open.discard(descriptor)
            os.close(descriptor)
