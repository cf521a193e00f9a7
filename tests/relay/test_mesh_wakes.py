"""How the mesh itself wakes a session: where the note runs, what it counts as, what holds it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hopline.relay.v1 import delegation_pb2, message_pb2, session_pb2
from hopline_relay.dispatch import _inbound
from hopline_relay.domain.prompt import prompt
from hopline_relay.mesh_wakes import RacedError, Wake, Woken
from hopline_relay.store.book import Book
from hopline_relay.store.outgoing import Outgoing
from hopline_relay.turns import ClaimedTurn

from tests.support.relay_mesh import Caller, RelayMesh, Worker, refusal


async def at_work(mesh: RelayMesh, name: str = "ada") -> tuple[Caller, Worker, ClaimedTurn]:
    """Return an agent with a worker and the turn of a person's prompt."""
    agent = await mesh.agent(name)
    worker = await mesh.worker(agent)
    await mesh.admin.sessions.Prompt(session_pb2.PromptRequest(agent=agent.id, text="go", wait_seconds=0))
    return agent, worker, await worker.next()


def note(mesh: RelayMesh, agent: Caller, turn: ClaimedTurn, **more: Any) -> Wake:
    fields: dict[str, Any] = {
        "workspace_id": mesh.workspace_id,
        "agent_id": agent.id,
        "session_id": turn.session_id,
        "kind": "draft",
        "text": "this was held",
        "depth": turn.depth,
        "root_id": turn.root_id,
        "cause_turn_id": turn.turn_id,
    }
    return Wake(**{**fields, **more})


async def test_a_note_is_a_turn_of_its_session_at_the_depth_and_root_it_is_given(mesh: RelayMesh) -> None:
    ada, worker, turn = await at_work(mesh)
    woken = await mesh.relay.mesh_wakes.wake(note(mesh, ada, turn, depth=3))
    assert await worker.claim() == [], "one turn at a time runs in a session"
    await worker.end(turn, "done")
    again = await worker.next()
    assert (again.turn_id, again.session_id) == (woken.turn_id, turn.session_id)
    assert (again.depth, again.root_id, again.cause) == (3, turn.root_id, "draft")
    assert again.sender_kind == "mesh"
    assert [(each.body, each.note) for each in again.messages] == [("this was held", "draft")]
    assert [party.id for party in again.messages[0].chain] == [ada.id]


async def test_its_prompt_says_that_nobody_else_wrote_it(mesh: RelayMesh) -> None:
    ada, worker, turn = await at_work(mesh)
    await worker.end(turn, "done")
    await mesh.relay.mesh_wakes.wake(note(mesh, ada, turn))
    again = await worker.next()
    text = prompt([_inbound(each) for each in again.messages], mesh.clock.now(), lambda: "B")
    assert text.endswith("<<<your-note B\nthis was held\nyour-note B>>>")
    assert "another agent" not in text


async def test_a_note_is_nobodys_quota_and_stands_in_no_way_of_depth(mesh: RelayMesh) -> None:
    await mesh.policy(sent_per_day=1, received_per_day=1, max_depth=1, pair_budget="1/300s")
    ada, _, turn = await at_work(mesh)
    before = await mesh.usage(ada)
    for _ in range(3):
        await mesh.relay.mesh_wakes.wake(note(mesh, ada, turn, depth=9))
    after = await mesh.usage(ada)
    assert (after.sent_today, after.received_today) == (before.sent_today, before.received_today)
    assert after.root_turns == before.root_turns + 3


async def test_a_root_ends_what_would_go_on_for_ever_also_when_it_is_counted_again(mesh: RelayMesh) -> None:
    await mesh.policy(root_turns=3)
    ada, worker, turn = await at_work(mesh)
    wakes = mesh.relay.mesh_wakes
    await wakes.wake(note(mesh, ada, turn))
    await worker.end(turn, "done")
    await mesh.reopen()
    await mesh.relay.mesh_wakes.wake(note(mesh, ada, turn))
    error = await refusal(mesh.relay.mesh_wakes.wake(note(mesh, ada, turn)))
    assert error.reason == "root_exhausted"
    await mesh.relay.journal.write(lambda book: None)
    (event,) = await mesh.events("root.exhausted")
    assert (event.details["root_id"], event.details["turns"]) == (turn.root_id, 3)


async def test_without_credits_nothing_new_is_woken_and_nothing_is_charged(mesh: RelayMesh) -> None:
    await mesh.policy(credits="2")
    await mesh.deposit("4")
    ada, _, turn = await at_work(mesh)
    await mesh.relay.mesh_wakes.wake(note(mesh, ada, turn))
    assert await mesh.balance() == "0"
    assert (await refusal(mesh.relay.mesh_wakes.wake(note(mesh, ada, turn)))).reason == "credits_exhausted"
    await mesh.deposit("2")
    await mesh.relay.mesh_wakes.wake(note(mesh, ada, turn))
    assert await mesh.balance() == "0"


async def test_a_full_inbox_takes_no_note(mesh: RelayMesh) -> None:
    await mesh.policy(inbox_backlog=2)
    ada, _, turn = await at_work(mesh)
    for _ in range(2):
        await mesh.relay.mesh_wakes.wake(note(mesh, ada, turn))
    assert (await refusal(mesh.relay.mesh_wakes.wake(note(mesh, ada, turn)))).reason == "inbox_full"


async def test_what_is_taken_meanwhile_writes_nothing_and_keeps_nobody_else_back(mesh: RelayMesh) -> None:
    ada, worker, turn = await at_work(mesh)
    taken: list[str] = []

    def once(book: Book, message: Outgoing) -> None:
        if taken:
            raise RacedError
        taken.append(message.id)

    def never(book: Book, message: Outgoing) -> None:
        raise RacedError

    wakes = mesh.relay.mesh_wakes
    results = await asyncio.gather(
        wakes.wake(note(mesh, ada, turn, take=never)),
        wakes.wake(note(mesh, ada, turn)),
        wakes.wake(note(mesh, ada, turn, take=never)),
        return_exceptions=True,
    )
    assert [type(each) for each in results] == [RacedError, Woken, RacedError]
    assert (await mesh.usage(ada)).root_turns == 2
    await wakes.wake(note(mesh, ada, turn, take=once))
    with pytest.raises(RacedError):
        await wakes.wake(note(mesh, ada, turn, take=once))
    await worker.end(turn, "done")
    assert (await worker.next()).cause == "draft"


async def test_a_session_that_is_closed_or_another_agents_is_not_woken(mesh: RelayMesh) -> None:
    ada, _, turn = await at_work(mesh)
    bob = await mesh.agent("bob")
    wakes = mesh.relay.mesh_wakes
    for wrong in (note(mesh, bob, turn), note(mesh, ada, turn, session_id="ses_none")):
        assert (await refusal(wakes.wake(wrong))).reason == "not_found"
    await mesh.pause(ada)
    assert (await refusal(wakes.wake(note(mesh, ada, turn)))).reason == "agent_paused"
    await mesh.delete(ada)
    assert (await refusal(wakes.wake(note(mesh, ada, turn)))).reason == "not_found"


async def test_cancelling_a_turn_ends_what_the_mesh_has_woken_for_it_also_further_on(mesh: RelayMesh) -> None:
    ada, worker, turn = await at_work(mesh)
    await worker.end(turn, "done")
    await mesh.relay.mesh_wakes.wake(note(mesh, ada, turn))
    again = await worker.next()
    await worker.end(again, "done")
    further = await mesh.relay.mesh_wakes.wake(note(mesh, ada, again))
    other = await at_work(mesh, "bob")
    kept = await mesh.relay.mesh_wakes.wake(note(mesh, other[0], other[2]))
    canceled = await mesh.admin.turns.Cancel(delegation_pb2.CancelRequest(turn_id=turn.turn_id))
    assert canceled.canceled == 1
    states = [await _status(mesh, each.turn_id) for each in (further, kept)]
    assert states == [message_pb2.TURN_STATUS_CANCELED, message_pb2.TURN_STATUS_QUEUED]


async def _status(mesh: RelayMesh, turn_id: str) -> int:
    found = await mesh.admin.turns.GetTurn(delegation_pb2.GetTurnRequest(turn_id=turn_id))
    return int(found.turn.status)


async def test_a_note_of_a_kind_that_nobody_knows_is_a_mistake(mesh: RelayMesh) -> None:
    ada, _, turn = await at_work(mesh)
    with pytest.raises(ValueError, match="no kind of wake"):
        await mesh.relay.mesh_wakes.wake(note(mesh, ada, turn, kind="message"))
