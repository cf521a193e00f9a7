"""A broken store, as its callers see it: `unavailable` and a clear text. The driver's words are logged."""

from __future__ import annotations

import logging
import time
from typing import Final

from hopline_rpc.errors import HoplineError
from sqlalchemy.exc import DBAPIError

log = logging.getLogger("hopline.store")

# SQLite's primary error names that say "the store", not "this statement".
_SQLITE: Final = {
    "SQLITE_FULL": "the disk of the store is full",
    "SQLITE_BUSY": "the store is locked by another process",
    "SQLITE_LOCKED": "the store is locked by another process",
    "SQLITE_CORRUPT": "the store's file is damaged",
    "SQLITE_NOTADB": "the store's file is not a database",
    "SQLITE_READONLY": "the store's file cannot be written",
    "SQLITE_CANTOPEN": "the store's file cannot be opened",
    "SQLITE_PERM": "the store's file cannot be opened",
    "SQLITE_IOERR": "the store's disk fails",
    "SQLITE_PROTOCOL": "the store is locked by another process",
    "SQLITE_NOMEM": "the store has no memory left",
}
_AGAIN_SECONDS: Final = 10.0
# When each of these texts was logged last.
_said: dict[str, float] = {}
_ANY: Final = "the store cannot be reached just now"


def store_failure(error: BaseException) -> str | None:
    """Say in what way the store as a whole is broken; None when the error is about one statement only."""
    if not isinstance(error, DBAPIError):
        return None
    name = getattr(error.orig, "sqlite_errorname", None)
    if isinstance(name, str):
        for primary, text in _SQLITE.items():
            # Extended codes carry the primary one in front, such as SQLITE_IOERR_FSYNC.
            if name == primary or name.startswith(f"{primary}_"):
                return text
        return None
    return _ANY if error.connection_invalidated else None


def is_locked(error: BaseException) -> bool:
    """Tell whether another process had locked the store."""
    return _sqlite_name(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL"))


def needs_room(error: BaseException) -> bool:
    """Tell whether a file could not grow: a full disk, or (as a write that fails) somebody's quota of it."""
    return _sqlite_name(error).startswith(("SQLITE_FULL", "SQLITE_IOERR_WRITE"))


def _sqlite_name(error: BaseException) -> str:
    driver = error.orig if isinstance(error, DBAPIError) else error
    return str(getattr(driver, "sqlite_errorname", None) or "")


def unavailable(error: BaseException, text: str) -> HoplineError:
    """Log a broken store with its driver's words, and return what its callers get.

    One line now and then: while a disk is full every call comes by here.
    """
    now = time.monotonic()
    if now >= _said.get(text, -_AGAIN_SECONDS) + _AGAIN_SECONDS:
        _said[text] = now
        log.error("%s: %s", text, driver_words(error))
    return HoplineError("unavailable", text, retry_after=1.0)


def driver_words(error: BaseException) -> str:
    """Return what the driver said, without the statement that it was said of."""
    return str(error.orig if isinstance(error, DBAPIError) else error)
