"""One run of the command: text in, text out, and nothing of it left when the turn is over."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

from hopline_client import TurnFailed

from hopline_cli.attach import as_user
from hopline_cli.attach.isolation import Account

T = TypeVar("T")

MAX_ANSWER: Final = 256 * 1024
_TOO_LONG: Final = "the answer is larger than 256 KiB"
# The mesh carries reasons of up to 2000 characters.
_STDERR_TAIL: Final = 1500
_STDERR_LINES: Final = 10
# What a group gets between SIGTERM and SIGKILL, and its pipes after that.
TERM_SECONDS: Final = 3.0
_PIPE_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.02
_SUBREAPER: Final = 36
_STDIN, _STDOUT, _STDERR = 0, 1, 2


class Watchdog(Protocol):
    """Who ends the groups when this process is killed."""

    def started(self, group: int) -> None:
        """Note a group that runs."""
        ...

    def ended(self, group: int) -> None:
        """Note that it runs no more."""
        ...


def become_reaper() -> None:
    """Let the orphans of our commands become our children, so that a group's end can be seen."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


async def run(
    words: Sequence[str],
    prompt: str,
    environment: Mapping[str, str],
    watchdog: Watchdog,
    user: Account | None = None,
    printed: Callable[[bytes], None] | None = None,
) -> str:
    """Run a command with the prompt on its standard input; return what it printed.

    `printed` is called with each piece of that as it comes.

    Raises `TurnFailed` when it cannot be started, fails, or prints more than 256 KiB. However this ends,
    also by cancellation, the command's whole process group has ended before it returns.
    """
    # asyncio cannot be cancelled while it starts a process without losing it.
    (transport, command), cancelled = await _uncancelled(_start(words, environment, user, printed))
    group = transport.get_pid()
    watchdog.started(group)
    try:
        if cancelled:
            raise asyncio.CancelledError
        _feed(transport, prompt)
        await asyncio.shield(command.over)
    finally:
        _, cancelled = await _uncancelled(_end(group, command))
        transport.close()
        watchdog.ended(group)
        if cancelled:
            raise asyncio.CancelledError
    return command.result(transport.get_returncode())


async def _uncancelled(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Do work that must be done, also while being cancelled; tells whether that happened."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
        except Exception:  # noqa: S112 - raised below, once
            continue
    return task.result(), cancelled


class _Command(asyncio.SubprocessProtocol):
    """What a command prints, and when it is over.

    Not `asyncio.subprocess.Process`: its `wait` goes on while a child of the command holds the pipes.
    """

    def __init__(self, printed: Callable[[bytes], None] | None) -> None:
        loop = asyncio.get_running_loop()
        self._printed = printed
        self.over: asyncio.Future[None] = loop.create_future()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.silent: asyncio.Future[None] = loop.create_future()
        self._open = {_STDOUT, _STDERR}
        self._answer = bytearray()
        self._complaints = b""
        self._is_too_long = False

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep the answer whole, and of the complaints the end."""
        if fd == _STDERR:
            self._complaints = (self._complaints + data)[-_STDERR_TAIL:]
        elif not self._is_too_long:
            self._answer += data
            # Two more for a line end that is taken off.
            self._is_too_long = len(self._answer) > MAX_ANSWER + 2
            if self._printed is not None and not self._is_too_long:
                self._printed(data)
            if self._is_too_long:
                _resolve(self.over)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note the end of a pipe."""
        self._open.discard(fd)
        if not self._open:
            _resolve(self.silent)

    def process_exited(self) -> None:
        """Note the end of the command itself; children of it may still run."""
        _resolve(self.exited)
        _resolve(self.over)

    def result(self, status: int | None) -> str:
        """Return what was printed, or raise why there is no answer."""
        if self._is_too_long:
            raise TurnFailed(_TOO_LONG)
        if status != 0:
            why = self._last_words()
            raise TurnFailed(f"{_ended(status)}: {why}" if why else _ended(status))
        # What is no text is shown as such; one line end is the shell's, not the answer's.
        text = self._answer.decode("utf-8", "replace").replace("\0", "\ufffd")
        text = text.removesuffix("\n").removesuffix("\r")
        if len(text.encode()) > MAX_ANSWER:
            raise TurnFailed(_TOO_LONG)
        return text

    def _last_words(self) -> str:
        lines = self._complaints.decode("utf-8", "replace").splitlines()[-_STDERR_LINES:]
        return "\n".join(lines).replace("\0", "\ufffd").strip()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _start(
    words: Sequence[str],
    environment: Mapping[str, str],
    user: Account | None,
    printed: Callable[[bytes], None] | None,
) -> tuple[asyncio.SubprocessTransport, _Command]:
    try:
        return await asyncio.get_running_loop().subprocess_exec(
            lambda: _Command(printed),
            *(words if user is None else _as_user(user, words)),
            env=dict(environment),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise TurnFailed(f"the command {words[0]!r} cannot be started: {error}") from None


def _as_user(user: Account, words: Sequence[str]) -> list[str]:
    groups = ",".join(str(group) for group in user.groups)
    return [sys.executable, "-I", as_user.__file__, str(user.uid), str(user.gid), groups, *words]


def _feed(transport: asyncio.SubprocessTransport, prompt: str) -> None:
    """Write the prompt and the end of input; a command that reads none of it is fine."""
    stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(_STDIN))
    stdin.write(prompt.encode("utf-8", "replace"))
    stdin.close()


async def _end(group: int, command: _Command) -> None:
    """Ask the group to end, then make it; the background children of a finished command too."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not _signal(group, number) or await _has_ended(group, command):
            break
    # What left the group may hold the pipes for ever.
    await asyncio.wait({command.silent, command.exited}, timeout=_PIPE_SECONDS)


async def _has_ended(group: int, command: _Command) -> bool:
    for _ in range(round(TERM_SECONDS / _POLL_SECONDS)):
        if command.exited.done():
            _reap(group)
        if not _signal(group, 0):
            return True
        await asyncio.sleep(_POLL_SECONDS)
    return False


def _signal(group: int, number: int) -> bool:
    """Send a signal to a group; false when nothing of it is left."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _reap(group: int) -> None:
    """Collect ended members of the group that became our children; asyncio has collected its leader."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass


def _ended(status: int | None) -> str:
    if status is None:
        return "the command could not be ended"
    if status < 0:
        return f"the command was ended by {signal.Signals(-status).name}"
    return f"the command failed with exit status {status}"
