"""A lead with subagents, prompted by a person, as tests of held answers play them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hopline.relay.v1 import delegation_pb2, draft_pb2, session_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline.relay.v1.draft_pb2_grpc import DraftServiceStub
from hopline_relay.turns import ClaimedTurn

from tests.support.relay_mesh import Caller, RelayMesh, Worker

_LIVE = (pb.TURN_STATUS_QUEUED, pb.TURN_STATUS_RUNNING)


@dataclass
class Led:
    """A lead and its subagents, each with a worker."""

    mesh: RelayMesh
    lead: Worker
    workers: Mapping[str, Worker]

    def drafts(self, caller: Caller) -> Any:
        """DraftService."""
        return DraftServiceStub(caller._channel("relay"))

    async def prompted_only(self, session_id: str = "") -> pb.TurnView:
        """Have a person prompt the lead, who does not look yet."""
        request = session_pb2.PromptRequest(
            agent=self.lead.agent.id, text="go", session_id=session_id, wait_seconds=0
        )
        turn: pb.TurnView = (await self.mesh.admin.sessions.Prompt(request)).turn
        return turn

    async def prompted(self, session_id: str = "") -> ClaimedTurn:
        """Have a person prompt the lead; returns the turn."""
        await self.prompted_only(session_id)
        return await self.lead.next()

    async def prompt(self, wait: int) -> pb.TurnView:
        """Prompt the lead as a person who waits."""
        request = session_pb2.PromptRequest(agent=self.lead.agent.id, text="go", wait_seconds=wait)
        turn: pb.TurnView = (await self.mesh.admin.sessions.Prompt(request)).turn
        return turn

    async def lead_next(self) -> ClaimedTurn:
        """Return the lead's next turn, once there is one."""
        ends = asyncio.get_running_loop().time() + 10
        while not (turns := await self.lead.claim(1)):
            assert asyncio.get_running_loop().time() < ends, "no turn ever came"
            await asyncio.sleep(0.001)
        return turns[0]

    async def start(self, turn: ClaimedTurn, name: str, *, forget: bool = False) -> delegation_pb2.ChildStart:
        """Start a subagent from within a turn of the lead."""
        request = delegation_pb2.StartSubagentRequest(
            agent=self.workers[name].agent.id, task="task", is_fire_and_forget=forget
        )
        started = await self.mesh.relay.handlers.delegation.start_subagent(
            await self.lead.principal(), request, turn_id=turn.turn_id
        )
        assert started.start.outcome == delegation_pb2.START_OUTCOME_CREATED
        return started.start

    async def held_with(self, draft: str | None, *names: str) -> ClaimedTurn:
        """Have the lead start subagents and end its turn with a draft, which is held."""
        turn = await self.prompted()
        for name in names:
            await self.start(turn, name)
        await self.lead.end(turn, draft)
        assert (await self.check(turn.turn_id)).held
        return turn

    async def close(self, session_id: str, caller: Caller) -> None:
        """Close a subagent."""
        await caller.turns.CloseSubagent(delegation_pb2.CloseSubagentRequest(session_id=session_id))

    async def cancel(self, **of: str) -> delegation_pb2.CancelResponse:
        """Cancel a turn, or the newest of a session, as the person."""
        request = delegation_pb2.CancelRequest(**of)
        answer: delegation_pb2.CancelResponse = await self.mesh.admin.turns.Cancel(request)
        return answer

    async def fail_silently(self, turn: ClaimedTurn) -> None:
        """Lose the worker of a turn until the mesh gives it up."""
        for _ in range(3):
            await self.mesh.worker_lost(turn.turn_id)
            if not await self.lead.claim(1):
                return

    async def attach(self) -> None:
        """Attach the workers again, after a restart."""
        self.lead = await self.mesh.worker(self.lead.agent)
        self.workers = {name: await self.mesh.worker(each.agent) for name, each in self.workers.items()}

    async def report(self, name: str, text: str) -> None:
        """Have a subagent do its task and report."""
        worker = self.workers[name]
        await worker.end(await worker.next(), text)

    async def reply(self, turn: ClaimedTurn, text: str, **more: Any) -> draft_pb2.ReplyToHumanResponse:
        """Call reply_to_human from within a turn of the lead."""
        request = draft_pb2.ReplyToHumanRequest(text=text, **more)
        principal = await self.lead.principal()
        return await self.mesh.relay.handlers.reply_to_human(principal, request, turn_id=turn.turn_id)

    async def settled(self) -> None:
        """Wait until whatever is to be looked at was looked at."""
        await self.mesh.relay.holding.drained()

    async def woken(self) -> ClaimedTurn:
        """Return the turn with which the mesh has woken the lead."""
        turn = await self.lead_next()
        assert turn.cause == "draft", turn.cause
        return turn

    async def check(self, turn_id: str, wait: int = 0) -> pb.TurnView:
        """Look at a prompt's turn, as the person."""
        return await self.mesh.admin.check(turn_id, wait)

    async def answered(self, turn_id: str) -> pb.TurnView:
        """Return how a prompt came out, which it has."""
        ends = asyncio.get_running_loop().time() + 10
        while (view := await self.check(turn_id)).status in _LIVE:
            assert asyncio.get_running_loop().time() < ends, view
            await asyncio.sleep(0.001)
        return view

    async def answers(self, turn: ClaimedTurn) -> list[str]:
        """Return what was said to the person in the thread of a prompt."""
        await self.settled()
        said = await self.mesh.thread(turn.messages[0].thread_id)
        return [message.body for message in said if getattr(message, "from").id == self.lead.agent.id]

    async def held(self) -> list[draft_pb2.Hold]:
        """Return everything that is held, newest first."""
        await self.settled()
        return list((await self.drafts(self.mesh.admin).ListHeld(draft_pb2.ListHeldRequest())).holds)

    async def release(self, session_id: str, caller: Caller | None = None) -> pb.TurnView:
        """Release the draft of a session."""
        request = draft_pb2.ReleaseDraftRequest(session_id=session_id)
        turn: pb.TurnView = (await self.drafts(caller or self.mesh.admin).ReleaseDraft(request)).turn
        return turn


async def led(mesh: RelayMesh, *names: str) -> Led:
    """Make a lead and its subagents."""
    boss = await mesh.agent("boss")
    found = {}
    for name in names:
        agent = await mesh.agent(name, is_subagent=True, parent_agent_id=boss.id)
        found[name] = await mesh.worker(agent)
    return Led(mesh, await mesh.worker(boss), found)
