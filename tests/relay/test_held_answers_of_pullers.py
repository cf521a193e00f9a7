"""Held answers where a lead pulls its inbox, is given a batch, or is prompted at its own endpoint."""

from __future__ import annotations

from typing import Any

import pytest
from hopline.relay.v1 import delegation_pb2, draft_pb2, session_pb2
from hopline.relay.v1 import message_pb2 as pb

from tests.support.holds import Led, led
from tests.support.relay_mesh import Caller, RelayMesh, refusal

RUNNING, FAILED = pb.TURN_STATUS_RUNNING, pb.TURN_STATUS_FAILED


class Puller:
    """A lead without a worker, and its one subagent."""

    def __init__(self, mesh: RelayMesh, crew: Led, boss: Caller) -> None:
        self.mesh = mesh
        self.crew = crew
        self.boss = boss

    async def prompt(self) -> pb.TurnView:
        request = session_pb2.PromptRequest(agent=self.boss.id, text="go", wait_seconds=0)
        turn: pb.TurnView = (await self.mesh.admin.sessions.Prompt(request)).turn
        return turn

    async def start(self) -> delegation_pb2.ChildStart:
        request = delegation_pb2.StartSubagentRequest(agent=self.crew.workers["ann"].agent.id, task="task")
        start: delegation_pb2.ChildStart = (await self.boss.turns.StartSubagent(request)).start
        assert start.outcome == delegation_pb2.START_OUTCOME_CREATED
        return start

    async def reply(self, text: str) -> draft_pb2.ReplyToHumanResponse:
        request = draft_pb2.ReplyToHumanRequest(text=text)
        answer: draft_pb2.ReplyToHumanResponse = await self.crew.drafts(self.boss).ReplyToHuman(request)
        return answer

    async def took(self) -> pb.Message:
        (message,) = (await self.boss.take()).messages
        return message


@pytest.fixture
async def puller(mesh: RelayMesh) -> Puller:
    boss = await mesh.agent("boss")
    ann = await mesh.agent("ann", is_subagent=True, parent_agent_id=boss.id)
    crew = Led(mesh, await mesh.worker(await mesh.agent("other")), {"ann": await mesh.worker(ann)})
    return Puller(mesh, crew, boss)


async def test_a_puller_that_answers_early_is_held_and_its_prompt_does_not_come_back(puller: Puller) -> None:
    prompted = await puller.prompt()
    await puller.took()
    await puller.start()
    assert (await puller.reply("soon")).status == draft_pb2.REPLY_STATUS_HELD
    view = await puller.crew.check(prompted.turn_id)
    assert (view.status, view.held, [party.name for party in view.waiting_on]) == (RUNNING, True, ["ann"])
    await puller.mesh.passes(700)
    assert not (await puller.boss.take()).messages
    await puller.crew.report("ann", "42")
    report = await puller.took()
    assert report.body == "42"
    said = await puller.reply("it is 42")
    assert said.status == draft_pb2.REPLY_STATUS_SENT
    await puller.boss.done(report.id)
    assert (await puller.crew.answered(prompted.turn_id)).reply == "it is 42"


async def test_a_puller_that_only_takes_the_report_is_woken_with_its_draft_which_is_sent(
    puller: Puller,
) -> None:
    prompted = await puller.prompt()
    await puller.took()
    await puller.start()
    await puller.reply("soon")
    await puller.crew.report("ann", "42")
    await puller.boss.done((await puller.took()).id)
    await puller.crew.settled()
    note = await puller.took()
    assert note.note == "draft"
    await puller.boss.done(note.id)
    assert (await puller.crew.answered(prompted.turn_id)).reply == "soon"


async def test_a_puller_that_says_that_no_answer_comes_owes_none_whatever_it_has_started(
    puller: Puller,
) -> None:
    prompted = await puller.prompt()
    message = await puller.took()
    await puller.start()
    await puller.boss.done(message.id)
    view = await puller.crew.check(prompted.turn_id)
    assert (view.status, view.error.code) == (FAILED, "ended_without_answer")


async def test_a_reply_of_a_puller_to_its_prompt_waits_as_well(puller: Puller) -> None:
    prompted = await puller.prompt()
    message = await puller.took()
    await puller.start()
    assert "reply_to_human" in (await refusal(puller.boss.reply(message.id, "early"))).message
    await puller.crew.report("ann", "42")
    await puller.took()
    await puller.boss.reply(message.id, "in time")
    assert (await puller.crew.answered(prompted.turn_id)).reply == "in time"


async def test_the_prompt_in_a_batch_is_held_for_what_the_batch_has_started(mesh: RelayMesh) -> None:
    await mesh.policy(batch_inbox=True)
    crew = await led(mesh, "ann")
    first = await crew.prompted()
    await crew.start(first, "ann")
    await crew.lead.end(first, "draft")
    await crew.report("ann", "42")
    request = session_pb2.PromptRequest(
        agent=crew.lead.agent.id, text="and?", session_id=first.session_id, wait_seconds=0
    )
    second = (await mesh.admin.sessions.Prompt(request)).turn
    both = await crew.lead.next()
    assert len(both.messages) == 2
    await crew.start(both, "ann")
    await crew.lead.end(both, "both soon")
    for turn_id in (first.turn_id, second.turn_id):
        assert (await crew.check(turn_id)).status == RUNNING, turn_id
    await crew.report("ann", "43")
    while turns := await _more(crew):
        for turn in turns:
            await crew.lead.end(turn, "all of it")
    assert (await crew.answered(first.turn_id)).has_reply
    assert (await crew.answered(second.turn_id)).has_reply


async def _more(crew: Led) -> Any:
    await crew.settled()
    return await crew.lead.claim(1)


async def test_what_a_person_asks_at_the_leads_own_endpoint_is_held_alike(mesh: RelayMesh) -> None:
    crew = await led(mesh, "ann")
    request = session_pb2.PromptRequest(
        agent=crew.lead.agent.id, text="go", wait_seconds=0, own_endpoint=True
    )
    asked = (await mesh.admin.sessions.Prompt(request)).turn
    turn = await crew.lead.next()
    assert turn.channel == "mcp"
    await crew.start(turn, "ann")
    await crew.lead.end(turn, "draft")
    view = await mesh.admin.check(session_id=asked.session_id, endpoint_of=crew.lead.agent.id)
    assert (view.status, view.held) == (RUNNING, True)
    await crew.report("ann", "42")
    await crew.lead.end(await crew.lead.next(), "42")
    assert (await crew.answered(asked.turn_id)).reply == "42"


async def test_what_another_agent_asks_a_lead_is_not_held(mesh: RelayMesh) -> None:
    crew = await led(mesh, "ann")
    peer = await mesh.agent("peer")
    asked = await peer.ask(crew.lead.agent)
    turn = await crew.lead.next()
    await crew.start(turn, "ann")
    await crew.lead.end(turn, "at once")
    assert (await peer.check(asked.turn_id)).reply == "at once"
    assert await crew.held() == []
