"""PostgreSQL for tests: one server for all workers of a run, a database of its own for each test.

A run whose PostgreSQL does not start fails. Nothing is left behind, however the run ends.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Final

import psycopg
from sqlalchemy import make_url

from tests.support.postgres_server import FAILED, URL, USERS
from tests.support.postgres_server import __file__ as keeper

_PATIENCE: Final = 90.0
# Open as long as this process lives: the server's keeper waits for it.
_held: list[IO[str]] = []


@cache
def server() -> str:
    """Return the address of the run's server, started where it is missing."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}-{secrets.token_hex(4)}"
    starting = Path(tempfile.gettempdir()) / f"hopline-postgres-{run}.lock"
    with starting.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = Path(tempfile.gettempdir()) / f"hopline-postgres-{run}"
        if not folder.exists():
            folder.mkdir(mode=0o700)
            (folder / USERS).touch()
        users = (folder / USERS).open("r")
        fcntl.flock(users, fcntl.LOCK_SH)
        _held.append(users)
        if not (folder / URL).exists():
            subprocess.Popen([sys.executable, keeper, str(folder)], start_new_session=True)
            _wait(folder)
        url = (folder / URL).read_text()
    starting.unlink(missing_ok=True)
    return url


def _wait(folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not (folder / URL).exists():
        if (folder / FAILED).exists():
            raise RuntimeError(f"PostgreSQL does not start: {(folder / FAILED).read_text()}")
        if time.monotonic() > deadline or not folder.exists():
            raise RuntimeError("PostgreSQL does not start")
        time.sleep(0.05)


@contextmanager
def database(template: str = "template0") -> Iterator[str]:
    """Give the address of a database made from another one; gone at the end, whoever is still connected."""
    name = f"test_{secrets.token_hex(6)}"
    url = make_url(server())
    with psycopg.connect(server(), autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY'.encode())
    try:
        yield url.set(database=name).render_as_string(hide_password=False)
    finally:
        with psycopg.connect(server(), autocommit=True) as admin:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@cache
def template(name: str, fill: Callable[[str], None]) -> str:
    """Return the name of a database that `fill` fills once a run; it gets its address."""
    url = make_url(server())
    with psycopg.connect(server(), autocommit=True) as admin:
        admin.execute("SELECT pg_advisory_lock(hashtext(%s))", (name,))
        if admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone() is None:
            draft = f"{name}_draft"
            admin.execute(f'DROP DATABASE IF EXISTS "{draft}" WITH (FORCE)'.encode())
            admin.execute(f'CREATE DATABASE "{draft}" TEMPLATE template0'.encode())
            fill(url.set(database=draft).render_as_string(hide_password=False))
            admin.execute(f'ALTER DATABASE "{draft}" RENAME TO "{name}"'.encode())
    return name
