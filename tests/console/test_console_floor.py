"""The floor, trees of delegations and threads in the console."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hopline.registry.v1 import identity_pb2

from tests.support.mesh_process import Held, Space, until
from tests.support.pages import Visitor, visitor


@pytest.fixture
async def admin(space: Space) -> AsyncIterator[Visitor]:
    async with visitor(space) as found:
        yield found


async def _chain(space: Space) -> tuple[str, str, Held]:
    """Have an agent ask another, which does not answer, and a third, which has no worker."""
    lead, peer, _ = await space.agents("lead", "peer", "nobody")
    stuck = Held()

    async def ask(turn: object) -> str:
        mesh = turn.mesh  # type: ignore[attr-defined]
        await mesh.ask("nobody", "are you <b>there</b>?", wait_seconds=0)
        return str((await mesh.ask("peer", "look at it", wait_seconds=50)).text)

    await space.work(lead, ask)
    await space.work(peer, stuck)
    words = ("chat", "lead", "go", "--wait", "0", "--workspace", space.name)
    begun = await space.mesh.cli(*words)
    await stuck.begun()
    return begun["turn_id"], begun["session_id"], stuck


async def test_the_floor_says_what_each_does_and_what_waits(admin: Visitor, space: Space) -> None:
    await _chain(space)
    page = await admin.get("/floor")
    for text in (
        "Run slots taken",
        "running for admin · depth 0",
        "running for lead (for admin) · depth 1",
        "It waits for an answer that it has asked for",
        "No worker of nobody is attached",
        "hopline attach --agent nobody -- COMMAND",
        "One turn waits",
    ):
        assert text in page.text


async def test_a_turns_page_shows_the_tree_what_keeps_it_and_cancels_it(admin: Visitor, space: Space) -> None:
    turn_id, session_id, stuck = await _chain(space)
    page = await admin.get(f"/turns/{turn_id}")
    assert page.status == 200
    assert "Turn of lead" in page.text
    assert "What keeps it nobody" in page.text
    assert "<b>there</b>" not in page.html
    assert page.text.index("lead go") < page.text.index("nobody are you")
    for link in (f"/sessions/{session_id}", "/threads/thr_", "/traces/"):
        assert link in page.html
    ended = await admin.follow(f"/turns/{turn_id}/cancel")
    assert "3 turns were ended." in ended.text

    async def over() -> bool:
        return len(stuck.cancelled) == 1

    await until(over, "the end of the peer's turn")
    assert "canceled" in (await admin.get(f"/turns/{turn_id}")).text
    assert "It had ended already." in (await admin.follow(f"/turns/{turn_id}/cancel")).text


async def test_a_thread_reads_message_by_message(admin: Visitor, space: Space) -> None:
    turn_id, _, stuck = await _chain(space)
    stuck.go_on.set()

    async def answered() -> bool:
        return "completed" in (await admin.get(f"/turns/{turn_id}")).text

    await until(answered, "the answer")
    listed = await admin.get("/threads?agent=peer")
    assert "lead , peer" in listed.text
    thread_id = listed.html.split("/threads/thr_")[1].split('"')[0]
    page = await admin.get(f"/threads/thr_{thread_id}")
    assert "look at it" in page.text
    assert "look at it, answered at attempt 1" in page.text
    assert "in reply to" in page.text


async def test_what_a_person_may_not_look_at_looks_like_nothing(space: Space) -> None:
    turn_id, _, _ = await _chain(space)
    token = await space.person("zoe")
    async with visitor(space, token) as zoe:
        nobodys = "trn_01m8r6qq5d3rrwyeyqtm4ajxm6"
        hidden, never_was = await zoe.get(f"/turns/{turn_id}"), await zoe.get(f"/turns/{nobodys}")
        assert hidden.status == never_was.status == 404
        assert hidden.html == never_was.html
        assert "lead" not in (await zoe.get("/floor")).text
        assert (await zoe.post(f"/turns/{turn_id}/cancel")).status == 404


async def test_who_may_only_look_is_told_so_when_cancelling(space: Space) -> None:
    turn_id, _, _ = await _chain(space)
    token = await space.person("vera", identity_pb2.ROLE_VIEWER)
    async with visitor(space, token) as vera:
        assert "Turn of lead" in (await vera.get(f"/turns/{turn_id}")).text
        answer = await vera.post(f"/turns/{turn_id}/cancel")
        assert answer.status in {403, 404}
