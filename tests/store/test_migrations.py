"""Migrations: where a database is, where it goes, and when it is refused; on SQLite and on PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hopline_rpc.errors import HoplineError
from hopline_store import migrate, open_database, open_engine
from sqlalchemy import Connection, Engine, inspect
from sqlalchemy.exc import IntegrityError

from tests.support import postgres

ENV = """
from sqlalchemy import MetaData
from hopline_store.migrations import run_env
run_env(MetaData())
"""


def script(revision: str, before: str | None, upgrade: str) -> str:
    return textwrap.dedent(
        f"""
        from __future__ import annotations
        from alembic import op
        revision: str = {revision!r}
        down_revision: str | None = {before!r}
        def upgrade() -> None:
            {upgrade}
        """
    )


FIRST = script("0001", None, "op.execute('CREATE TABLE one (id INTEGER PRIMARY KEY)')")
SECOND = script("0002", "0001", "op.execute('CREATE TABLE two (id INTEGER PRIMARY KEY)')")
BROKEN = script(
    "0002", "0001", "op.execute('CREATE TABLE two (id INTEGER)'); op.execute('CREATE TABLE one (id INTEGER)')"
)


Place = Path | str
"""Where a database is: a file of SQLite, or an address."""


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        yield tmp_path / "store.db"
        return
    with postgres.database() as url:
        yield url


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text(ENV)
    (folder / "versions" / "0001_first.py").write_text(FIRST)
    return folder


def add(scripts: Path, text: str = SECOND) -> None:
    (scripts / "versions" / "0002_second.py").write_text(text)


def tables(path: Place) -> set[str]:
    engine = open_engine(path)
    found = set(inspect(engine).get_table_names(_schema(engine))) - {"alembic_version"}
    engine.dispose()
    return found


def _schema(engine: Engine) -> str | None:
    return "hopline_store" if engine.dialect.name == "postgresql" else None


def written(place: Place) -> str:
    """Return a place as it is written in a program."""
    return repr(place) if isinstance(place, str) else f"Path({str(place)!r})"


def bring_up(path: Place, scripts: Path) -> None:
    engine = open_engine(path)
    try:
        migrate(engine, scripts)
    finally:
        engine.dispose()


def test_an_empty_database_is_brought_to_the_newest_revision(place: Place, scripts: Path) -> None:
    add(scripts)
    bring_up(place, scripts)
    assert tables(place) == {"one", "two"}


def test_an_older_database_gets_what_it_misses_and_keeps_its_rows(place: Place, scripts: Path) -> None:
    bring_up(place, scripts)
    engine = open_engine(place)
    with engine.begin() as conn:
        conn.exec_driver_sql("INSERT INTO one (id) VALUES (7)")
    engine.dispose()
    add(scripts)
    bring_up(place, scripts)
    engine = open_engine(place)
    with engine.connect() as conn:
        assert conn.exec_driver_sql("SELECT id FROM one").scalar() == 7
    engine.dispose()
    assert tables(place) == {"one", "two"}


def test_a_migration_that_fails_leaves_the_database_as_it_was(place: Place, scripts: Path) -> None:
    bring_up(place, scripts)
    add(scripts, BROKEN)
    with pytest.raises(Exception, match="already exists"):
        bring_up(place, scripts)
    assert tables(place) == {"one"}
    add(scripts)
    bring_up(place, scripts)
    assert tables(place) == {"one", "two"}


def test_a_database_of_a_newer_version_is_refused_in_plain_words(place: Place, scripts: Path) -> None:
    add(scripts)
    bring_up(place, scripts)
    (scripts / "versions" / "0002_second.py").unlink()
    with pytest.raises(HoplineError, match="newer than this version") as caught:
        bring_up(place, scripts)
    assert caught.value.reason == "failed_precondition"
    assert "0002" in caught.value.message
    assert tables(place) == {"one", "two"}


def test_processes_that_start_together_migrate_once(place: Place, scripts: Path) -> None:
    add(scripts)
    code = (
        "import sys; from pathlib import Path; from hopline_store import migrate, open_engine;"
        f"sys.stdin.readline(); migrate(open_engine({written(place)}), Path({str(scripts)!r}))"
    )
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stderr=pipe, text=True) for _ in range(2)]
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda each=each: results.append((each.communicate("go\n"), each.returncode)))
        for each in processes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [code for _, code in results] == [0, 0], results
    assert tables(place) == {"one", "two"}


def test_a_database_that_is_up_to_date_needs_no_alembic(place: Place, scripts: Path) -> None:
    bring_up(place, scripts)
    code = (
        "import sys; from pathlib import Path; from hopline_store import open_database;"
        f"open_database({written(place)}); import hopline_store.migrations as m;"
        f"m.migrate(__import__('hopline_store').open_engine({written(place)}), Path({str(scripts)!r}));"
        "print('alembic' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


@pytest.fixture
def package(tmp_path: Path, scripts: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    scripts.rename(tmp_path / "migrations_of_a_test")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "migrations_of_a_test"


def count(conn: Connection) -> Any:
    return conn.exec_driver_sql("SELECT count(*) FROM one").scalar()


async def test_opening_a_database_migrates_it_by_the_package_name(tmp_path: Path, package: str) -> None:
    for url in (tmp_path / "store.db", "sqlite://"):
        opened = open_database(url, migrations="migrations_of_a_test")
        count = await opened.reader.run(
            lambda conn: conn.exec_driver_sql("SELECT count(*) FROM one").scalar()
        )
        assert count == 0
        await opened.close()


def test_a_package_without_scripts_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no package"):
        migrate(open_engine("sqlite://"), "no_such_package_anywhere")
    with pytest.raises(ValueError, match="newest revisions"):
        migrate(open_engine("sqlite://"), tmp_path)


def test_two_newest_revisions_are_a_mistake(tmp_path: Path, scripts: Path) -> None:
    add(scripts)
    (scripts / "versions" / "0003.py").write_text(script("0003", "0001", "pass"))
    with pytest.raises(ValueError, match="2 newest revisions"):
        bring_up(tmp_path / "store.db", scripts)


def test_a_damaged_file_is_unavailable_when_it_is_opened(tmp_path: Path, package: str) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(HoplineError, match="not a database") as caught:
        open_database(path, migrations=package)
    assert caught.value.reason == "unavailable"


PARENT = script(
    "0001",
    None,
    "op.execute('CREATE TABLE parents (id INTEGER PRIMARY KEY, name TEXT)');"
    " op.execute('CREATE TABLE children (id INTEGER PRIMARY KEY,"
    " parent INTEGER NOT NULL REFERENCES parents ON DELETE CASCADE)');"
    " op.execute('INSERT INTO parents VALUES (1, NULL)'); op.execute('INSERT INTO children VALUES (10, 1)')",
)


async def test_copying_a_table_keeps_the_rows_that_refer_to_it(tmp_path: Path, scripts: Path) -> None:
    (scripts / "versions" / "0001_first.py").write_text(PARENT)
    copy = (
        "from sqlalchemy import Text\n"
        "            with op.batch_alter_table('parents', recreate='always') as table:\n"
        "                table.alter_column('name', type_=Text(), nullable=True)"
    )
    path = tmp_path / "store.db"
    bring_up(path, scripts)
    add(scripts, script("0002", "0001", copy))
    bring_up(path, scripts)
    opened = open_database(path)
    kept = await opened.reader.run(lambda conn: conn.exec_driver_sql("SELECT id FROM children").scalar())
    assert kept == 10
    with pytest.raises(IntegrityError):
        await opened.writer.run(lambda conn: conn.exec_driver_sql("INSERT INTO children VALUES (11, 2)"))
    await opened.close()


def test_a_migration_that_leaves_dangling_references_is_undone(tmp_path: Path, scripts: Path) -> None:
    (scripts / "versions" / "0001_first.py").write_text(PARENT)
    path = tmp_path / "store.db"
    bring_up(path, scripts)
    add(scripts, script("0002", "0001", "op.execute('DELETE FROM parents')"))
    with pytest.raises(RuntimeError, match="refer to nothing"):
        bring_up(path, scripts)
    engine = open_engine(path)
    with engine.connect() as conn:
        assert conn.exec_driver_sql("SELECT count(*) FROM parents").scalar() == 1
    engine.dispose()
