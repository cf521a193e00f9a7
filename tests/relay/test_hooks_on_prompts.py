"""Hooks on system prompts: what a turn's model is told of itself; no hook keeps a turn from starting."""

from __future__ import annotations

from typing import Any

import pytest
from hopline.hooks.v1.hook_pb2 import SystemPromptResponse
from hopline.relay.v1 import delegation_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline.runtime.v1.tunnel_pb2 import RelayItem, StartTurn
from hopline_relay.dispatch import Attachment
from hopline_rpc.principals import Principal

from tests.support.hook_rig import HookRig, never
from tests.support.relay_mesh import Caller, RelayMesh, until

KIND = "system_prompt"


class Desk:
    """A worker's stream that keeps what it is sent."""

    def __init__(self, mesh: RelayMesh) -> None:
        self.mesh = mesh
        self.starts: list[StartTurn] = []
        self.others: list[RelayItem] = []

    def ready(self) -> bool:
        return True

    def send(self, item: RelayItem) -> None:
        if item.HasField("start"):
            self.starts.append(item.start)
        else:
            self.others.append(item)

    def end(self, attachment: Attachment, code: str, message: str) -> None:
        self.mesh.relay.dispatcher.remove(attachment)

    async def sit(self, agent: Caller) -> Attachment:
        """Attach as a worker of an agent with one place."""
        worker = await self.mesh.worker(agent)
        principal = Principal("agent", agent.id, self.mesh.workspace_id, agent.id, "tok_1")
        attachment = Attachment(1, principal, worker.epoch, 1, "user", self)
        self.mesh.relay.dispatcher.add(attachment)
        return attachment


def adds(words: str) -> Any:
    return lambda asked: SystemPromptResponse(text=f"{asked.text}\n\n{words}")


@pytest.fixture
def rig(mesh: RelayMesh) -> HookRig:
    return HookRig(mesh)


async def test_what_hooks_add_in_order_reaches_the_turn(mesh: RelayMesh, rig: HookRig) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob", soul="Be brief.", instructions="Review.")
    rig.add("zoe", adds("Second."), KIND, order=1)
    rig.add("abe", adds("First."), KIND)
    rig.add("yan", lambda asked: SystemPromptResponse(), KIND, order=2)
    desk = Desk(mesh)
    await desk.sit(bob)
    await ada.send(bob)
    await until(lambda: desk.starts)
    (start,) = desk.starts
    assert start.system_prompt == "Be brief.\n\nReview.\n\nFirst.\n\nSecond."
    assert (start.soul, start.instructions) == ("Be brief.", "Review.")
    asked = rig.asked[0][1]
    assert (asked.agent.id, asked.agent.session_id, asked.agent.turn_id) == (
        bob.id,
        start.session_id,
        start.turn_id,
    )
    assert (asked.channel, asked.cause, asked.context.depth) == ("relay", "message", 1)
    assert asked.context.session.session_id == start.session_id


async def test_a_prompt_that_no_hook_changes_is_not_said_again(mesh: RelayMesh, rig: HookRig) -> None:
    bob = await mesh.agent("bob", soul="Be brief.")
    rig.add("abe", lambda asked: SystemPromptResponse(text=asked.text), KIND)
    desk = Desk(mesh)
    await desk.sit(bob)
    await mesh.admin.send(bob)
    await until(lambda: desk.starts)
    assert desk.starts[0].system_prompt == ""


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(
    "wrong", [lambda asked: SystemPromptResponse(text=""), lambda asked: 1 / 0, lambda asked: None]
)
async def test_a_hook_that_fails_leaves_the_prompt_to_the_others_and_the_turn_starts(
    mesh: RelayMesh, rig: HookRig, wrong: Any, *, closed: bool
) -> None:
    bob = await mesh.agent("bob")
    rig.add("abe", wrong, KIND, closed=closed)
    rig.add("zoe", adds("Mind the gap."), KIND, order=1)
    desk = Desk(mesh)
    await desk.sit(bob)
    await mesh.admin.send(bob)
    await until(lambda: desk.starts)
    assert desk.starts[0].system_prompt == "\n\nMind the gap."
    await mesh.relay.journal.write(lambda book: None)  # what was to be written along is, by then
    assert [event.actor_name for event in await mesh.events("hook.failed")] == ["Abe"]


async def test_stuck_hooks_hold_a_turn_for_five_seconds_at_most(mesh: RelayMesh, rig: HookRig) -> None:
    bob = await mesh.agent("bob")
    for key in ("abe", "bea", "cleo", "dan"):
        rig.add(key, never, KIND)
    desk = Desk(mesh)
    await desk.sit(bob)
    await mesh.admin.send(bob)
    for key in ("abe", "bea", "cleo"):
        await until(lambda: rig.asked and rig.asked[-1][0] == key)  # noqa: B023 - it is over by then
        assert not desk.starts
        await mesh.clock.advance(2.0 if key != "cleo" else 1.0)
    await until(lambda: desk.starts)
    assert desk.starts[0].system_prompt == ""


async def test_a_turn_that_is_canceled_while_hooks_look_never_reaches_its_worker(
    mesh: RelayMesh, rig: HookRig
) -> None:
    bob = await mesh.agent("bob")
    rig.add("abe", never, KIND)
    desk = Desk(mesh)
    attachment = await desk.sit(bob)
    await mesh.admin.send(bob, text="first")
    await until(lambda: rig.asked)
    (turn_id,) = attachment.held
    await mesh.admin.turns.Cancel(delegation_pb2.CancelRequest(turn_id=turn_id))
    await mesh.clock.advance(2.0)
    assert not desk.starts
    assert not desk.others
    # Its place is free for the next one.
    rig.plugins.clear()
    mesh.relay.hooks.look([mesh.workspace_id])
    await mesh.admin.send(bob, text="second")
    await until(lambda: desk.starts)
    assert [message.body for message in desk.starts[0].messages] == ["second"]


async def test_a_worker_that_leaves_while_hooks_look_gives_the_turn_to_the_next(
    mesh: RelayMesh, rig: HookRig
) -> None:
    bob = await mesh.agent("bob")
    rig.add("abe", never, KIND)
    desk = Desk(mesh)
    attachment = await desk.sit(bob)
    sent = await mesh.admin.send(bob)
    await until(lambda: rig.asked)
    mesh.relay.dispatcher.remove(attachment)
    another = Desk(mesh)
    await another.sit(bob)
    await until(lambda: len(rig.asked) == 2)
    await mesh.clock.advance(2.0)
    await until(lambda: another.starts)
    assert not desk.starts
    assert another.starts[0].messages[0].id == sent.message_id
    found = await mesh.admin.turns.GetTurn(delegation_pb2.GetTurnRequest(turn_id=another.starts[0].turn_id))
    assert found.turn.status == pb.TURN_STATUS_RUNNING
