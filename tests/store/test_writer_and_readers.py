"""The writer and the readers: on a file of SQLite, on SQLite in memory, and on PostgreSQL."""

from __future__ import annotations

import asyncio
import itertools
import resource
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hopline_rpc.errors import HoplineError
from hopline_store import Database, after_commit, open_database
from hopline_store.writer import Writer
from sqlalchemy import Connection, text
from sqlalchemy.exc import DatabaseError, IntegrityError

from tests.support import postgres

REFUSED = HoplineError("not_found", "no such thing")


@pytest.fixture(params=["file", "memory", "postgresql"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with opened_on(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture(params=["file", "postgresql"])
async def on_disk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with opened_on(request.param, tmp_path) as opened:
        yield opened


@asynccontextmanager
async def opened_on(kind: str, folder: Path) -> AsyncIterator[Database]:
    with ExitStack() as stack:
        if kind == "postgresql":
            opened = open_database(stack.enter_context(postgres.database()))
        else:
            opened = open_database(folder / "store.db" if kind == "file" else "sqlite://")
        await opened.writer.run(create)
        yield opened
        await opened.close()


@pytest.fixture
async def on_file(tmp_path: Path) -> AsyncIterator[Database]:
    opened = open_database(tmp_path / "store.db")
    await opened.writer.run(create)
    yield opened
    await opened.close()


def create(conn: Connection) -> None:
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql("CREATE SCHEMA IF NOT EXISTS hopline_store")
    conn.exec_driver_sql("CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL)")


_INSERT = text(
    "INSERT INTO things (id, name) SELECT coalesce(max(id), 0) + 1, :name FROM things RETURNING id"
)


def insert(name: str) -> Callable[[Connection], int]:
    def op(conn: Connection) -> int:
        return int(conn.execute(_INSERT, {"name": name}).scalar_one())

    return op


def rename(name: str) -> Callable[[Connection], None]:
    def op(conn: Connection) -> None:
        conn.execute(text("UPDATE things SET name = :name"), {"name": name})

    return op


def names(conn: Connection) -> list[str]:
    return list(conn.exec_driver_sql("SELECT name FROM things ORDER BY id").scalars())


def refuse(conn: Connection) -> None:
    raise REFUSED


def write_then_refuse(name: str) -> Callable[[Connection], None]:
    def op(conn: Connection) -> None:
        insert(name)(conn)
        raise REFUSED

    return op


class Held:
    """Holds the writer's thread, so that what is queued meanwhile makes one batch."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.gate = threading.Event()
        self.entered = asyncio.Event()

    async def __aenter__(self) -> Held:
        loop = asyncio.get_running_loop()

        def block(conn: Connection) -> None:
            loop.call_soon_threadsafe(self.entered.set)
            self.gate.wait(30)

        self.task = asyncio.create_task(self.writer.run(block))
        await self.entered.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.gate.set()
        await self.task

    async def queue(self, *work: Any) -> list[asyncio.Task[Any]]:
        tasks = [asyncio.ensure_future(each) for each in work]
        await asyncio.sleep(0)
        return tasks


async def outcomes(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    return list(await asyncio.gather(*tasks, return_exceptions=True))


# --- writing -------------------------------------------------------------------------------------


async def test_an_operations_result_comes_back(database: Database) -> None:
    assert await database.writer.run(insert("a")) == 1
    assert await database.writer.run(insert("b")) == 2
    assert await database.reader.run(names) == ["a", "b"]


async def test_what_is_queued_together_is_committed_together_in_order(database: Database) -> None:
    writer = database.writer
    async with Held(writer) as held:
        before = writer.batches
        tasks = await held.queue(*[writer.run(insert(f"n{number:02}")) for number in range(20)])
    assert await outcomes(tasks) == list(range(1, 21))
    assert writer.batches - before == 2  # the one that was held, and the one with the rest
    assert await database.reader.run(names) == [f"n{number:02}" for number in range(20)]


async def test_a_batch_takes_a_bounded_number(tmp_path: Path) -> None:
    opened = open_database("sqlite://")
    writer = Writer(opened.engine, max_batch=8)
    await writer.run(create)
    async with Held(writer) as held:
        before = writer.batches
        tasks = await held.queue(*[writer.run(insert(str(number))) for number in range(20)])
    await outcomes(tasks)
    assert writer.batches - before == 4
    await writer.close()
    await opened.close()


async def test_a_refusal_that_wrote_nothing_fails_alone(database: Database) -> None:
    writer = database.writer
    async with Held(writer) as held:
        tasks = await held.queue(writer.run(insert("a")), writer.run(refuse), writer.run(insert("b")))
    assert await outcomes(tasks) == [1, REFUSED, 2]


async def test_what_a_failed_operation_wrote_is_undone_and_the_others_stay(database: Database) -> None:
    writer = database.writer
    async with Held(writer) as held:
        tasks = await held.queue(
            writer.run(insert("a")),
            writer.run(write_then_refuse("undone")),
            writer.run(insert("b")),
            writer.run(write_then_refuse("undone")),
            writer.run(insert("c")),
        )
    results = await outcomes(tasks)
    assert [results[0], results[2], results[4]] == [1, 2, 3]
    assert results[1] is REFUSED
    assert results[3] is REFUSED
    assert await database.reader.run(names) == ["a", "b", "c"]


async def test_an_operation_that_broke_a_constraint_fails_alone(database: Database) -> None:
    writer = database.writer
    async with Held(writer) as held:
        tasks = await held.queue(*[writer.run(insert(name)) for name in ("a", "a", "b")])
    first, second, third = await outcomes(tasks)
    assert first == 1
    assert isinstance(second, IntegrityError)
    assert isinstance(third, int)
    assert await database.reader.run(names) == ["a", "b"]


async def test_an_operation_sees_what_was_queued_before_it(database: Database) -> None:
    writer = database.writer
    async with Held(writer) as held:
        tasks = await held.queue(writer.run(insert("a")), writer.run(names), writer.run(insert("b")))
    assert (await outcomes(tasks))[1] == ["a"]


async def test_an_operation_whose_caller_has_gone_is_not_run(database: Database) -> None:
    writer = database.writer
    async with Held(writer) as held:
        gone, stays = await held.queue(writer.run(insert("gone")), writer.run(insert("stays")))
        gone.cancel()
        await asyncio.sleep(0)
    await outcomes([gone, stays])
    assert gone.cancelled()
    assert await database.reader.run(names) == ["stays"]
    assert writer.queued == 0


async def test_a_full_queue_is_overloaded(tmp_path: Path) -> None:
    opened = open_database("sqlite://")
    writer = Writer(opened.engine, max_queued=3)
    await writer.run(create)
    async with Held(writer) as held:
        tasks = await held.queue(*[writer.run(insert(str(number))) for number in range(4)])
    results = await outcomes(tasks)
    assert [isinstance(each, HoplineError) and each.reason for each in results] == [
        False,
        False,
        "overloaded",
        "overloaded",
    ]
    assert await writer.run(insert("later")) == 3
    await writer.close()
    await opened.close()


async def test_closing_finishes_what_is_queued_and_refuses_the_rest(
    on_file: Database, tmp_path: Path
) -> None:
    tasks = [asyncio.ensure_future(on_file.writer.run(insert(str(number)))) for number in range(300)]
    await asyncio.sleep(0)
    await on_file.close()
    assert await outcomes(tasks) == list(range(1, 301))
    with pytest.raises(HoplineError) as caught:
        await on_file.writer.run(insert("late"))
    assert caught.value.reason == "unavailable"
    with pytest.raises(HoplineError):
        await on_file.reader.run(names)
    await on_file.close()
    with sqlite3.connect(tmp_path / "store.db") as raw:
        assert raw.execute("SELECT count(*) FROM things").fetchone() == (300,)


async def test_a_database_that_nothing_was_asked_of_can_be_closed() -> None:
    await open_database("sqlite://").close()


# --- items of a kind -----------------------------------------------------------------------------


class Sends:
    """A handler that inserts all of its items at once."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, conn: Connection, items: list[str]) -> list[int | Exception]:
        self.calls.append(list(items))
        results: list[int | Exception] = []
        for item in items:
            if item == "bad":
                results.append(REFUSED)
                continue
            if item == "worse":
                insert("worse")(conn)
                raise RuntimeError("worse")
            results.append(insert(item)(conn))
        return results


async def test_items_queued_next_to_each_other_come_together(database: Database) -> None:
    writer, sends = database.writer, Sends()
    writer.register("send", sends)
    async with Held(writer) as held:
        tasks = await held.queue(
            writer.submit("send", "a"),
            writer.submit("send", "b"),
            writer.run(names),
            writer.submit("send", "c"),
        )
    assert await outcomes(tasks) == [1, 2, ["a", "b"], 3]
    assert sends.calls == [["a", "b"], ["c"]]


async def test_gathered_items_come_together_wherever_they_stand_in_the_batch(database: Database) -> None:
    writer, sends = database.writer, Sends()
    writer.register("send", sends, gather=True)
    async with Held(writer) as held:
        tasks = await held.queue(
            writer.run(names),
            writer.submit("send", "a"),
            writer.run(names),
            writer.submit("send", "b"),
        )
    assert await outcomes(tasks) == [[], 1, ["a", "b"], 2]
    assert sends.calls == [["a", "b"]]


async def test_kinds_do_not_mix(database: Database) -> None:
    writer, one, other = database.writer, Sends(), Sends()
    writer.register("one", one)
    writer.register("other", other)
    async with Held(writer) as held:
        tasks = await held.queue(
            *[writer.submit(kind, f"{kind}{n}") for n in range(2) for kind in ("one", "other")]
        )
    await outcomes(tasks)
    assert one.calls == [["one0"], ["one1"]]
    assert other.calls == [["other0"], ["other1"]]


async def test_a_handler_answers_each_item_by_itself(database: Database) -> None:
    writer, sends = database.writer, Sends()
    writer.register("send", sends)
    async with Held(writer) as held:
        tasks = await held.queue(*[writer.submit("send", item) for item in ("a", "bad", "b")])
    assert await outcomes(tasks) == [1, REFUSED, 2]
    assert sends.calls == [["a", "bad", "b"]]


async def test_a_handler_that_raises_is_run_again_item_by_item(database: Database) -> None:
    writer, sends = database.writer, Sends()
    writer.register("send", sends)
    async with Held(writer) as held:
        tasks = await held.queue(*[writer.submit("send", item) for item in ("a", "worse", "b")])
    first, second, third = await outcomes(tasks)
    assert isinstance(first, int)
    assert isinstance(second, RuntimeError)
    assert isinstance(third, int)
    assert await database.reader.run(names) == ["a", "b"]


async def test_a_handler_that_forgets_an_item_fails_the_batch_and_not_the_writer(database: Database) -> None:
    database.writer.register("send", lambda conn, items: [])
    with pytest.raises(RuntimeError, match="one result for each item"):
        await database.writer.submit("send", "a")
    assert await database.writer.run(insert("a")) == 1


async def test_a_kind_without_a_handler_is_a_mistake(database: Database) -> None:
    with pytest.raises(ValueError, match="no handler"):
        await database.writer.submit("nothing", 1)


# --- after the commit ----------------------------------------------------------------------------


async def test_callbacks_run_on_the_loop_after_the_commit_and_before_the_results(database: Database) -> None:
    events: list[Any] = []
    loop_thread = threading.get_ident()
    database.writer.on_committed(lambda: events.append("hook"))

    def op(conn: Connection) -> str:
        after_commit(conn, lambda: events.append(threading.get_ident() == loop_thread))
        return "result"

    events.append(await database.writer.run(op))
    assert events == [True, "hook", "result"]


async def test_callbacks_of_what_failed_or_was_run_again_run_once_or_never(database: Database) -> None:
    events: list[str] = []

    def noting(name: str, then: Callable[[Connection], Any]) -> Callable[[Connection], Any]:
        def op(conn: Connection) -> Any:
            after_commit(conn, lambda: events.append(name))
            return then(conn)

        return op

    writer = database.writer
    async with Held(writer) as held:
        tasks = await held.queue(
            writer.run(noting("kept", insert("a"))),
            writer.run(noting("refused", refuse)),
            writer.run(noting("undone", write_then_refuse("b"))),
            writer.run(noting("kept too", insert("c"))),
        )
    await outcomes(tasks)
    assert events == ["kept", "kept too"]


async def test_a_failing_callback_keeps_no_result_back(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    def op(conn: Connection) -> str:
        after_commit(conn, lambda: 1 / 0)
        return "result"

    assert await database.writer.run(op) == "result"
    assert "after a commit" in caplog.text


# --- a broken store ------------------------------------------------------------------------------


async def test_a_full_disk_is_unavailable_and_the_writer_serves_again_after_it(
    on_file: Database, caplog: pytest.LogCaptureFixture
) -> None:
    writer = on_file.writer

    def fill(conn: Connection) -> None:
        pages = conn.exec_driver_sql("PRAGMA page_count").scalar()
        conn.exec_driver_sql(f"PRAGMA max_page_count={pages}")
        for number in range(1000):
            insert(f"{number}" + "x" * 1000)(conn)

    async with Held(writer) as held:
        tasks = await held.queue(writer.run(insert("lost too")), writer.run(fill))
    for result in await outcomes(tasks):
        assert isinstance(result, HoplineError)
        assert (result.reason, result.message) == ("unavailable", "the disk of the store is full")
        assert result.retry_after is not None
    assert "database or disk is full" in caplog.text
    assert await on_file.reader.run(names) == []
    assert await writer.run(insert("after")) == 1


async def test_a_lock_of_another_process_is_unavailable_until_it_is_gone(
    on_file: Database, tmp_path: Path
) -> None:
    await on_file.writer.run(lambda conn: conn.exec_driver_sql("PRAGMA busy_timeout=1") and None)
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(HoplineError) as caught:
        await on_file.writer.run(insert("a"))
    assert (caught.value.reason, caught.value.message) == (
        "unavailable",
        "the store is locked by another process",
    )
    assert await on_file.reader.run(names) == []
    other.execute("ROLLBACK")
    other.close()
    assert await on_file.writer.run(insert("a")) == 1


async def test_a_file_that_is_no_database_is_unavailable_in_plain_words(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"this is not a database, whatever its name says" * 100)
    opened = open_database(path)
    for attempt in (opened.writer.run(names), opened.reader.run(names)):
        with pytest.raises(HoplineError) as caught:
            await attempt
        assert caught.value.reason == "unavailable"
        assert caught.value.message == "the store's file is not a database"
    assert not await opened.ready()
    await opened.close()


async def test_a_folder_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    opened = open_database(tmp_path / "missing" / "store.db")
    with pytest.raises(HoplineError, match="cannot be opened"):
        await opened.writer.run(create)
    await opened.close()


async def test_a_mistake_in_a_statement_is_not_taken_for_a_broken_store(database: Database) -> None:
    def mistake(conn: Connection) -> None:
        conn.exec_driver_sql("SELECT nothing FROM nowhere")

    for attempt in (database.writer.run(mistake), database.reader.run(mistake)):
        with pytest.raises(DatabaseError):
            await attempt
    assert await database.writer.run(insert("a")) == 1
    assert await database.ready()


# --- reading -------------------------------------------------------------------------------------


async def test_readers_cannot_write(on_disk: Database) -> None:
    with pytest.raises(HoplineError) as caught:
        await on_disk.reader.run(insert("a"))
    assert caught.value.reason == "unavailable"
    assert await on_disk.reader.run(names) == []


async def test_a_reader_sees_one_state_whatever_is_written_meanwhile(on_disk: Database) -> None:
    await on_disk.writer.run(insert("a"))
    loop, read, written = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def look_twice(conn: Connection) -> tuple[list[str], list[str]]:
        first = names(conn)
        loop.call_soon_threadsafe(read.set)
        written.wait(30)
        return first, names(conn)

    looking = asyncio.create_task(on_disk.reader.run(look_twice))
    await read.wait()
    await on_disk.writer.run(insert("b"))
    written.set()
    assert await looking == (["a"], ["a"])
    assert await on_disk.reader.run(names) == ["a", "b"]


async def test_what_was_written_is_seen_by_the_next_reader(database: Database) -> None:
    for number in range(20):
        await database.writer.run(insert(str(number)))
        assert len(await database.reader.run(names)) == number + 1


async def test_readers_and_the_writer_work_at_the_same_time(database: Database) -> None:
    async def write(number: int) -> None:
        await database.writer.run(insert(str(number)))

    async def read() -> int:
        return len(await database.reader.run(names))

    work = [write(number) for number in range(100)] + [read() for _ in range(100)]
    results = await asyncio.gather(*work)
    assert all(isinstance(each, int) for each in results[100:])
    assert len(await database.reader.run(names)) == 100


async def test_a_file_is_written_with_the_promised_durability(on_file: Database) -> None:
    def pragmas(conn: Connection) -> list[Any]:
        asked = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        return [conn.exec_driver_sql(f"PRAGMA {name}").scalar() for name in asked]

    assert await on_file.writer.run(pragmas) == ["wal", 2, 1, 1000]
    assert await on_file.reader.run(pragmas) == ["wal", 2, 1, 1000]


async def test_what_nobody_waits_for_is_written_too_and_its_failure_disturbs_nobody(
    on_disk: Database,
) -> None:
    failures: list[BaseException] = []
    on_disk.writer.post(insert("posted"), failures.append)
    on_disk.writer.post(write_then_refuse("refused"), failures.append)
    await on_disk.writer.run(insert("waited for"))
    assert await on_disk.reader.run(names) == ["posted", "waited for"]
    assert len(failures) == 1


def test_a_damaged_file_is_named_in_one_line_when_it_is_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "damaged.db"
    file.write_bytes(b"no database at all, " * 500)
    with pytest.raises(HoplineError) as caught:
        open_database(file, migrations="hopline_relay.migrations")
    assert caught.value.reason == "unavailable"
    assert caught.value.message == f"the store's file is not a database: {file} (file is not a database)"
    assert [record for record in caplog.records if record.name == "hopline.store"] == []


async def test_what_queues_up_behind_a_lock_of_another_process_waits_for_it_once(tmp_path: Path) -> None:
    database = open_database(tmp_path / "store.db")
    writer = Writer(database.engine, max_batch=1)
    await writer.run(create)
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    waiting = [writer.run(insert(f"number {number}")) for number in range(20)]
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, HoplineError) and result.reason == "unavailable" for result in results)
    # The first found the lock, then all that had queued up by then: one failure for all who waited together.
    assert len({id(result) for result in results}) == 2
    other.close()
    assert await writer.run(insert("after it"))
    await writer.close()
    await database.close()


async def test_a_log_of_writes_that_has_no_more_room_is_emptied(tmp_path: Path) -> None:
    database = open_database(tmp_path / "store.db")
    await database.writer.run(create)
    await database.writer.run(insert("x"))
    await database.reader.run(names)  # a reader keeps the log from being emptied when the writer goes
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # As a full disk does it: no file grows beyond this.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        results: list[object] = []
        for number in range(40):
            write = rename(f"{number}" + "x" * 100_000)
            results += await asyncio.gather(database.writer.run(write), return_exceptions=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    refused = [isinstance(result, HoplineError) for result in results]
    assert any(refused)
    assert not any(one and other for one, other in itertools.pairwise(refused))
    await database.close()
