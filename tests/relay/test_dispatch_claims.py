"""How turns find their workers: in order, in one claim, without a timer and without a lost wake-up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline_relay.dispatch import MAX_CLAIM, MAX_CLAIM_AGENT, Attachment, Dispatcher
from hopline_relay.held import ClaimedTurn, ClaimWish
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fake_turns import FakeMesh, FakeTurn

pytestmark = pytest.mark.both_stores


class Line:
    """A stream that keeps what is sent on it."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.keeps_up = True
        self.items: list[pb.RelayItem] = []
        self.ended: list[tuple[Attachment, str]] = []

    def ready(self) -> bool:
        return self.keeps_up

    def send(self, item: pb.RelayItem) -> None:
        self.items.append(item)

    def end(self, attachment: Attachment, code: str, message: str) -> None:
        self.dispatcher.remove(attachment)
        self.ended.append((attachment, code))

    @property
    def started(self) -> list[str]:
        return [item.start.turn_id for item in self.items if item.HasField("start")]


class Hall:
    """A dispatcher on the in-memory record, with attachments by workspace and agent."""

    def __init__(self) -> None:
        self.mesh = FakeMesh()
        self.turns = self.mesh.turns
        self.dispatcher = self.mesh.dispatcher
        self.line = Line(self.dispatcher)
        self._numbers = 0

    def attach(
        self, agent: str = "agt_a", workspace: str = "ws_1", room: int = 4, line: Line | None = None
    ) -> Attachment:
        self._numbers += 1
        principal = Principal("agent", agent, workspace, agent, f"tok_{self._numbers}")
        attachment = Attachment(self._numbers, principal, self._numbers, room, "user", line or self.line)
        self.dispatcher.add(attachment)
        return attachment

    def queue(self, agent: str = "agt_a", workspace: str = "ws_1", *, tell: bool = True) -> str:
        self._numbers += 1
        turn_id = f"trn_{self._numbers:04}"
        self.turns.turns[turn_id] = FakeTurn(turn_id, (workspace, agent), "hello")
        if tell:
            self.dispatcher.wake({(workspace, agent)})
        return turn_id

    async def settle(self) -> None:
        await self.mesh.clock.settle()

    async def end(self, attachment: Attachment, turn_id: str) -> None:
        """End a turn, as the tunnel does."""
        self.turns.turns[turn_id].state = "completed"
        self.dispatcher.ended(attachment, turn_id)
        await self.settle()


@pytest.fixture
async def hall() -> AsyncIterator[Hall]:
    running = Hall()
    running.dispatcher.start()
    yield running
    await running.mesh.close()


async def test_turns_of_an_agent_start_in_the_order_they_were_queued(hall: Hall) -> None:
    hall.attach(room=2)
    turns = [hall.queue() for _ in range(4)]
    await hall.settle()
    assert hall.line.started == turns[:2]


async def test_a_turn_queued_before_anyone_attached_starts_with_the_attachment(hall: Hall) -> None:
    turn_id = hall.queue()
    await hall.settle()
    assert hall.turns.claims == []
    hall.attach()
    await hall.settle()
    assert hall.line.started == [turn_id]


async def test_everything_that_is_ready_goes_into_one_claim(hall: Hall) -> None:
    for number in range(20):
        hall.attach(f"agt_{number}")
    await hall.settle()
    hall.turns.claims.clear()
    for number in range(20):
        hall.queue(f"agt_{number}")
    await hall.settle()
    assert [len(claim) for claim in hall.turns.claims] == [20]
    assert len(hall.line.started) == 20


async def test_a_turn_queued_while_a_claim_is_under_way_is_not_forgotten(hall: Hall) -> None:
    hall.attach()
    await hall.settle()
    claim, gate = hall.turns.claim, asyncio.Event()

    async def claim_slowly(wishes: Sequence[ClaimWish]) -> list[ClaimedTurn]:
        claimed = await claim(wishes)
        await gate.wait()
        return claimed

    hall.turns.claim = claim_slowly  # type: ignore[method-assign]
    first = hall.queue()
    await hall.settle()
    late = hall.queue()
    gate.set()
    await hall.settle()
    assert hall.line.started == [first, late]


async def test_nothing_is_claimed_when_nothing_was_said(hall: Hall) -> None:
    hall.attach()
    await hall.settle()
    hall.turns.claims.clear()
    await hall.mesh.clock.advance(3600)
    assert hall.turns.claims == []


async def test_a_full_worker_is_not_asked_for_and_its_first_free_place_is(hall: Hall) -> None:
    attachment = hall.attach(room=1)
    first, second = hall.queue(), hall.queue()
    await hall.settle()
    hall.turns.claims.clear()
    hall.dispatcher.wake({("ws_1", "agt_a")})
    await hall.settle()
    assert hall.turns.claims == []
    await hall.end(attachment, first)
    assert hall.line.started == [first, second]


@pytest.mark.parametrize("count", [MAX_CLAIM_AGENT - 1, MAX_CLAIM_AGENT, MAX_CLAIM_AGENT + 1])
async def test_a_busy_agent_gets_all_its_turns_in_several_claims(hall: Hall, count: int) -> None:
    hall.attach(room=1000)
    turns = [hall.queue() for _ in range(count)]
    await hall.settle()
    assert hall.line.started == turns
    assert max(wish.capacity for claim in hall.turns.claims for wish in claim) == MAX_CLAIM_AGENT


async def test_a_workspace_with_many_agents_does_not_keep_another_waiting(hall: Hall) -> None:
    gate = hall.turns.hold("claim")
    for number in range(100):
        hall.attach(f"agt_{number}", "ws_big", room=100)
        hall.queue(f"agt_{number}", "ws_big")
    hall.attach("agt_small", "ws_small")
    small = hall.queue("agt_small", "ws_small")
    await hall.settle()
    first = hall.turns.claims[0]
    assert "ws_small" in [wish.workspace_id for wish in first][:2]
    assert sum(wish.capacity for wish in first) <= MAX_CLAIM
    gate.set()
    await hall.settle()
    assert small in hall.line.started[:2]
    assert len(hall.line.started) == 101


async def test_a_worker_that_lags_behind_gets_nothing_until_it_keeps_up(hall: Hall) -> None:
    hall.line.keeps_up = False
    hall.attach()
    turn_id = hall.queue()
    await hall.settle()
    assert hall.line.started == []
    hall.line.keeps_up = True
    hall.dispatcher.wake({("ws_1", "agt_a")})
    await hall.settle()
    assert hall.line.started == [turn_id]


async def test_a_claim_that_fails_is_made_again(hall: Hall) -> None:
    hall.turns.failures["claim"] = [HoplineError("unavailable", "no quota")] * 3
    hall.attach()
    turn_id = hall.queue()
    await hall.settle()
    assert hall.line.started == []
    await hall.mesh.clock.advance(1)
    assert hall.line.started == [turn_id]


async def test_a_turn_claimed_for_a_worker_that_has_left_is_given_back(hall: Hall) -> None:
    attachment = hall.attach()
    await hall.settle()
    gate = hall.turns.hold("claim")
    turn_id = hall.queue()
    await hall.settle()
    hall.dispatcher.remove(attachment)
    gate.set()
    await hall.settle()
    assert hall.turns.log == [("given back", turn_id)]
    assert (hall.turns.turns[turn_id].state, hall.turns.turns[turn_id].attempt) == ("queued", 0)


async def test_a_turn_cancelled_while_it_is_claimed_never_starts(hall: Hall) -> None:
    attachment = hall.attach()
    await hall.settle()
    turn_id = hall.queue(tell=False)
    claim = hall.turns.claim

    async def claim_and_cancel(wishes: Sequence[ClaimWish]) -> list[ClaimedTurn]:
        claimed = await claim(wishes)
        hall.mesh.cancel(turn_id)
        return claimed

    hall.turns.claim = claim_and_cancel  # type: ignore[method-assign]
    hall.dispatcher.wake({("ws_1", "agt_a")})
    await hall.settle()
    assert hall.line.items == []
    assert attachment.room == attachment.max_turns


async def test_draining_starts_nothing_more(hall: Hall) -> None:
    hall.attach()
    hall.dispatcher.drain()
    hall.queue()
    await hall.settle()
    assert hall.line.started == []


async def test_the_places_of_two_workers_add_up_and_the_weaker_isolation_counts(hall: Hall) -> None:
    first = hall.attach(room=3)
    assert hall.dispatcher.isolation("ws_1", "agt_a") == "user"
    second = hall.attach(room=5)
    second.isolation = "none"
    assert hall.dispatcher.places("ws_1", "agt_a") == 8
    assert hall.dispatcher.isolation("ws_1", "agt_a") == "none"
    hall.dispatcher.remove(first)
    hall.dispatcher.remove(second)
    assert hall.dispatcher.places("ws_1", "agt_a") == 0
    assert hall.dispatcher.isolation("ws_1", "agt_a") == ""
    assert hall.dispatcher.presence("ws_1", "agt_a") is None


async def test_closing_waits_for_what_is_being_recorded(hall: Hall) -> None:
    attachment = hall.attach()
    turn_id = hall.queue()
    await hall.settle()
    hall.dispatcher.remove(attachment)
    await hall.dispatcher.close()
    assert hall.turns.log == [("lost", turn_id)]


STEPS = st.lists(
    st.tuples(st.sampled_from(["queue", "attach", "end", "leave", "settle"]), st.integers(0, 2)), max_size=40
)


@given(STEPS)
def test_whatever_happens_no_turn_waits_while_there_is_room_and_none_runs_twice(
    steps: list[tuple[str, int]],
) -> None:
    asyncio.run(_play(steps))


async def _play(steps: list[tuple[str, int]]) -> None:
    hall = Hall()
    hall.dispatcher.start()
    attachments: list[Attachment] = []
    for step, number in steps:
        agent = f"agt_{number}"
        if step == "queue":
            hall.queue(agent)
        elif step == "attach":
            attachments.append(hall.attach(agent, room=1 + number))
        elif step == "end" and (busy := [one for one in attachments if one.held]):
            one = busy[number % len(busy)]
            turn_id = next(iter(one.held))
            hall.turns.turns[turn_id] = replace(hall.turns.turns[turn_id], state="completed")
            hall.dispatcher.ended(one, turn_id)
        elif step == "leave" and attachments:
            hall.dispatcher.remove(attachments.pop(number % len(attachments)))
        elif step == "settle":
            await hall.settle()
    await hall.settle()
    for agent in ("agt_0", "agt_1", "agt_2"):
        waiting = [t for t in hall.turns.turns.values() if t.key[1] == agent and t.state == "queued"]
        room = sum(one.room for one in attachments if one.principal.id == agent)
        assert not waiting or not room
    held = [turn_id for one in attachments for turn_id in one.held]
    assert len(held) == len(set(held))
    assert all(len(one.held) <= one.max_turns for one in attachments)
    await hall.mesh.close()
