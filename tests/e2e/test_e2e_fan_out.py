"""A round of ten: asked at once, answered by each in its own time, and one wake over all the answers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from hopline.relay.v1 import session_pb2
from hopline_client import Turn

from tests.support.mesh_process import Agent, Space, call, until

ROUND = 10


class Lead:
    """Asks its peers in its first turn and stays in it until it is let go; keeps what wakes it later."""

    def __init__(self, peers: list[Agent]) -> None:
        self._peers = peers
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.thread_id = ""
        self.wakes: list[Turn] = []

    async def __call__(self, turn: Turn) -> str:
        if turn.cause == "prompt":
            sent = await turn.mesh.send([peer.name for peer in self._peers], "who is there?")
            self.thread_id = sent.thread_id
            self.asked.set()
            await self.go_on.wait()
            return "asked around"
        self.wakes.append(turn)
        return ""


async def _answer(space: Space, peer: Agent, again: asyncio.Event) -> list[dict[str, Any]]:
    """Take the inbox and answer, over MCP; returns what is in the inbox once all have answered."""
    async with space.mcp_over_http(peer) as client:
        taken = await call(client, "read_inbox", wait_seconds=50)
        (message,) = taken["messages"]
        assert (message["newer_from_sender"], message["age_seconds"] >= 0) == (0, True)
        await call(client, "reply", message_id=message["message_id"], text=f"{peer.name} is")
        await again.wait()
        found: list[dict[str, Any]] = (await call(client, "read_inbox"))["messages"]
        return found


async def test_ten_answers_to_one_question_wake_its_sender_once_and_nobody_else(space: Space) -> None:
    peers = await space.agents(*(f"peer{number}" for number in range(ROUND)))
    (head,) = await space.agents("head")
    await space.policy(batch_inbox=True, pair_budget="0")
    lead = Lead(peers)
    await space.work(head, lead)
    await space.admin.sessions.Prompt(session_pb2.PromptRequest(agent=head.id, text="go", wait_seconds=0))
    await asyncio.wait_for(lead.asked.wait(), 60)
    again = asyncio.Event()
    async with AsyncExitStack() as stack:
        answering = [asyncio.create_task(_answer(space, peer, again)) for peer in peers]
        for task in answering:
            stack.callback(task.cancel)

        async def all_said() -> bool:
            return len(await space.thread(lead.thread_id)) == 1 + ROUND

        await until(all_said, "ten answers")
        lead.go_on.set()
        await until(lambda: lead.wakes, "the wake of the lead")
        again.set()
        assert await asyncio.gather(*answering) == [[]] * ROUND  # a reply wakes nobody but its sender
    (woken,) = lead.wakes
    assert sorted(message.body for message in woken.messages) == sorted(f"{peer.name} is" for peer in peers)
    assert [message.seq for message in woken.messages] == list(range(2, 2 + ROUND))
    assert woken.prompt.startswith(f"{ROUND} messages are waiting for you, oldest first")
    async with space.mcp_over_http(head) as client:
        read = (await call(client, "read_thread", thread_id=lead.thread_id))["read"]
        listed = (await call(client, "list_threads"))["threads"]
    assert {mark["agent"]: mark["consumed_through"] for mark in read} == {
        **{peer.name: 1 for peer in peers},
        "head": 1 + ROUND,
    }
    assert next(each for each in listed if each["id"] == lead.thread_id)["read"] == read
