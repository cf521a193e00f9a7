"""The tunnel daemon: holds the agent's credential, and runs the command for each of its turns."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Final, Literal

from hopline.registry.v1 import visibility_pb2
from hopline.registry.v1.visibility_pb2_grpc import VisibilityServiceStub
from hopline_client import Turn, TurnFailed, Worker, discovery
from hopline_rpc import logs
from hopline_rpc.clock import SystemClock
from hopline_rpc.errors import HoplineError

from hopline_cli.attach import handover, process
from hopline_cli.attach.bridge import Bridge, Upstream
from hopline_cli.attach.credential import MintedToken
from hopline_cli.attach.given import GivenToken, read_once
from hopline_cli.attach.isolation import Account, account, refuse_readers
from hopline_cli.attach.streaming import passing_on
from hopline_cli.mesh import Mesh, find, https_context, source_of, tls_settings
from hopline_cli.output import Output
from hopline_cli.running.signals import stop_on_signals

log = logging.getLogger("hopline.attach")

WORKER: Final = "hopline-attach/0.1"
_GRACE_SECONDS: Final = 10.0
# What the system allows for the path of a socket.
_SOCKET_PATH: Final = 104


@dataclass(frozen=True)
class AttachOptions:
    """What the command line says."""

    agent: str
    command: tuple[str, ...]
    max_turns: int
    prompt: Literal["fenced", "raw"]
    token_file: Path | None
    # Descriptors that we inherit: the token, and the supervisor's.
    token_fd: int | None
    supervisor_fd: int | None
    data: Path | None
    workspace: str | None
    socket_dir: Path | None
    user: str


class ProcessWatchdog:
    """The process that ends our commands when we are killed; it is told through a pipe."""

    def __init__(self, folder: Path) -> None:
        words = [sys.executable, "-m", "hopline_cli.attach.watchdog", str(folder)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True, text=True)
        if self._process.stdin is None:
            raise RuntimeError("a pipe was asked for")
        self._pipe: IO[str] = self._process.stdin

    def started(self, group: int) -> None:
        """Note a group that runs."""
        self._say(f"+{group}")

    def ended(self, group: int) -> None:
        """Note that it runs no more."""
        self._say(f"-{group}")

    def _say(self, line: str) -> None:
        try:
            self._pipe.write(line + "\n")
            self._pipe.flush()
        except OSError:
            # Without it a command could outlive us: better to end now, while we can still end them all.
            log.error("the watchdog has ended; ending too")  # noqa: TRY400 - the traceback says nothing
            asyncio.get_running_loop().call_soon(lambda: os.kill(os.getpid(), 15))

    def close(self) -> None:
        """Let it clean up and wait for it."""
        with suppress(OSError):
            self._pipe.close()
        self._process.wait()


class Daemon:
    """Runs turns of one agent."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        upstream: Upstream,
        watchdog: process.Watchdog,
        *,
        raw: bool = False,
        user: Account | None = None,
    ) -> None:
        self._command = command
        self._folder = folder
        self._upstream = upstream
        self._watchdog = watchdog
        self._raw = raw
        self._user = user
        self._sessions: dict[str, asyncio.Lock] = {}

    async def handle(self, turn: Turn) -> str:
        """Run the command for one turn of its session; its socket works for exactly that long."""
        # A turn that was taken from us may still be ending when the session's next one comes.
        lock = self._sessions.setdefault(turn.session_id, asyncio.Lock())
        try:
            async with lock:
                return await self._serve(turn)
        finally:
            if not lock.locked():
                self._sessions.pop(turn.session_id, None)

    async def _serve(self, turn: Turn) -> str:
        # A session's path is always the same, and short: the system allows sockets no long ones.
        folder = self._folder / hashlib.sha256(turn.session_id.encode()).hexdigest()[:12]
        given = handover.hand_over(turn.start, folder, os.environ, self._user)
        bridge = Bridge(self._upstream, given.socket, turn.session_id, turn.traceparent)
        began = time.monotonic()
        outcome = "was stopped"
        try:
            await bridge.start()
            if self._user is not None:
                handover.give_to(self._user, folder)
            answer = await self._run(turn, given)
            outcome = "answered"
        except TurnFailed:
            outcome = "failed"
            raise
        finally:
            await bridge.close()
            shutil.rmtree(folder, ignore_errors=True)
            log.info(
                "turn %s from %s %s after %.1f s", turn.id, turn.from_, outcome, time.monotonic() - began
            )
        return answer

    async def _run(self, turn: Turn, given: handover.Handover) -> str:
        prompt = handover.body(turn.start) if self._raw else turn.prompt
        words = handover.fill_in(self._command, prompt, given.environment["HOPLINE_MCP_CONFIG"])
        # A harness that has the prompt among its words reads standard input as well: it would have it twice.
        told = "" if handover.takes_prompt(self._command) else prompt
        if turn.reply_mode != "all":
            return await process.run(words, told, given.environment, self._watchdog, self._user)
        async with passing_on(turn.write) as printed:
            return await process.run(words, told, given.environment, self._watchdog, self._user, printed)


async def run_attach(options: AttachOptions, out: Output) -> None:
    """Serve the agent's turns until told to stop; raises `HoplineError` where that is not possible."""
    logs.configure()
    given = _given(options)
    source = source_of(options.data)
    user = _account(options, source)  # tried in a child process: before there are threads
    process.become_reaper()
    stop = stop_on_signals()
    async with AsyncExitStack() as stack:
        if given is not None and options.supervisor_fd is not None:
            stack.callback(given.follow(options.supervisor_fd, partial(_left_alone, stop)))
        token = given.current if given is not None else await _token(options, source, stack)
        name = await _checked(options.agent, source, token)
        folder = private_folder(options.socket_dir, shared=user is not None)
        watchdog = ProcessWatchdog(folder)
        stack.callback(watchdog.close)
        upstream = Upstream(_gateway_of(source), token, https_context())
        stack.push_async_callback(upstream.close)
        raw = options.prompt == "raw"
        daemon = Daemon(options.command, folder, upstream, watchdog, raw=raw, user=user)
        isolation = "none" if user is None else "user"
        tls, insecure = tls_settings()
        worker = Worker(
            source,
            daemon.handle,
            token=token,
            max_turns=options.max_turns,
            isolation=isolation,
            worker=WORKER,
            tls=tls,
            insecure=insecure,
        )
        out.result(
            {"agent": name, "max_turns": options.max_turns, "isolation": isolation},
            f"attaching as {name} (up to {options.max_turns} turns at once, isolation: {isolation})",
        )
        out.flush()
        await _until_stopped(worker, stop)


def private_folder(base: Path | None, *, shared: bool) -> Path:
    """Make this daemon's folder for sockets; its path must leave room for a socket's name."""
    base = base or Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    try:
        folder = Path(tempfile.mkdtemp(prefix="hopline-", dir=base.absolute()))
    except OSError as error:
        text = f"no folder can be made in {base}: {error.strerror}"
        raise HoplineError("failed_precondition", text) from None
    if len(str(folder / ("x" * 12) / handover.SOCKET).encode()) > _SOCKET_PATH:
        folder.rmdir()
        text = f"the path {base} is too long for sockets; give a shorter --socket-dir"
        raise HoplineError("invalid_argument", text)
    if shared:
        folder.chmod(0o711)  # another user has to get through to the folders of their own
    return folder


def _given(options: AttachOptions) -> GivenToken | None:
    """Return the token that was handed over by descriptor, if one was."""
    if options.token_fd is None:
        return None
    token = read_once(options.token_fd)
    if options.token_file is not None:
        raise HoplineError("invalid_argument", "--token-fd and --token-file: give one of them")
    return GivenToken(token)


def _account(options: AttachOptions, source: discovery.Source) -> Account | None:
    if not options.user:
        return None
    user = account(options.user)
    # A supervisor's own token is in our environment's file, whoever reads it.
    files = {_token_file(options), os.environ.get("HOPLINE_TOKEN_FILE", "")} - {""}
    secrets = [Path(file).expanduser() for file in sorted(files)]
    if isinstance(source, discovery.DataDir):
        secrets += [source.path, source.admin_token]
    supervisor = [os.getppid()] if options.supervisor_fd is not None else []
    refuse_readers(user, secrets, [os.getpid(), *supervisor])
    return user


def _token_file(options: AttachOptions) -> str:
    """Return the file with the agent's token; empty where one is minted with the admin's."""
    if options.token_file is not None:
        return str(options.token_file)
    return "" if options.data is not None else os.environ.get("HOPLINE_TOKEN_FILE", "")


async def _token(
    options: AttachOptions, source: discovery.Source, stack: AsyncExitStack
) -> Callable[[], Awaitable[str]]:
    """Return where the agent's token comes from: a file, or minted by the admin of a local mesh."""
    file = _token_file(options)
    if file or not isinstance(source, discovery.DataDir):
        return discovery.token_source(token_file=file or None)
    data = source.path
    minted = MintedToken(options.agent, lambda: find(data, options.workspace), SystemClock())
    await minted.start()
    stack.push_async_callback(minted.close)
    return minted.current


async def _checked(agent: str, source: discovery.Source, token: Callable[[], Awaitable[str]]) -> str:
    """Return the agent's slug as the mesh knows it; a token of somebody else's is refused by both names."""
    mesh = Mesh(await source.endpoints(), await token())
    try:
        who = await VisibilityServiceStub(mesh.channel("registry")).GetSelf(visibility_pb2.GetSelfRequest())
    finally:
        await mesh.close()
    if not who.HasField("agent"):
        raise HoplineError("invalid_argument", "the token is a person's; attach needs one of the agent's own")
    if agent not in (who.agent.id, who.agent.slug, who.agent.name):
        text = f"the token belongs to the agent {who.agent.slug}, not to {agent}"
        raise HoplineError("invalid_argument", text)
    return who.agent.slug


def _gateway_of(source: discovery.Source) -> Callable[[], Awaitable[str]]:
    async def url() -> str:
        if isinstance(source, discovery.Gateway):
            return source.url
        gateway = (await source.endpoints()).gateway
        if not gateway:
            raise HoplineError("unavailable", "the address of the gateway is not known")
        return gateway

    return url


def _left_alone(stop: asyncio.Event) -> None:
    log.warning("the supervisor is gone")
    stop.set()


async def _until_stopped(worker: Worker, stop: asyncio.Event) -> None:
    running = asyncio.create_task(worker.run())
    asked = asyncio.create_task(stop.wait())
    await asyncio.wait({running, asked}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not running.done():
        log.info("stopping; running turns get %.0f s", _GRACE_SECONDS)
        await worker.stop(_GRACE_SECONDS)
    await running
