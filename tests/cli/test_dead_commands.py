"""`hopline dead`: what was given up, sent again, struck off."""

from __future__ import annotations

import uuid

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def letters(hopline: Run) -> tuple[str, list[str]]:
    """Two letters to an agent that was deleted; returns its id and theirs, newest first."""
    made = hopline("agent", "create", f"gone-{uuid.uuid4().hex[:8]}").json
    for text in ("first", "second"):
        hopline("send", made["slug"], text)
    hopline("agent", "delete", made["slug"])
    found = hopline("dead", "list", "--agent", made["id"]).json
    return made["id"], [each["id"] for each in found["dead_letters"]]


def test_dead_letters_are_listed_and_shown(hopline: Run, plain: Run, letters: tuple[str, list[str]]) -> None:
    agent_id, (newest, oldest) = letters
    page = hopline("dead", "list", "--agent", agent_id, "--limit", "1").json
    assert [each["id"] for each in page["dead_letters"]] == [newest]
    rest = hopline("dead", "list", "--agent", agent_id, "--cursor", page["next_cursor"]).json
    assert [each["message"]["body"] for each in rest["dead_letters"]] == ["first"]
    shown = hopline("dead", "show", oldest).json
    assert (shown["id"], shown["error"]["code"], shown["attempts"]) == (oldest, "canceled", 0)
    assert "second" in plain("dead", "list", "--agent", agent_id).out


def test_what_a_deleted_agent_left_is_purged_and_cannot_be_retried(
    hopline: Run, letters: tuple[str, list[str]]
) -> None:
    agent_id, (newest, oldest) = letters
    refused = hopline("dead", "retry", newest)
    assert (refused.status, refused.error["code"]) == (1, "failed_precondition")
    assert hopline("dead", "purge", oldest).json == {"purged": 1}
    assert hopline("dead", "purge", "--all", "--agent", agent_id).json == {"purged": 1}
    assert hopline("dead", "list", "--agent", agent_id).json["dead_letters"] == []
    gone = hopline("dead", "show", newest)
    assert (gone.status, gone.error["code"]) == (1, "not_found")


def test_what_cannot_be_retried_keeps_no_other_letter_back(
    hopline: Run, letters: tuple[str, list[str]]
) -> None:
    """`--all` says how many stay, and why."""
    _, both = letters
    tried = hopline("dead", "retry", "--all")
    assert (tried.status, tried.json["turn_ids"]) == (0, [])
    assert tried.json["refused"] >= len(both)


def test_which_letters_are_meant_has_to_be_said(hopline: Run) -> None:
    for words in (("dead", "purge"), ("dead", "retry", "trn_1", "--all")):
        assert hopline(*words).status == 2
