"""`hopline db …`, `hopline export`, `hopline import`: what a mesh keeps, taken along and put back."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import stat
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hopline_store import open_engine
from hopline_store.keeping.archive import Archive
from hopline_store.migrations import migrate, revision_of
from hopline_store.records import installed

from tests.cli.conftest import Run
from tests.support import postgres

# How an archive of each kind is made.
KINDS = {"sqlite": ("db", "backup"), "rows": ("export",)}


@pytest.fixture
def kept(hopline: Run, run: Run, tmp_path: Path) -> Path:
    """A data directory with a history of its own, on which no mesh runs."""
    sender = hopline("agent", "create", f"agent-{uuid.uuid4().hex[:8]}").json
    for number in range(3):
        hopline("send", sender["slug"], f"message {number} \u0001 \u2028 \U0001f600")
    hopline("policy", "set", "sent_per_day=1234")
    file, data = tmp_path / "first.zip", tmp_path / "kept"
    assert hopline("db", "backup", str(file)).status == 0
    assert run("db", "restore", str(file), "--data", str(data)).status == 0
    file.unlink()
    return data


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an empty PostgreSQL, which the command line works on."""
    with postgres.database() as url:
        monkeypatch.setenv("HOPLINE_DATABASE_URL", url)
        yield url


def entries(archive: Path) -> dict[str, str]:
    """Return the sums of what is in an archive."""
    with zipfile.ZipFile(archive) as file:
        found: dict[str, str] = json.loads(file.read("manifest.json"))["entries"]
    return found


def contents(archive: Path) -> dict[str, list[str]]:
    """Return the tables of an archive; the order of their rows and columns says nothing."""
    found = {}
    with zipfile.ZipFile(archive) as file:
        for name in entries(archive):
            if name.endswith(".jsonl"):
                columns, *rows = [json.loads(line) for line in file.read(name).splitlines()]
                names = [each for each, _ in columns]
                named = [dict(zip(names, row, strict=True)) for row in rows]
                found[name] = sorted(json.dumps(row, sort_keys=True) for row in named)
    return found


def change(archive: Path, name: str, to: Callable[[bytes], bytes]) -> None:
    """Write an archive again with another content of one entry."""
    with zipfile.ZipFile(archive) as file:
        found = {each: file.read(each) for each in file.namelist()}
    found[name] = to(found[name])
    with zipfile.ZipFile(archive, "w") as file:
        for each, content in found.items():
            file.writestr(each, content)


def rows(data: Path, query: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(data / "relay.db")) as connection:
        found = connection.execute(query).fetchall()
        connection.commit()
    return found


# Backup and restore


def test_a_backup_of_a_running_mesh_has_all_that_was_answered(hopline: Run, run: Run, tmp_path: Path) -> None:
    agent = hopline("agent", "create", f"agent-{uuid.uuid4().hex[:8]}").json
    sent = {hopline("send", agent["slug"], f"text {number}").json["message_id"] for number in range(5)}
    file, data = tmp_path / "mesh.zip", tmp_path / "back"
    said = hopline("db", "backup", str(file)).json
    assert said["kind"] == "sqlite"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run("db", "check", "--file", str(file)).status == 0
    back = run("db", "restore", str(file), "--data", str(data), "--json").json
    assert "admin.token" in back["files"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in data.iterdir())
    assert sent <= {row[0] for row in rows(data, "SELECT id FROM messages")}
    assert run("db", "check", "--data", str(data)).status == 0


def test_what_is_there_is_never_written_over(run: Run, kept: Path, tmp_path: Path) -> None:
    file = tmp_path / "mesh.zip"
    assert run("db", "backup", str(file), "--data", str(kept)).status == 0
    before = file.read_bytes()
    again = run("db", "backup", str(file), "--data", str(kept), "--json")
    assert "exists already" in again.error["message"]
    assert file.read_bytes() == before
    back = run("db", "restore", str(file), "--data", str(kept), "--json")
    assert "is there already" in back.error["message"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "mesh.zip"]


def test_a_mesh_that_runs_keeps_restores_and_migrations_out(
    hopline: Run, mesh_data: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mesh.zip"
    assert hopline("db", "backup", str(file)).status == 0
    assert "is there already" in hopline("db", "restore", str(file)).error["message"]
    assert "already running" in hopline("db", "upgrade").error["message"]


def test_where_no_mesh_has_run_there_is_nothing_to_back_up(run: Run, tmp_path: Path) -> None:
    for words in (("db", "backup"), ("export",)):
        said = run(*words, str(tmp_path / "a.zip"), "--data", str(tmp_path / "none"), "--json")
        assert "there is no" in said.error["message"]
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_cannot_be_written_is_named(run: Run, kept: Path, tmp_path: Path) -> None:
    target = tmp_path / "no" / "such" / "folder.zip"
    said = run("db", "backup", str(target), "--data", str(kept), "--json")
    assert str(target) in said.error["message"]


# Damage


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_archive_is_not_put_back(run: Run, kept: Path, tmp_path: Path, kind: str) -> None:
    file, data = tmp_path / "mesh.zip", tmp_path / "back"
    assert (
        run(*(("db", "backup") if kind == "sqlite" else ("export",)), str(file), "--data", str(kept)).status
        == 0
    )
    name = next(each for each in entries(file) if each.startswith("stores/registry"))
    change(file, name, lambda content: content[:-1] + bytes([content[-1] ^ 1]))
    said = run("db", "restore", str(file), "--data", str(data), "--json")
    assert f"damaged at {name}" in said.error["message"]
    assert not list(data.glob("*.db"))
    assert "damaged" in run("db", "check", "--file", str(file), "--json").error["message"]


def test_an_archive_cut_short_and_a_foreign_file_are_told(run: Run, kept: Path, tmp_path: Path) -> None:
    file = tmp_path / "mesh.zip"
    assert run("db", "backup", str(file), "--data", str(kept)).status == 0
    whole = file.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"not a zip at all"):
        file.write_bytes(content)
        said = run("db", "restore", str(file), "--data", str(tmp_path / "back"), "--json")
        assert "is not an archive of Hopline" in said.error["message"]
    said = run("db", "restore", str(tmp_path / "none.zip"), "--data", str(tmp_path / "back"), "--json")
    assert "cannot be read" in said.error["message"]


def test_no_name_in_an_archive_leads_out_of_the_folder(run: Run, kept: Path, tmp_path: Path) -> None:
    file = tmp_path / "mesh.zip"
    assert run("db", "backup", str(file), "--data", str(kept)).status == 0

    def lead_out(manifest: bytes) -> bytes:
        return manifest.replace(b"files/console.key", b"files/../../evil")

    change(file, "manifest.json", lead_out)
    said = run("db", "restore", str(file), "--data", str(tmp_path / "deep" / "back"), "--json")
    assert "is not an archive of Hopline" in said.error["message"]
    assert not (tmp_path / "evil").exists()


def test_an_archive_of_a_newer_version_is_refused(run: Run, kept: Path, tmp_path: Path) -> None:
    file = tmp_path / "mesh.zip"
    assert run("export", str(file), "--data", str(kept)).status == 0
    change(file, "manifest.json", lambda text: text.replace(b'"revision": "0019"', b'"revision": "9999"'))
    change(file, "manifest.json", lambda text: text.replace(b'"revision":"0019"', b'"revision":"9999"'))
    said = run("db", "restore", str(file), "--data", str(tmp_path / "back"), "--json")
    assert "newer than this version" in said.error["message"]
    assert not list((tmp_path / "back").glob("*.db"))


# Rows


def test_an_export_is_the_same_wherever_it_is_taken_in(
    run: Run, kept: Path, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (tmp_path / f"{number}.zip" for number in range(3))
    monkeypatch.delenv("HOPLINE_DATABASE_URL")
    said = run("export", str(first), "--data", str(kept), "--json").json
    assert said["rows"] > 50
    assert run("import", str(first), "--data", str(tmp_path / "back")).status == 0
    assert run("export", str(second), "--data", str(tmp_path / "back")).status == 0
    assert contents(second) == contents(first)
    monkeypatch.setenv("HOPLINE_DATABASE_URL", database)
    assert run("import", str(first), "--data", str(tmp_path / "keys")).status == 0
    assert run("db", "check", "--data", str(tmp_path / "keys")).status == 0
    assert (tmp_path / "keys" / "admin.token").read_text() == (kept / "admin.token").read_text()
    assert run("db", "backup", str(third), "--data", str(tmp_path / "keys"), "--json").json["kind"] == "rows"
    assert contents(third) == contents(first)
    assert "has a mesh in it already" in run("import", str(first), "--json").error["message"]


def _first_three_columns(lines: bytes) -> bytes:
    return b"".join(json.dumps(json.loads(line)[:3]).encode() + b"\n" for line in lines.splitlines())


def test_rows_of_an_older_version_are_brought_to_this_one(run: Run, kept: Path, tmp_path: Path) -> None:
    file, data = tmp_path / "mesh.zip", tmp_path / "back"
    assert run("export", str(file), "--data", str(kept)).status == 0
    # As the version wrote it whose newest revision that was: of its tables with rows one has grown since.
    change(file, "manifest.json", lambda text: text.replace(b'"0019"', b'"0015"'))
    grown = "stores/relay/instances.jsonl"
    with zipfile.ZipFile(file) as archive:
        content = archive.read(grown)
    fewer = _first_three_columns(content)
    was, now = (hashlib.sha256(each).hexdigest().encode() for each in (content, fewer))
    change(file, grown, lambda _: fewer)
    change(file, "manifest.json", lambda text: text.replace(was, now))
    assert run("import", str(file), "--data", str(data)).status == 0
    assert run("db", "check", "--data", str(data)).status == 0
    count = "SELECT count(*) FROM messages"
    assert rows(data, count) == rows(kept, count)


def test_a_database_of_an_older_version_is_brought_up_before_it_is_copied(
    run: Run, kept: Path, tmp_path: Path
) -> None:
    (kept / "relay.db").unlink()
    engine = open_engine(kept / "relay.db", "relay")
    migrate(engine, "hopline_relay.migrations", upto="0015")
    engine.dispose()
    for words in KINDS.values():
        said = run(*words, str(tmp_path / "old.zip"), "--data", str(kept), "--json")
        assert "run `hopline db upgrade` first" in said.error["message"]


def test_files_of_sqlite_do_not_go_into_postgresql(
    run: Run, kept: Path, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mesh.zip"
    monkeypatch.delenv("HOPLINE_DATABASE_URL")
    assert run("db", "backup", str(file), "--data", str(kept)).status == 0
    assert "hopline db restore" in run("import", str(file), "--data", str(kept), "--json").error["message"]
    monkeypatch.setenv("HOPLINE_DATABASE_URL", database)
    assert "SQLite's files" in run("db", "restore", str(file), "--json").error["message"]


def test_an_import_that_fails_leaves_nothing_and_can_be_tried_again(
    run: Run, kept: Path, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mesh.zip"
    monkeypatch.delenv("HOPLINE_DATABASE_URL")
    assert run("export", str(file), "--data", str(kept)).status == 0
    monkeypatch.setenv("HOPLINE_DATABASE_URL", database)
    good = file.read_bytes()
    with monkeypatch.context() as broken:
        broken.setattr(Archive, "verify", lambda _: 0)
        change(file, "stores/registry/agents.jsonl", lambda text: text + b'{"cut')
        said = run("import", str(file), "--data", str(tmp_path / "keys"), "--json")
        assert "stores/registry/agents.jsonl" in said.error["message"]
    file.write_bytes(good)
    assert run("import", str(file), "--data", str(tmp_path / "keys")).status == 0


# Check and upgrade


def test_what_contradicts_itself_is_found(run: Run, kept: Path) -> None:
    rows(kept, "DELETE FROM messages WHERE seq = 2")
    rows(kept, "DELETE FROM messages WHERE id = (SELECT max(id) FROM messages)")
    rows(kept, "DELETE FROM audit_events WHERE seq = 2")
    said = run("db", "check", "--data", str(kept), "--json").error
    found = " ".join(said["details"]["problems"])
    for what in ("deliveries without their message", "count other messages", "audit log has gaps"):
        assert what in found


def test_a_damaged_file_and_a_missing_one_are_found(run: Run, kept: Path) -> None:
    (kept / "quota.db").unlink()
    content = bytearray((kept / "registry.db").read_bytes())
    content[4096:12288] = b"\xff" * 8192
    (kept / "registry.db").write_bytes(content)
    found = run("db", "check", "--data", str(kept), "--json").error["details"]["problems"]
    assert [each.partition(":")[0] for each in found if "relay" not in each]
    assert any(each.startswith("quota: there is no") for each in found)
    assert any(each.startswith("registry: ") for each in found)


def test_an_older_database_is_told_and_brought_up(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "old"
    data.mkdir(mode=0o700)
    for each in installed():
        engine = open_engine(data / each.file, each.name)
        migrate(engine, each.migrations, upto="0015" if each.name == "relay" else "")
        engine.dispose()
    found = run("db", "check", "--data", str(data), "--json").error["details"]["problems"]
    assert found == [
        "relay: it is at revision 0015, this version needs 0019: run `hopline db upgrade`, or the version"
        " that goes with it"
    ]
    steps = run("db", "upgrade", "--data", str(data), "--json").json["stores"]
    assert steps[-1] == {"store": "relay", "before": "0015", "after": "0019"}
    assert "nothing to do" in run("db", "upgrade", "--data", str(data)).out
    assert run("db", "check", "--data", str(data)).status == 0


def test_an_empty_postgresql_is_brought_up_and_checked(run: Run, database: str, tmp_path: Path) -> None:
    assert "no tables" in run("db", "check", "--json").error["message"]
    assert run("db", "upgrade", "--json").json["stores"][0]["before"] is None
    assert run("db", "check").status == 0
    for each in installed():
        engine = open_engine(database, each.name)
        assert revision_of(engine) is not None
        engine.dispose()


def test_no_password_is_said(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOPLINE_DATABASE_URL", "postgresql://me:sesame@127.0.0.1:1/hopline?connect_timeout=1")
    for words in (("check",), ("upgrade",), ("backup", str(tmp_path / "a.zip"))):
        said = run("db", *words)
        assert said.status == 1
        assert "sesame" not in said.out + said.err
        assert "Traceback" not in said.err
