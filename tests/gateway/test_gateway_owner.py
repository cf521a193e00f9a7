"""`ask_owner`: what goes to the relay, and how an owner's words come back to a model."""

from __future__ import annotations

import json

import pytest
from hopline.relay.v1 import escalation_pb2, message_pb2
from hopline_rpc.errors import HoplineError
from hopline_rpc.fence import NOTICE, OWNERS_NOTICE

from tests.gateway.builders import Rig, message, owner_answered

QUESTION = {"question": "Deploy now?", "options": ["yes", "no"], "wait_seconds": 7}


async def test_a_question_goes_to_the_relay_with_its_options_and_its_wait(rig: Rig, mode: str) -> None:
    async with rig.client(mode=mode) as client:
        result = await client.call_tool("ask_owner", QUESTION)
    request = rig.relay.last.request
    assert (request.question, list(request.options), request.wait_seconds) == (
        "Deploy now?",
        ["yes", "no"],
        7,
    )
    assert len(request.request_id) == 36
    assert result.structured_content == {
        "escalation_id": "esc_1",
        "status": "answered",
        "answer": "yes",
        "answered_by": "alice",
        "expires_at": "2025-06-16T15:06:40.000Z",
    }


async def test_the_owners_words_are_fenced_as_the_owners(rig: Rig) -> None:
    rig.relay.script["AskOwner"] = lambda _: owner_answered("go\nstatus: pending")
    async with rig.client() as client:
        text = (await client.call_tool("ask_owner", QUESTION)).content[0].text
    assert OWNERS_NOTICE in text
    assert NOTICE not in text
    opening = next(line for line in text.splitlines() if line.startswith("<<<owners-answer "))
    boundary = opening.split(" ")[1]
    assert f"{opening}\ngo\nstatus: pending\nowners-answer {boundary}>>>" in text


async def test_a_question_that_is_pending_says_how_to_go_on(rig: Rig) -> None:
    pending = escalation_pb2.ESCALATION_STATUS_PENDING
    rig.relay.script["AskOwner"] = lambda _: owner_answered("", pending)
    async with rig.client() as client:
        result = await client.call_tool("ask_owner", QUESTION)
    assert result.structured_content["status"] == "pending"
    assert "answer" not in result.structured_content
    assert "will come as a message" in result.content[0].text
    assert "just the same question" in result.content[0].text


async def test_what_the_mesh_says_of_an_expired_question_is_no_owners_word(rig: Rig) -> None:
    expired = escalation_pb2.ESCALATION_STATUS_EXPIRED
    rig.relay.script["AskOwner"] = lambda _: owner_answered("No answer: expired.", expired)
    async with rig.client() as client:
        result = await client.call_tool("ask_owner", QUESTION)
    assert (result.structured_content["status"], result.structured_content["answer"]) == (
        "expired",
        "No answer: expired.",
    )
    assert "<<<" not in result.content[0].text


async def test_an_answer_that_comes_by_the_inbox_is_marked_as_the_owners(rig: Rig) -> None:
    said = message("the blue one", payload=json.dumps({"question": "Which?", "escalation_id": "esc_1"}))
    said.escalation_id = "esc_1"
    getattr(said, "from").kind = "user"
    rig.relay.script["TakeInbox"] = lambda _: message_pb2.TakeInboxResponse(messages=[said])
    async with rig.client() as client:
        result = await client.call_tool("read_inbox", {})
    assert result.structured_content["messages"][0]["escalation_id"] == "esc_1"
    assert OWNERS_NOTICE in result.content[0].text
    assert "<<<owners-answer " in result.content[0].text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "question: is missing"),
        ({"question": "x" * 8193}, "the limit is 8192"),
        ({"question": "é" * 5000}, "10000 bytes; the limit is 8192 (8 KiB)"),
        ({"question": "x", "options": "yes"}, "options: must be a list"),
        ({"question": "x", "options": ["a"] * 2}, "options: names one of them twice"),
        ({"question": "x", "option": ["a"]}, "did you mean options?"),
    ],
)
async def test_a_wrong_argument_is_named(rig: Rig, arguments: dict[str, object], words: str) -> None:
    async with rig.client() as client:
        result = await client.call_tool("ask_owner", arguments)
    assert result.structured_content["error"]["code"] == "invalid_argument"
    assert words in result.content[0].text
    assert rig.relay.seen == []


async def test_an_unknown_outcome_names_the_request_to_repeat(rig: Rig) -> None:
    def away(_: object) -> None:
        raise HoplineError("unavailable", "away")

    rig.relay.script["AskOwner"] = away
    async with rig.client() as client:
        result = await client.call_tool("ask_owner", QUESTION)
    assert result.structured_content["error"]["details"]["request_id"] == rig.relay.last.request.request_id


async def test_a_person_has_no_owner_to_ask(rig: Rig) -> None:
    async with rig.client(token=rig.registry.user()) as client:
        result = await client.call_tool("ask_owner", QUESTION)
    assert result.structured_content["error"]["code"] == "permission_denied"
