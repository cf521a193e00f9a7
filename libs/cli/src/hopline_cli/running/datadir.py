"""The data directory of a local mesh: one owner, one process at a time, and where its services listen."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from hopline_rpc.errors import HoplineError

LOCK: Final = "lock"
ENDPOINTS: Final = "endpoints.json"
ADMIN_TOKEN: Final = "admin.token"  # noqa: S105 - a file's name
SPANS: Final = "spans.db"
_NAMES: Final = ("gateway", "console", "registry", "relay", "quota")


class DataDirectory:
    """A data directory that this process holds from `with` to its end; a second holder is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    def __enter__(self) -> DataDirectory:
        _make_private(self.path)
        self._lock = _locked(self.path / LOCK)
        self.withdraw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.withdraw()
        if self._lock is not None:
            self._lock.close()

    def announce(self, addresses: Mapping[str, str]) -> dict[str, str | int | None]:
        """Write where everything listens, as a whole or not at all; returns what was written."""
        found: dict[str, str | int | None] = {name: addresses.get(name) for name in _NAMES}
        found["pid"] = os.getpid()
        draft = self.path / f".{ENDPOINTS}.{secrets.token_hex(4)}"
        try:
            draft.write_text(json.dumps(found) + "\n")
            draft.replace(self.path / ENDPOINTS)
        finally:
            draft.unlink(missing_ok=True)
        return found

    def withdraw(self) -> None:
        """Say no longer that anything listens."""
        (self.path / ENDPOINTS).unlink(missing_ok=True)


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


def _locked(path: Path) -> IO[str]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    file = os.fdopen(descriptor, "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = file.read().strip()
        file.close()
        who = f" (pid {holder})" if holder else ""
        raise HoplineError(
            "failed_precondition",
            f"a mesh is already running on {path.parent}{who}; stop it, or choose another --data",
        ) from None
    file.truncate()
    file.write(str(os.getpid()))
    file.flush()
    with suppress(OSError):
        file.seek(0)
    return file
