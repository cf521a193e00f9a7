"""A broken store, as its callers see it: `unavailable` and a clear text. The driver's words are logged."""

from __future__ import annotations

import logging
import time
from typing import Final

from hopline_rpc.errors import HoplineError
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

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
# PostgreSQL's states that say the same, by their first letters; the longest that fits counts.
_POSTGRES: Final = {
    "08": "the store cannot be reached just now",
    "28": "the store refuses the credential it is given",
    "3D": "the store's database does not exist",
    "40": "others write to the store just now",
    "53": "the store has no room for another connection",
    "53100": "the disk of the store is full",
    "53200": "the store has no memory left",
    "55P03": "the store is locked by another process",
    "57": "the store cannot be reached just now",
    "57014": "the store takes too long",
    "25P03": "the store takes too long",
    "25006": "the store cannot be written",
    "42501": "the store refuses the credential it is given",
    "58": "the store's disk fails",
    "XX": "the store's file is damaged",
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
    state = _state(error)
    if state:
        known = (_POSTGRES.get(state[:length]) for length in (5, 2))
        return next((text for text in known if text is not None), None)
    return _ANY if is_cut_off(error) else None


def is_cut_off(error: BaseException) -> bool:
    """Tell whether a connection to the store has broken, or could not be made."""
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    state = _state(error)
    if not state:
        # The driver has no state to tell where the server did not say a word.
        return isinstance(error, OperationalError | InterfaceError) and not _sqlite_name(error)
    return state.startswith(("08", "57P")) or state == "25P03"


def is_conflict(error: BaseException) -> bool:
    """Tell whether a transaction met another one, and would go through once it is run again."""
    return _state(error) in ("40001", "40P01")


def _state(error: BaseException) -> str:
    driver = error.orig if isinstance(error, DBAPIError) else error
    return str(getattr(driver, "sqlstate", None) or "")


def is_locked(error: BaseException) -> bool:
    """Tell whether another process had locked the store."""
    name = _sqlite_name(error)
    return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")) or _state(error) == "55P03"


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
