"""`hopline thread`, `threads` and `inbox`: who has read what, and how stale a message is."""

from __future__ import annotations

import uuid

from tests.cli.conftest import Run


def test_a_thread_says_how_far_each_recipient_has_read(hopline: Run, plain: Run) -> None:
    agent = hopline("agent", "create", f"reader-{uuid.uuid4().hex[:8]}").json
    sent = hopline("send", agent["slug"], "read this").json
    mark = {"agent": agent["name"], "agent_id": agent["id"], "consumed_through": 0}
    assert hopline("thread", sent["thread_id"]).json["read"] == [mark]
    listed = hopline("threads", "--agent", agent["slug"]).json["threads"]
    assert [each["read"] for each in listed] == [[mark]]
    assert f"{agent['name']} has read nothing" in plain("thread", sent["thread_id"]).out


def test_an_inbox_says_how_old_a_message_is_and_how_many_newer_ones_follow(hopline: Run, plain: Run) -> None:
    agent = hopline("agent", "create", f"reader-{uuid.uuid4().hex[:8]}").json
    for text in ("stop", "go"):
        hopline("send", agent["slug"], text)
    messages = hopline("inbox", "--agent", agent["slug"]).json["messages"]
    assert [each["newer_from_sender"] for each in messages] == [1, 0]
    assert all(each["age_seconds"] >= 0 for each in messages)
    assert "NEWER" in plain("inbox", "--agent", agent["slug"]).out
