"""`hopline credits` and `hopline root`: what people do when a rail holds their agents back."""

from __future__ import annotations

import uuid

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def alone(hopline: Run) -> Run:
    """Run a command line in a workspace of its own."""
    name = f"w-{uuid.uuid4()}"
    hopline("workspace", "create", name)
    return lambda *words: hopline(*words, "--workspace", name)


def test_credits_are_paid_in_shown_and_used_up(alone: Run) -> None:
    alone("agent", "create", "bob")
    assert alone("credits", "show").json == {
        "balance": "0",
        "deposited": "0",
        "charged": "0",
        "price": "off",
    }
    alone("policy", "set", "credits=0.5")
    assert alone("send", "bob", "hello").error["code"] == "credits_exhausted"
    request_id = str(uuid.uuid4())
    for _ in range(2):
        paid = alone("credits", "deposit", "0.75", "--note", "first", "--request-id", request_id).json
    assert (paid["amount"], paid["note"], paid["user"]["name"]) == ("0.75", "first", "admin")
    assert alone("send", "bob", "hello").status == 0
    refused = alone("send", "bob", "again").error
    assert (refused["code"], refused["retryable"]) == ("credits_exhausted", False)
    assert refused["details"] == {"rail": "credits", "balance": "0.25", "price": "0.5"}
    assert alone("usage", "--agent", "bob").json["credits"] == alone("credits", "show").json
    assert [each["amount"] for each in alone("credits", "history").json["deposits"]] == ["0.75"]


@pytest.mark.parametrize("amount", ["nothing", "0", "1.0000001"])
def test_what_is_no_amount_is_refused_in_one_line(alone: Run, amount: str) -> None:
    refused = alone("credits", "deposit", amount).error
    assert refused["code"] == "invalid_argument"
    assert "amount: must be " in refused["message"]


@pytest.mark.parametrize("wrong", ["credits=-1", "pair_budget=30", "refusals=often"])
def test_a_rail_that_is_set_wrong_is_told_in_words(alone: Run, wrong: str) -> None:
    refused = alone("policy", "set", wrong).error
    assert refused["code"] == "invalid_argument"
    assert f"{wrong.partition('=')[0]}: must be " in refused["message"]
    assert "regex" not in refused["message"]


def test_an_empty_webhook_is_no_way_to_remove_one(alone: Run) -> None:
    refused = alone("user", "set", "admin", "--webhook", "")
    assert (refused.status, "none to remove it" in refused.err) == (2, True)


def test_a_person_is_linked_with_whom_the_identity_provider_knows(alone: Run) -> None:
    made = alone("user", "create", "zoe", "--login", "Zoe@example.org")
    assert made.json["login"] == "zoe@example.org"
    assert alone("user", "set", "zoe", "--login", "zz@example.org").json["login"] == "zz@example.org"
    taken = alone("user", "set", "admin", "--login", "zz@example.org").error
    assert (taken["code"], "'zoe'" in taken["message"]) == ("failed_precondition", True)
    assert alone("user", "set", "zoe", "--login", "none").json["login"] is None
    nothing = alone("user", "set", "zoe")
    assert (nothing.status, "--webhook or --login" in nothing.err) == (2, True)


def test_a_root_is_shown_and_extended_by_a_turn_of_it(alone: Run) -> None:
    alone("agent", "create", "bob")
    turn = alone("chat", "bob", "go", "--wait", "0").json["turn_id"]
    shown = alone("root", "show", turn).json
    assert (shown["agent"]["name"], shown["turns"], shown["limit"]) == ("bob", 1, 200)
    assert alone("root", "extend", turn, "50").json["limit"] == 250
    assert alone("root", "extend", shown["id"], "1").json["extra_turns"] == 51
    assert alone("root", "list").json == {"roots": [], "next_cursor": None}
    assert alone("root", "show", "rot_nothing").error["code"] == "not_found"


def test_usage_shows_what_pairs_roots_and_refusals_have_used(alone: Run) -> None:
    alone("agent", "create", "bob")
    found = alone("usage", "--agent", "bob").json
    assert (found["pairs"], found["chain"], found["root_id"], found["credits"]) == ([], [], None, None)
    assert found["refusals"] == {"used": 0, "frees_at": None}
    assert (found["workspace_sent_today"], found["workspace_sent_limit"]) == (0, 5000)
