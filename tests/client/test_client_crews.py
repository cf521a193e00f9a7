"""A lead and its workers through the client library: children, reports, conversations, over the tunnel."""

from __future__ import annotations

import asyncio
from typing import Any

from hopline.relay.v1 import session_pb2
from hopline_client import Turn, TurnFailed

from tests.support.relay_mesh import until
from tests.support.stage import Stage


async def _prompt(stage: Stage, agent: str, text: str = "go") -> Any:
    request = session_pb2.PromptRequest(agent=agent, text=text, wait_seconds=0)
    return (await stage.mesh.admin.sessions.Prompt(request)).turn


async def test_a_lead_starts_two_workers_and_is_woken_by_each_of_their_reports(stage: Stage) -> None:
    mesh = stage.mesh
    lead, one, two = [await mesh.agent(name) for name in ("lead", "one", "two")]
    heard: list[tuple[str, str]] = []

    async def conduct(turn: Turn) -> None:
        if turn.cause == "prompt":
            started = await asyncio.gather(
                *(turn.mesh.start_subagent(name, f"part of {name}") for name in ("one", "two"))
            )
            assert all(child.created for child in started)
            listed = await turn.mesh.sessions(opened_by=turn.session_id)
            assert {each.id for each in listed} == {child.session_id for child in started}
            assert {(each.child_state, each.owes_report) for each in listed} == {("live", True)}
        else:
            heard.extend((message.sender.name, message.body) for message in turn.messages)

    async def reports(turn: Turn) -> str:
        reported = await turn.mesh.report_to_caller(f"{turn.text}: done", payload={"n": 1})
        assert reported.delivered
        return "not heard"

    async def answers(turn: Turn) -> str:
        return f"{turn.text}: answered"

    await stage.work(lead, conduct)
    await stage.work(one, reports)
    await stage.work(two, answers)
    await _prompt(stage, "lead")
    await until(lambda: len(heard) == 2, "both reports")
    assert sorted(heard) == [("one", "part of one: done"), ("two", "part of two: answered")]


async def test_a_child_that_fails_is_told_and_its_lead_goes_on(stage: Stage) -> None:
    mesh = stage.mesh
    lead, sub = await mesh.agent("lead"), await mesh.agent("sub")
    told: list[str] = []

    async def conduct(turn: Turn) -> None:
        if turn.cause == "prompt":
            await turn.mesh.start_subagent("sub", "hard")
        else:
            told.append(turn.text)

    async def fails(turn: Turn) -> str:
        raise TurnFailed("too hard")

    await stage.work(lead, conduct)
    await stage.work(sub, fails)
    await _prompt(stage, "lead")
    await until(lambda: told, "the news")
    assert "too hard" in told[0]


async def test_a_turn_starts_a_copy_of_its_agent_and_closes_it(stage: Stage) -> None:
    lead = await stage.mesh.agent("lead")
    stopped: list[str] = []
    closed: list[int] = []

    async def conduct(turn: Turn) -> None:
        if turn.cause == "task":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stopped.append(turn.session_id)
                raise
        child = await turn.mesh.start_self_subagent("count")
        entries = await turn.mesh.read_session(child.session_id)
        assert [(each.kind, each.text) for each in entries] == [("prompt", "count")]
        closed.append(await turn.mesh.close_subagent(child.session_id))
        said = await turn.mesh.send_message_to_session(child.session_id, "still there?")
        assert (said.delivered, said.reason) == (False, "session_closed")

    await stage.work(lead, conduct, max_turns=4)
    await _prompt(stage, "lead")
    await until(lambda: closed, "the close")
    assert closed == [1]


async def test_two_agents_go_on_in_their_one_conversation(stage: Stage) -> None:
    mesh = stage.mesh
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sessions: set[str] = set()
    heard: list[str] = []

    async def talks(turn: Turn) -> None:
        if turn.cause == "prompt":
            sent = await turn.mesh.message_agent("bob", turn.text)
            sessions.add(sent.session_id)
        else:
            heard.append(turn.text)

    async def remembers(turn: Turn) -> str:
        return f"{'again' if turn.continued else 'first'}: {turn.text}"

    await stage.work(ada, talks)
    await stage.work(bob, remembers)
    for number, text in enumerate(("a", "b"), start=1):
        await _prompt(stage, "ada", text)
        await until(lambda number=number: len(heard) == number, "the answer")  # type: ignore[misc]
    assert heard == ["first: a", "again: b"]
    assert len(sessions) == 1


async def test_what_a_client_says_outside_a_turn_goes_the_same_way(stage: Stage) -> None:
    mesh = stage.mesh
    lead, _ = await mesh.agent("lead"), await mesh.agent("sub")
    async with stage.client(lead) as client:
        child = await client.start_subagent("sub", "look", fire_and_forget=True)
        assert (await client.start_subagent("nobody", "look")).outcome == "forbidden"
        [session] = list(await client.sessions("sub"))
        assert (session.id, session.child_state, session.owes_report) == (child.session_id, "live", False)
        assert (await client.send_message_to_session(child.session_id, "and?")).delivered
        assert not (await client.send_message_to_session("ses_none", "and?")).delivered
        assert await client.close_subagent(child.session_id) == 2
