"""`hopline doctor` without a mesh: what a folder, its databases and this machine show."""

from __future__ import annotations

import json
import shutil
import socket
import sqlite3
import time
from collections import namedtuple
from contextlib import closing
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from hopline_cli.app import run_app
from hopline_cli.doctor import place
from hopline_cli.doctor.inside import of_clock, of_readiness

Usage = namedtuple("Usage", ["total", "used", "free"])


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory as a mesh leaves it, on a machine where its ports are free."""
    for name in ("HOPLINE_URL", "HOPLINE_DATA", "HOPLINE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(place, "_SERVICES", dict.fromkeys(("gateway", "registry", "relay", "quota"), 1))
    found = tmp_path / "data"
    found.mkdir(mode=0o700)
    token = found / "admin.token"
    token.touch(mode=0o600)
    token.write_text("hpl_u_nonsense")
    return found


def look(data: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """Run it; returns its status and what is wrong, by check."""
    status = run_app(["doctor", "--data", str(data), "--json", "--quiet"])
    told = json.loads(capsys.readouterr().out)
    assert told["healthy"] is (status == 0)
    wrong: dict[str, list[dict[str, str]]] = {}
    for finding in told["findings"]:
        wrong.setdefault(finding["check"], []).append(finding)
    return status, wrong


def database(data: Path, name: str, revision: str) -> None:
    with closing(sqlite3.connect(data / f"{name}.db")) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES (?)", (revision,))
        connection.commit()
    (data / f"{name}.db").chmod(0o600)


def test_a_mesh_that_is_down_is_wrong_and_how_to_start_it_is_said(data: Path, capsys: Any) -> None:
    status, wrong = look(data, capsys)
    assert status == 1
    assert list(wrong) == ["mesh"]
    assert wrong["mesh"][0]["todo"].startswith(f"hopline up --data {data}")


def test_a_folder_that_is_not_there_is_all_that_is_said(data: Path, capsys: Any) -> None:
    status, wrong = look(data / "nowhere", capsys)
    assert (status, list(wrong)) == (1, ["data directory"])


def test_addresses_that_a_dead_mesh_has_left_are_told_from_a_mesh(data: Path, capsys: Any) -> None:
    (data / "lock").touch(mode=0o600)
    (data / "endpoints.json").write_text(json.dumps({"relay": "127.0.0.1:1", "pid": 1}))
    _, wrong = look(data, capsys)
    [finding] = wrong["mesh"]
    assert "endpoints.json says where a mesh listens, and none runs" in finding["text"]
    assert "start it again" in finding["todo"]


def test_a_port_that_another_process_has_is_named(
    data: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setattr(place, "_SERVICES", {"relay": port})
        _, wrong = look(data, capsys)
    assert wrong["ports"][0]["text"] == f"port {port} of the relay is taken by another process"


def test_credentials_that_others_can_read_are_named_each(
    data: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = tmp_path / "me.token"
    given.write_text("hpl_a_nonsense")
    monkeypatch.setenv("HOPLINE_TOKEN_FILE", str(given))
    for file in (given, data / "admin.token"):
        file.chmod(0o644)
    data.chmod(0o755)
    _, wrong = look(data, capsys)
    assert [finding["todo"].split(";")[0] for finding in wrong["files"]] == [
        f"chmod 600 {data / 'admin.token'}",
        f"chmod 600 {given}",
    ]
    assert wrong["data directory"][0]["todo"] == f"chmod go-rwx {data}"


@pytest.mark.parametrize(("free", "grade"), [(10 * 2**20, "problem"), (500 * 2**20, "note")])
def test_a_disk_that_is_full_or_nearly_so_is_told(
    data: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, free: int, grade: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(2**40, 2**40 - free, free))
    _, wrong = look(data, capsys)
    assert wrong["disk"][0]["grade"] == grade


def test_a_database_of_another_version_is_told_by_its_age(data: Path, capsys: Any) -> None:
    database(data, "relay", "0001")
    database(data, "registry", "9999")
    database(data, "quota", place._revisions("quota")[-1])
    _, wrong = look(data, capsys)
    newer, older = (finding["text"] for finding in wrong["schema"])
    assert "was made by a newer Hopline (revision 9999)" in newer
    assert "is at revision 0001, this version at" in older


def test_a_database_that_cannot_be_read_is_told(data: Path, capsys: Any) -> None:
    (data / "relay.db").write_bytes(b"no database at all, whatever it says of itself")
    (data / "relay.db").chmod(0o600)
    _, wrong = look(data, capsys)
    assert "cannot be read" in wrong["schema"][0]["text"]


@pytest.mark.parametrize(("ahead", "count"), [(0, 0), (3600, 1), (-3600, 1)])
def test_a_clock_that_is_an_hour_from_this_ones_is_told(ahead: int, count: int) -> None:
    assert len(list(of_clock(formatdate(time.time() + ahead, usegmt=True)))) == count


def test_no_date_is_no_clock() -> None:
    assert not list(of_clock(""))


def test_what_readiness_says_is_told_line_by_line() -> None:
    said = "not ready\nrelay: the disk of the store is full\nquota: the registry is not heard of\n"
    found = list(of_readiness(503, said, "http://127.0.0.1:1"))
    assert [finding.text for finding in found] == said.splitlines()[1:]
    assert {finding.grade for finding in found} == {"problem"}
    [gateway] = of_readiness(503, "not ready: the relay cannot be reached", "http://127.0.0.1:1")
    assert gateway.text == "the relay cannot be reached"
    assert next(of_readiness(0, "refused", "http://x")).grade == "problem"
    assert next(of_readiness(200, "ready", "http://x")).grade == "ok"


def test_a_person_reads_what_is_wrong_last_and_what_to_do(data: Path, capsys: Any) -> None:
    assert run_app(["doctor", "--data", str(data)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok ")
    assert lines[-3].startswith("wrong  mesh:")
    assert lines[-2].strip().startswith("-> hopline up")
    assert lines[-1] == "1 wrong"
