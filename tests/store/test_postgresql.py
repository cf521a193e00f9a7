"""What is PostgreSQL's own: several writers of one database, servers that go and come, its words."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hopline_rpc.errors import HoplineError
from hopline_store import Database, open_database
from sqlalchemy import Connection, make_url

from tests.support import postgres
from tests.support.postgres_server import Server

ONE, OTHER = ("one",), ("other",)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds a database taken says so soon."""
    monkeypatch.setattr("hopline_store.postgres._LEAVING_SECONDS", 1)


@pytest.fixture
def url() -> Iterator[str]:
    with postgres.database() as made:
        yield made


@pytest.fixture
async def two(url: str) -> AsyncIterator[tuple[Database, Database]]:
    """The stores of two processes on one database."""
    first, second = open_database(url), open_database(url)
    await first.writer.run(create)
    yield first, second
    await first.close()
    await second.close()


def create(conn: Connection) -> None:
    conn.exec_driver_sql("CREATE SCHEMA hopline_store")
    conn.exec_driver_sql("CREATE TABLE counters (workspace_id text PRIMARY KEY, value bigint NOT NULL)")
    conn.exec_driver_sql("INSERT INTO counters VALUES ('one', 0), ('other', 0)")


def value(conn: Connection, workspace: str = "one") -> int:
    query = "SELECT value FROM counters WHERE workspace_id = %s"
    return int(conn.exec_driver_sql(query, (workspace,)).scalar_one())


def put(conn: Connection, number: int, workspace: str = "one") -> None:
    conn.exec_driver_sql("UPDATE counters SET value = %s WHERE workspace_id = %s", (number, workspace))


def count(conn: Connection) -> int:
    """Read, and write by what was read: only right where nobody writes in between."""
    number = value(conn) + 1
    put(conn, number)
    return number


class Held:
    """An operation that has begun, and goes on once it is let."""

    def __init__(self, store: Database, within: tuple[str, ...] | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun = asyncio.Event()
        self._gate = threading.Event()
        self.task = asyncio.create_task(store.writer.run(self._op, within))

    def _op(self, conn: Connection) -> None:
        value(conn)
        self._loop.call_soon_threadsafe(self._begun.set)
        self._gate.wait(30)

    async def __aenter__(self) -> Held:
        await self._begun.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._gate.set()
        await self.task


async def waits_for_a_lock(store: Database) -> None:
    """Return once some transaction stands in line."""
    query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
    while not await store.reader.run(lambda conn: conn.exec_driver_sql(query).scalar()):
        pass


# --- several writers ------------------------------------------------------------------------------


@pytest.mark.parametrize("within", [ONE, None])
async def test_what_two_processes_count_up_together_has_no_gap_and_nothing_twice(
    two: tuple[Database, Database], within: tuple[str, ...] | None
) -> None:
    counted = await asyncio.gather(*[each.writer.run(count, within) for _ in range(100) for each in two])
    assert sorted(counted) == list(range(1, 201))


async def test_work_in_one_workspace_does_not_wait_for_another(two: tuple[Database, Database]) -> None:
    first, second = two
    async with Held(first, OTHER):
        assert await second.writer.run(count, ONE) == 1


async def test_what_is_about_any_workspace_waits_for_all_and_all_for_it(
    two: tuple[Database, Database],
) -> None:
    first, second = two
    async with Held(first, OTHER):
        everywhere = asyncio.create_task(second.writer.run(count))
        await waits_for_a_lock(first)
        assert not everywhere.done()
    assert await everywhere == 1
    async with Held(first, None):
        somewhere = asyncio.create_task(second.writer.run(count, ONE))
        await waits_for_a_lock(first)
        assert not somewhere.done()
    assert await somewhere == 2


async def test_batches_that_are_within_the_same_two_workspaces_never_block_each_other(
    two: tuple[Database, Database],
) -> None:
    names = [(ONE, OTHER), (OTHER, ONE)]
    work = [
        store.writer.run(count, within)
        for _ in range(50)
        for store, order in zip(two, names, strict=True)
        for within in order
    ]
    assert sorted(await asyncio.gather(*work)) == list(range(1, 201))


async def test_transactions_that_block_each_other_are_run_again(two: tuple[Database, Database]) -> None:
    # They lie about where they write, so that nothing but the rows themselves keeps them apart.
    meeting = threading.Barrier(2)
    runs: list[str] = []

    def crossing(first: str, then: str) -> Callable[[Connection], None]:
        def op(conn: Connection) -> None:
            put(conn, value(conn, first) + 1, first)
            runs.append(first)
            if len(runs) <= 2:
                meeting.wait(10)
            put(conn, value(conn, then) + 1, then)

        return op

    await asyncio.gather(
        two[0].writer.run(crossing("one", "other"), ("a",)),
        two[1].writer.run(crossing("other", "one"), ("b",)),
    )
    assert len(runs) > 2  # one of them at least twice
    assert [await two[0].reader.run(partial(value, workspace=name)) for name in ("one", "other")] == [2, 2]


async def test_an_operation_that_was_refused_with_others_in_its_batch_is_undone_alone(
    two: tuple[Database, Database],
) -> None:
    def refused(conn: Connection) -> None:
        put(conn, 99)
        raise HoplineError("not_found", "no")

    writer = two[0].writer
    work = [writer.run(count, ONE), writer.run(refused, ONE), writer.run(count, ONE)]
    results = await asyncio.gather(*work, return_exceptions=True)
    assert [results[0], results[2]] == [1, 2]


# --- one writer alone -----------------------------------------------------------------------------


@pytest.mark.usefixtures("hasty")
async def test_a_second_process_is_refused_where_one_works_alone(url: str) -> None:
    first = open_database(url, name="relay", alone=True)
    with pytest.raises(HoplineError, match="another relay runs on this database") as caught:
        await asyncio.to_thread(open_database, url, name="relay", alone=True)
    assert caught.value.reason == "unavailable"
    other = open_database(url, name="quota", alone=True)
    await other.close()
    await first.close()
    several = [open_database(url, name="relay") for _ in range(2)]
    with pytest.raises(HoplineError, match="another relay runs on this database"):
        await asyncio.to_thread(open_database, url, name="relay", alone=True)
    for each in several:
        await each.close()
    later = open_database(url, name="relay", alone=True)
    await later.close()


@pytest.mark.usefixtures("hasty")
async def test_a_process_that_works_alone_does_so_again_on_a_new_connection(url: str) -> None:
    store = open_database(url, alone=True)
    await store.writer.run(create)
    for expected in (1, 2):
        assert await store.writer.run(count) == expected
        await cut(url)
    assert await store.writer.run(count) == 3
    with pytest.raises(HoplineError, match="another store runs"):
        await asyncio.to_thread(open_database, url, alone=True)
    await store.close()


# --- servers that go and come ---------------------------------------------------------------------


async def cut(url: str) -> None:
    """End every connection to the database, as a server does that stops."""
    query = (
        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
        " WHERE application_name LIKE 'hopline-%%' AND application_name <> 'hopline-cutter'"
        " AND datname = current_database()"
    )
    other = open_database(url, name="cutter")
    try:
        await other.reader.run(lambda conn: conn.exec_driver_sql(query).scalar())
    finally:
        await other.close()


async def test_connections_that_have_gone_meanwhile_cost_nobody_a_call(
    two: tuple[Database, Database], url: str
) -> None:
    store = two[0]
    assert await store.writer.run(count, ONE) == 1
    for number in range(8):
        assert await store.reader.run(value) == 1 + number
        await cut(url)
        assert await store.writer.run(count, ONE) == 2 + number


async def test_a_connection_that_breaks_in_a_transaction_is_unavailable_and_leaves_nothing(
    two: tuple[Database, Database], caplog: pytest.LogCaptureFixture
) -> None:
    store = two[0]

    def broken(conn: Connection) -> None:
        count(conn)
        conn.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

    for attempt in (store.writer.run(broken, ONE), store.reader.run(broken)):
        with pytest.raises(HoplineError) as caught:
            await attempt
        assert caught.value.reason == "unavailable"
        assert caught.value.retry_after
    assert await store.writer.run(count, ONE) == 1


@pytest.fixture
def own_server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="hopline-postgres-"))
    # What was answered is there again after a crash.
    server = Server(folder, "synchronous_commit=on")
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.close()


async def test_a_server_that_was_killed_is_unavailable_until_it_is_back(own_server: Server) -> None:
    store = open_database(own_server.url())
    await store.writer.run(create)
    assert await store.writer.run(count) == 1
    own_server.stop(signal.SIGKILL)
    for attempt in (store.writer.run(count), store.reader.run(value)):
        with pytest.raises(HoplineError) as caught:
            await attempt
        assert (caught.value.reason, caught.value.message) == (
            "unavailable",
            "the store cannot be reached just now",
        )
    assert not await store.ready()
    own_server.start()
    assert await store.ready()
    assert await store.writer.run(count) == 2
    await store.close()


async def test_a_server_that_is_not_there_is_named_without_its_password(own_server: Server) -> None:
    url = own_server.url("nowhere")
    with pytest.raises(HoplineError, match=r'nowhere on 127.0.0.1 .* "nowhere" does not exist') as caught:
        open_database(url, migrations="hopline_relay.migrations")
    assert own_server.password not in caught.value.message
    wrong = make_url(own_server.url()).set(password="not-this").render_as_string(hide_password=False)
    with pytest.raises(HoplineError, match="password authentication failed") as caught:
        open_database(wrong, migrations="hopline_relay.migrations")
    assert "not-this" not in caught.value.message
    own_server.stop()
    with pytest.raises(HoplineError, match="cannot be reached") as caught:
        open_database(own_server.url(), migrations="hopline_relay.migrations")
    assert caught.value.reason == "unavailable"
    assert own_server.password not in caught.value.message


# --- addresses and sessions -----------------------------------------------------------------------


@pytest.mark.parametrize("address", ["mysql://u:hidden@h/d", "postgresql+asyncpg://u:hidden@h/d", "hidden"])
def test_an_address_of_another_kind_is_refused_without_saying_it(address: str) -> None:
    with pytest.raises(HoplineError, match="postgresql://") as caught:
        open_database(address)
    assert caught.value.reason == "invalid_argument"
    assert "hidden" not in caught.value.message


async def test_no_transaction_waits_or_stands_open_for_ever(two: tuple[Database, Database]) -> None:
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "search_path")

    def look(conn: Connection) -> list[Any]:
        return [conn.exec_driver_sql(f"SHOW {name}").scalar() for name in names]

    assert await two[0].writer.run(look) == ["30s", "10s", "10s", "hopline_store"]
    assert await two[0].reader.run(look) == ["30s", "10s", "10s", "hopline_store"]


def test_a_store_of_sqlite_takes_no_driver_of_postgresql_along(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from hopline_store import open_database;"
        f"open_database(Path({str(tmp_path / 'store.db')!r}), migrations='hopline_relay.migrations');"
        "print([name for name in sys.modules if name.startswith(('psycopg', 'hopline_store.postgres'))])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
