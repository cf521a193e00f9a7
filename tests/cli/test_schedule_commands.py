"""`hopline schedule`, `webhook` and `session`: what they print, and how they end."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def agent(hopline: Run) -> str:
    """The slug of an agent of one's own."""
    return str(hopline("agent", "create", f"agent-{uuid.uuid4().hex[:8]}").json["slug"])


def test_a_schedule_is_set_listed_paused_resumed_and_removed(hopline: Run, plain: Run, agent: str) -> None:
    words = ("schedule", "add", agent, "--cron", "0 9 * * MON", "--timezone", "Europe/Berlin", "look around")
    made = hopline(*words).json
    assert (made["state"], made["timezone"], made["fired"]) == ("active", "Europe/Berlin", 0)
    assert made["next_at"].endswith(("07:00:00.000Z", "08:00:00.000Z"))
    page = hopline("schedule", "list", "--agent", agent).json
    assert [each["id"] for each in page["schedules"]] == [made["id"]]
    assert "look around" in plain("schedule", "show", made["id"]).out
    assert hopline("schedule", "pause", made["id"]).json["next_at"] is None
    assert hopline("schedule", "resume", made["id"]).json["state"] == "active"
    assert hopline("schedule", "remove", made["id"]).json == {"id": made["id"], "removed": True}
    gone = hopline("schedule", "show", made["id"])
    assert (gone.status, gone.error["code"]) == (1, "not_found")


def test_the_same_request_sets_one_schedule(hopline: Run, agent: str) -> None:
    words = ("schedule", "add", agent, "--cron", "0 9 * * *", "--request-id", str(uuid.uuid4()), "look")
    assert hopline(*words).json["id"] == hopline(*words).json["id"]


def test_what_is_wrong_with_a_schedule_is_said(hopline: Run, agent: str) -> None:
    for option, value in (("--cron", "soon"), ("--timezone", "Mars/Olympus")):
        given = {"--cron": "0 9 * * *", option: value}
        words = [word for pair in given.items() for word in pair]
        refused = hopline("schedule", "add", agent, *words, "look")
        assert (refused.status, refused.error["code"]) == (1, "invalid_argument")
    assert hopline("schedule", "add", agent, "look").status == 2, "without --cron"


def test_a_webhooks_secret_is_shown_once_or_written_for_its_owner_alone(
    hopline: Run, plain: Run, agent: str, tmp_path: Path
) -> None:
    made = hopline("webhook", "add", agent, "orders").json
    assert made["secret"].startswith("whs_")
    assert made["url"].endswith(f"/{agent}/v1/webhooks/orders")
    (listed,) = hopline("webhook", "list", "--agent", agent).json["webhooks"]
    assert "secret" not in listed
    file = tmp_path / "secret"
    said = plain("webhook", "rotate", agent, "orders", "--secret-file", str(file)).out
    assert file.stat().st_mode & 0o077 == 0
    assert file.read_text().strip() not in said
    assert "the old secret is valid until" in said
    assert hopline("webhook", "rotate", agent, "orders", "--at-once").json["old_until"] is None
    assert hopline("webhook", "remove", agent, "orders").json["removed"] is True
    gone = hopline("webhook", "rotate", agent, "orders")
    assert (gone.status, gone.error["code"]) == (1, "not_found")


def test_a_session_names_who_opened_it(hopline: Run, plain: Run, agent: str) -> None:
    turn = hopline("chat", agent, "hello", "--wait", "0").json
    found = hopline("session", turn["session_id"]).json
    assert found["opened_by"]["kind"] == "user"
    assert (found["opened"], found["opened_count"]) == ([], 0)
    assert "opened_by: user admin" in plain("session", turn["session_id"]).out
    assert hopline("session", "ses_never").error["code"] == "not_found"
