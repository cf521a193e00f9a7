"""The data directory of a local mesh: one owner, who runs what in it, and where its services listen.

`hopline up` holds it whole; processes of `hopline serve` share it, each holding the part of its service.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

from hopline_rpc.errors import HoplineError

LOCK: Final = "lock"
ENDPOINTS: Final = "endpoints.json"
ADMIN_TOKEN: Final = "admin.token"  # noqa: S105 - a file's name
SPANS: Final = "spans.db"
_CHANGING: Final = "endpoints.lock"
_NAMES: Final = ("gateway", "console", "registry", "relay", "quota")
# Where the process says how it is; of `hopline up`, and of one service each.
_METRICS: Final = "metrics"
_STATUS: Final = tuple(f"{name}.{_METRICS}" for name in _NAMES)


class DataDirectory:
    """A data directory that this process holds from `with` to its end; a second holder is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    def __enter__(self) -> DataDirectory:
        _make_private(self.path)
        self._lock = _held_whole(self.path)
        self.withdraw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.withdraw()
        if self._lock is not None:
            self._lock.truncate(0)
            self._lock.close()

    def announce(
        self, addresses: Mapping[str, str], metrics: str | None = None
    ) -> dict[str, str | int | None]:
        """Write where everything listens, as a whole or not at all; returns what was written."""
        said = {**addresses, _METRICS: metrics} if metrics else addresses
        return _write(self.path, said, os.getpid())

    def withdraw(self) -> None:
        """Say no longer that anything listens."""
        (self.path / ENDPOINTS).unlink(missing_ok=True)


class ServiceDirectory:
    """One service's part of a data directory, from `with` to its end; refused while another runs it."""

    def __init__(self, path: Path, service: str) -> None:
        self.path = path
        self.service = service
        self._locks: list[IO[str]] = []

    def __enter__(self) -> ServiceDirectory:
        _make_private(self.path)
        with _alone(self.path):
            shared = _lock(self.path / LOCK, fcntl.LOCK_SH)
            if shared is None:
                raise _taken("a mesh is already running", self.path, self.path / LOCK)
            self._locks.append(shared)
            own = self.path / _lock_of(self.service)
            held = _lock(own, fcntl.LOCK_EX)
            if held is None:
                shared.close()
                raise _taken(f"the {self.service} is already running", self.path, own)
            _sign(held)
            self._locks.append(held)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.withdraw()
        for lock in reversed(self._locks):
            lock.close()

    def announce(self, address: str, metrics: str | None = None) -> None:
        """Add where this service listens to what the others have said, and drop who died without a word."""
        own = {self.service: address}
        if metrics:
            own[f"{self.service}.{_METRICS}"] = metrics
        with _alone(self.path):
            self._tell({**self._others(), **own})

    def withdraw(self) -> None:
        """Say no longer that this service listens; the last one leaves no file."""
        with _alone(self.path):
            self._tell(self._others())

    def _others(self) -> dict[str, str]:
        return {
            name: address
            for name, address in _read(self.path).items()
            if (owner := name.partition(".")[0]) != self.service and _is_held(self.path / _lock_of(owner))
        }

    def _tell(self, addresses: Mapping[str, str]) -> None:
        if addresses:
            _write(self.path, addresses, None)
        else:
            (self.path / ENDPOINTS).unlink(missing_ok=True)


def _write(path: Path, addresses: Mapping[str, str], pid: int | None) -> dict[str, str | int | None]:
    found: dict[str, str | int | None] = {name: addresses.get(name) for name in (*_NAMES, _METRICS)}
    # Of services with processes of their own, each says how it is at a place of its own.
    found |= {name: addresses[name] for name in _STATUS if name in addresses}
    found["pid"] = pid
    draft = path / f".{ENDPOINTS}.{secrets.token_hex(4)}"
    try:
        draft.write_text(json.dumps(found) + "\n")
        draft.replace(path / ENDPOINTS)
    finally:
        draft.unlink(missing_ok=True)
    return found


def _read(path: Path) -> dict[str, str]:
    try:
        found: Any = json.loads((path / ENDPOINTS).read_text())
    except (OSError, ValueError):
        return {}
    return {name: found[name] for name in (*_NAMES, *_STATUS) if isinstance(found.get(name), str)}


def _make_private(path: Path) -> None:
    """Make the directory for its owner alone; one that others can look into is not taken over silently."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.stat().st_mode
        if mode & 0o077:
            if any(path.iterdir()):
                raise HoplineError(
                    "failed_precondition",
                    f"{path} is open to other users; close it (chmod go-rwx {path}) or choose another --data",
                )
            path.chmod(0o700)
    except OSError as error:
        raise HoplineError(
            "failed_precondition", f"{path} cannot be the data directory: {error.strerror}"
        ) from None


def _held_whole(path: Path) -> IO[str]:
    lock = _lock(path / LOCK, fcntl.LOCK_EX)
    if lock is None:
        raise _taken("a mesh is already running", path, path / LOCK)
    _sign(lock)
    return lock


def _lock_of(service: str) -> str:
    return f"serve.{service}.lock"


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Change together what several processes change; held for moments only."""
    with _open(path / _CHANGING) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _open(path: Path) -> IO[str]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")


def _lock(path: Path, kind: int) -> IO[str] | None:
    """Take a lock for as long as the file stays open; None while another process holds it."""
    file = _open(path)
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def _is_held(path: Path) -> bool:
    lock = _lock(path, fcntl.LOCK_SH)
    if lock is None:
        return True
    lock.close()
    return False


def _sign(lock: IO[str]) -> None:
    """Say in the file who holds it."""
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()


def _taken(what: str, path: Path, lock: Path) -> HoplineError:
    holder = lock.read_text().strip()
    who = f" (pid {holder})" if holder else ""
    return HoplineError("failed_precondition", f"{what} on {path}{who}; stop it, or choose another --data")
