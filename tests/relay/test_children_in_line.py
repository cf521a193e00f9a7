"""Children beyond the run limit wait in line: first in, first out, and not behind a lead that waits."""

from __future__ import annotations

import asyncio

from hopline.relay.v1 import session_pb2
from hopline_relay.turns import ClaimWish

from tests.support.relay_mesh import RelayMesh, start_child


async def test_children_run_side_by_side_up_to_the_run_limit_and_then_in_order(mesh: RelayMesh) -> None:
    await mesh.policy(concurrent_runs=3)
    lead = await mesh.agent("lead")
    worker = await mesh.worker(lead)
    await mesh.admin.sessions.Prompt(session_pb2.PromptRequest(agent="lead", text="go", wait_seconds=0))
    turn = await worker.next()
    workers = []
    for number in range(5):
        sub = await mesh.agent(f"sub{number}")
        workers.append(await mesh.worker(sub))
        await start_child(lead, sub, str(number), caller_session_id=turn.session_id)

    async def claims() -> list[str]:
        """Claim for all of them at once, in the order in which their turns were queued."""
        wishes: list[ClaimWish] = [each.wish(1) for each in workers]
        found = await mesh.relay.turns.claim(wishes)
        running.update({each.messages[0].body: each for each in found})
        return [each.messages[0].body for each in found]

    running: dict[str, object] = {}
    # The lead's own turn has the first of the three slots.
    assert await claims() == ["0", "1"]
    assert await claims() == []
    await worker.end(turn, "")
    assert await claims() == ["2"]
    await workers[0].end(running["0"], "done")  # type: ignore[arg-type]
    await workers[1].end(running["1"], "done")  # type: ignore[arg-type]
    assert await claims() == ["3", "4"]


async def test_a_lead_that_waits_in_an_ask_holds_no_slot_from_its_children(mesh: RelayMesh) -> None:
    await mesh.policy(concurrent_runs=1)
    lead, sub = await mesh.agent("lead"), await mesh.agent("sub")
    worker, theirs = await mesh.worker(lead), await mesh.worker(sub)
    await mesh.admin.sessions.Prompt(session_pb2.PromptRequest(agent="lead", text="go", wait_seconds=0))
    turn = await worker.next()
    child = await start_child(lead, sub, caller_session_id=turn.session_id)
    assert await theirs.claim() == []
    waiting = asyncio.create_task(lead.check(child.turn_id, wait=50, caller_session_id=turn.session_id))
    claimed = []
    for _ in range(200):
        claimed = await theirs.claim()
        if claimed:
            break
        await mesh.passes(0.01)
    await theirs.end(claimed[0], "here")
    assert (await waiting).reply == "here"
