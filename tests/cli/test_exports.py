"""`hopline audit export`, `hopline threads export`: everything of a time, line by line."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from hopline_cli.times import moment_of
from typer import BadParameter

from tests.cli.conftest import Run


@pytest.fixture
def agent(hopline: Run) -> str:
    """A fresh agent."""
    return str(hopline("agent", "create", f"agent-{uuid.uuid4().hex[:8]}").json["slug"])


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_audit_log_of_an_agent_is_exported_oldest_first(plain: Run, hopline: Run, agent: str) -> None:
    for number in range(3):
        hopline("send", agent, f"message {number}")
    exported = lines(plain("audit", "export", "--agent", agent, "--since", "1h").out)
    assert exported == hopline("audit", "--agent", agent, "--limit", "0").json["events"]
    assert [each["action"] for each in exported][-3:] == ["message.sent"] * 3
    sent = lines(plain("audit", "export", "--agent", agent, "--action", "message.").out)
    upto = sent[1]["at"]
    assert lines(plain("audit", "export", "--agent", agent, "--until", upto).out) == exported[:-2]
    assert lines(plain("audit", "export", "--agent", agent, "--since", upto).out)[-1] == exported[-1]
    thread = lines(plain("audit", "export", "--thread", sent[0]["thread_id"]).out)
    assert thread == hopline("audit", "--thread", sent[0]["thread_id"]).json["events"] == sent[:1]


def test_an_export_is_gone_on_with_in_its_file(hopline: Run, agent: str, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    hopline("send", agent, "one")
    words = ("audit", "export", "--agent", agent, "--output", str(file))
    first = hopline(*words).json
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = lines(file.read_text())
    assert len(before) == first["written"]
    hopline("send", agent, "two")
    assert hopline(*words, "--after", str(before[-1]["seq"])).json["written"] == 1
    assert lines(file.read_text()) == hopline("audit", "--agent", agent, "--limit", "0").json["events"]


def test_the_messages_of_an_agent_are_exported_thread_by_thread(
    plain: Run, hopline: Run, agent: str, tmp_path: Path
) -> None:
    sent = [hopline("send", agent, f"text {number}").json["thread_id"] for number in range(3)]
    exported = lines(plain("threads", "export", "--agent", agent).out)
    assert [each["thread_id"] for each in exported] == sent
    assert [each["body"] for each in exported] == ["text 0", "text 1", "text 2"]
    assert exported[0] == hopline("thread", sent[0]).json["messages"][0]
    since = exported[1]["created_at"]
    later = hopline("threads", "export", "--agent", agent, "--since", since, "--output", str(tmp_path / "f"))
    assert later.json["written"] == 2
    assert lines(plain("threads", "export", "--agent", agent, "--until", since).out) == exported[:1]
    assert [each["id"] for each in hopline("threads", "--agent", agent).json["threads"]] == sent[::-1]


def test_what_may_not_be_seen_is_not_exported(plain: Run) -> None:
    for what in ("audit", "threads"):
        said = plain(what, "export", "--agent", "nobody-at-all")
        assert said.status == 1
        assert said.out == ""
        assert "there is no agent 'nobody-at-all'" in said.err


def test_a_file_that_cannot_be_written_is_usage(plain: Run, tmp_path: Path) -> None:
    said = plain("audit", "export", "--output", str(tmp_path / "none" / "f"))
    assert said.status == 2
    assert "--output" in said.err


@pytest.mark.parametrize("text", ["yesterday", "-1", "5", "5w", "2027-01-31T00:00:00", "1e9"])
def test_a_time_that_is_none_is_usage_and_names_the_option(text: str) -> None:
    with pytest.raises(BadParameter) as caught:
        moment_of(text, "--since")
    assert caught.value.param_hint == "--since"


def test_times_are_moments_or_how_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_000_000.0)
    assert moment_of("", "--since") is None
    assert moment_of("90s", "--since") == 999_910.0
    assert moment_of("1d", "--since") == 913_600.0
    assert moment_of("999999999d", "--since") == 0.0
    assert moment_of("1970-01-01T01:00:00+01:00", "--since") == 0.0
    assert moment_of("1970-01-01T01:00:00.250Z", "--since") == pytest.approx(3600.2495)


@pytest.mark.parametrize("words", [("audit", "export"), ("audit",), ("policy", "show", "--json")])
def test_output_without_room_is_said_on_one_line(mesh_data: Path, words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "hopline_cli", *words, "--data", str(mesh_data)]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert "not whole: No space left on device" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
