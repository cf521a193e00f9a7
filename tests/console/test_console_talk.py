"""Chat, the playground, sessions, questions to owners, dead letters and held answers in the console."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
from hopline.registry.v1 import agent_pb2, identity_pb2
from hopline.relay.v1 import dead_letter_pb2
from hopline_client import Turn

from tests.support.hangs import owners_question
from tests.support.mesh_process import Space, shout, until
from tests.support.pages import Answer, Visitor, visitor


@pytest.fixture
async def admin(space: Space) -> AsyncIterator[Visitor]:
    async with visitor(space) as found:
        yield found


def _hidden(page: Answer, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page.html)
    assert found is not None, name
    return found[1]


async def _prompt(admin: Visitor, path: str, page: Answer, text: str) -> Answer:
    fields = {name: _hidden(page, name) for name in ("agent", "session", "request_id")}
    return await admin.post(path, {**fields, "text": text})


async def test_a_chat_shows_the_answer_and_goes_on_in_its_session(admin: Visitor, space: Space) -> None:
    (lead,) = await space.agents("lead")
    await space.work(lead, shout)
    assert "lead" in (await admin.get("/chat")).text
    page = await admin.get(f"/chat?agent={lead.id}")
    sent = await _prompt(admin, "/chat", page, "hello <i>you</i>")
    assert sent.status == 303

    async def answered() -> Answer | None:
        found = await admin.get(sent.location)
        return found if "HELLO" in found.text else None

    shown = await until(answered, "the answer")
    assert "<i>you</i>" not in shown.html
    assert "HELLO <I>YOU</I>" in shown.text
    again = await _prompt(admin, "/chat", shown, "more")
    assert again.location == sent.location
    listed = await admin.get(f"/playground?agent={lead.id}")
    assert listed.html.count("/sessions/ses_") == 1


async def test_the_same_form_sent_twice_prompts_once(admin: Visitor, space: Space) -> None:
    (lead,) = await space.agents("lead")
    page = await admin.get(f"/chat?agent={lead.id}")
    first = await _prompt(admin, "/chat", page, "once")
    assert (await _prompt(admin, "/chat", page, "once")).location == first.location
    shown = await admin.get(first.location)
    assert shown.text.count("once") == 1
    assert "queued for admin" in shown.text
    ended = await admin.follow(f"/turns/{_turn_in(shown)}/cancel")
    assert "One turn was ended." in ended.text


def _turn_in(page: Answer) -> str:
    found = re.search(r"/turns/(trn_\w+)", page.html)
    assert found is not None
    return found[1]


async def test_an_empty_prompt_is_refused_and_what_was_typed_stays(admin: Visitor, space: Space) -> None:
    (lead,) = await space.agents("lead")
    page = await admin.get(f"/chat?agent={lead.id}")
    answer = await _prompt(admin, "/chat", page, "  ")
    assert answer.status == 400
    assert "say something first" in answer.text
    long = await _prompt(admin, "/chat", page, "x" * 70_000)
    assert long.status == 400
    assert "x" * 1000 in long.html


async def test_subagents_do_not_talk_with_people(admin: Visitor, space: Space) -> None:
    (lead,) = await space.agents("lead")
    request = agent_pb2.Agent(name="sub", is_subagent=True, parent_agent_id=lead.id)
    made = await space.admin.agents.CreateAgent(agent_pb2.CreateAgentRequest(agent=request))
    page = await admin.get(f"/chat?agent={made.agent.id}")
    assert "only main agents talk with people" in page.text
    assert 'name="text"' not in page.html
    fields = {"agent": made.agent.id, "session": "", "request_id": "", "text": "hi"}
    refused = await admin.post("/chat", fields)
    assert refused.status == 409


async def test_a_session_shows_whose_it_is_and_what_was_said(admin: Visitor, space: Space) -> None:
    lead, peer = await space.agents("lead", "peer")

    async def ask(turn: Turn) -> str:
        return str((await turn.mesh.ask("peer", "look at it", wait_seconds=50)).text)

    await space.work(lead, ask)
    await space.work(peer, shout)
    begun = await space.mesh.cli("chat", "lead", "go", "--workspace", space.name)
    page = await admin.get(f"/sessions/{begun['session_id']}")
    for text in ("Channel human", "Opened by admin", "It has opened", "go", "LOOK AT IT"):
        assert text in page.text
    other = re.search(r'href="(/sessions/ses_\w+)"><bdi>', page.html)
    assert other is not None
    linked = await admin.get(other[1])
    assert "look at it" in linked.text
    assert "Opened by lead" in linked.text


async def test_a_question_is_answered_with_one_of_its_options(admin: Visitor, space: Space) -> None:
    hang = await owners_question(space)

    async def asked() -> str:
        found = re.search(r"/escalations/(esc_\w+)", (await admin.get("/escalations")).html)
        return found[1] if found else ""

    question = await until(asked, "the question")
    page = await admin.get(f"/escalations/{question}")
    assert "Deploy 1.2?" in page.text
    assert 'type="radio"' in page.html
    assert (await admin.post(f"/escalations/{question}/answer")).status == 400
    told = await admin.follow(f"/escalations/{question}/answer", {"option": "0"})
    assert "The agent has your answer." in told.text
    await hang.over()
    assert "Nobody waits" in (await admin.get("/escalations")).text
    assert "Deploy 1.2?" in (await admin.get("/escalations?all=1")).text
    late = await admin.post(f"/escalations/{question}/answer", {"option": "1"})
    assert late.status == 409


async def test_a_dead_letter_is_shown_tried_again_and_thrown_away(admin: Visitor, space: Space) -> None:
    lead, _ = await space.agents("lead", "peer")
    assert "Every message has got through." in (await admin.get("/dead")).text

    # Nobody takes it in time. What its worker fails has arrived, and is no dead letter.
    await space.policy(queue_seconds=1)
    await space.client(lead).send("peer", "do it")

    async def died() -> str:
        found = await space.admin.letters.ListDeadLetters(dead_letter_pb2.ListDeadLettersRequest())
        return found.dead_letters[0].turn_id if found.dead_letters else ""

    turn_id = await until(died, "the dead letter")
    page = await admin.get("/dead")
    assert "do it" in page.text
    assert "from lead".lower() in (await admin.get(f"/dead/{turn_id}")).text.lower()
    assert (await admin.post("/dead/retry")).status == 400
    assert "1 of 1 are queued again." in (await admin.follow("/dead/retry", {"turn": turn_id})).text
    assert (await admin.get(f"/dead/{turn_id}")).status == 404

    async def died_again() -> str:
        found = await died()
        return found if found != turn_id else ""

    again = await until(died_again, "the end of its second try")
    asked = await admin.post("/dead/purge", {"turn": again})
    assert "Throw 1 chosen letters away for good?" in asked.text
    assert re.search(rf'value="{again}" checked', asked.html)
    sure = {"turn": again, "sure": "1"}
    assert "1 of 1 were thrown away." in (await admin.follow("/dead/purge", sure)).text
    assert (await admin.get(f"/dead/{again}")).status == 404


async def test_who_may_only_look_is_offered_no_prompt(space: Space) -> None:
    (lead,) = await space.agents("lead")
    token = await space.person("vera", identity_pb2.ROLE_VIEWER)
    async with visitor(space, token) as vera:
        page = await vera.get(f"/chat?agent={lead.id}")
        assert page.status == 200
        assert 'name="text"' not in page.html
        fields = {"agent": lead.id, "session": "", "request_id": "", "text": "hi"}
        assert (await vera.post("/chat", fields)).status in {403, 404}


async def test_what_is_not_for_a_person_looks_like_nothing(admin: Visitor, space: Space) -> None:
    (lead,) = await space.agents("lead")
    begun = await space.mesh.cli("chat", "lead", "go", "--wait", "0", "--workspace", space.name)
    token = await space.person("zoe")
    async with visitor(space, token) as zoe:
        pages = {
            (await zoe.get(path)).html
            for path in (
                f"/sessions/{begun['session_id']}",
                "/sessions/ses_01m8r6qq5d3rrwyeyqtm4ajxm6",
                f"/playground?agent={lead.id}",
                "/escalations/esc_01m8r6qq5d3rrwyeyqtm4ajxm6",
                "/dead/trn_01m8r6qq5d3rrwyeyqtm4ajxm6",
            )
        }
        bodies = {re.sub(r' aria-current="page"', "", html) for html in pages}
        assert len(bodies) == 1
        assert "There is nothing here" in bodies.pop()
