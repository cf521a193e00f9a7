"""The services' databases, as those see them who look after them: backups, moves, checks, migrations.

Each storing service names its own by an entry point of `hopline.records`, so that nobody imports the
service for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from hopline_rpc.errors import HoplineError
from hopline_rpc.service import ORDER
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from hopline_store.database import open_engine
from hopline_store.failures import driver_words, store_failure

ENTRY_POINTS: Final = "hopline.records"


def _nothing(_conn: Connection) -> list[str]:
    return []


@dataclass(frozen=True)
class Records:
    """The database of one service."""

    # The service; on PostgreSQL its schema is named after it.
    name: str
    # The SQLite file in a data directory.
    file: str
    # The package of its migrations.
    migrations: str
    # Tables that the service makes again from the others, and that are not carried along.
    rebuilt: tuple[str, ...] = ()
    # Tables into which the migrations themselves put rows.
    seeded: tuple[str, ...] = ()
    # Says in words what in the tables contradicts itself.
    check: Callable[[Connection], list[str]] = _nothing


@dataclass(frozen=True)
class Place:
    """Where the databases of a mesh are: in a folder, or at the address of a PostgreSQL."""

    folder: Path
    url: str = ""

    @contextmanager
    def open(self, records: Records) -> Iterator[Engine]:
        """Give a database's engine; of SQLite, the file is made where it is missing.

        Raises `HoplineError` in place of the driver's errors that are about the database as a whole.
        """
        engine = open_engine(self.url or self.file(records), records.name, readers=1)
        try:
            yield engine
        except DBAPIError as error:
            words = store_failure(error)
            if words is None:
                raise
            raise HoplineError("unavailable", f"{records.name}: {words} ({driver_words(error)})") from None
        finally:
            engine.dispose()  # the last one that closes a file of SQLite leaves all of it in that file

    def file(self, records: Records) -> Path:
        """Return where the SQLite file is."""
        return self.folder / records.file


def installed() -> Sequence[Records]:
    """Return the databases of the installed services: those first that refer to the ones after them.

    Copied in this order while the mesh runs, nothing in a copy refers to what is not in the others yet.
    """
    found = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    return [found[name].load() for name in reversed(ORDER) if name in found]
