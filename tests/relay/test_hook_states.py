"""How the hooks of plugins do, for those who look after the workspace."""

from __future__ import annotations

from typing import Any

import pytest
from hopline.registry.v1 import identity_pb2
from hopline.relay.v1 import hook_state_pb2 as pb
from hopline_relay.hooks.breaker import FAILURES, FIRST_PAUSE
from hopline_relay.plugins.calling import CallFailed
from hopline_rpc.clock import from_timestamp

from tests.support.hook_rig import HookRig, passes
from tests.support.relay_mesh import Caller, RelayMesh, refusal


async def _hooks(caller: Caller) -> list[pb.HookState]:
    return list((await caller.hooks.GetHooks(pb.GetHooksRequest())).hooks)


async def test_hooks_are_listed_in_the_order_in_which_they_are_asked(mesh: RelayMesh) -> None:
    rig = HookRig(mesh)
    rig.add("zed", passes, order=-1, closed=True)
    rig.add("abe", passes)
    rig.add("bea", passes, "todo_added", order=-5)
    listed = [(each.kind, each.plugin_key, each.order, each.fail_mode) for each in await _hooks(mesh.admin)]
    assert listed == [
        ("inter_agent_message", "zed", -1, "fail_closed"),
        ("inter_agent_message", "abe", 0, "fail_open"),
        ("todo_added", "bea", -5, "fail_open"),
    ]


async def test_one_that_kept_failing_is_told_as_suspended_with_why_and_until_when(mesh: RelayMesh) -> None:
    rig, works = HookRig(mesh), False

    def decide(asked: Any) -> Any:
        if works:
            return passes()
        raise CallFailed("unreachable", "it cannot be reached", sent=True)

    rig.add("abe", decide)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    (failing,) = await _hooks(mesh.admin)
    assert (failing.is_suspended, failing.failures, failing.problem) == (False, 1, "it cannot be reached")
    for _ in range(FAILURES):
        await ada.send(bob)
    (suspended,) = await _hooks(mesh.admin)
    assert (suspended.is_suspended, suspended.problem) == (True, "it cannot be reached")
    assert from_timestamp(suspended.retry_at) == pytest.approx(mesh.clock.now() + FIRST_PAUSE)
    works = True
    await mesh.skip(FIRST_PAUSE)
    await ada.send(bob)
    (back,) = await _hooks(mesh.admin)
    assert (back.is_suspended, back.failures, back.problem) == (False, 0, "")
    assert not back.HasField("retry_at")


async def test_who_holds_no_role_on_the_workspace_is_not_told_of_its_hooks(mesh: RelayMesh) -> None:
    HookRig(mesh).add("abe", passes)
    await mesh.agent("ada")
    zoe = await mesh.person("zoe")
    await mesh.grant("zoe", identity_pb2.ROLE_ADMIN, "ada")
    assert (await refusal(zoe.hooks.GetHooks(pb.GetHooksRequest()))).reason == "permission_denied"
    await mesh.grant("zoe", identity_pb2.ROLE_VIEWER)
    assert len(await _hooks(zoe)) == 1


async def test_hooks_of_another_workspace_are_not_listed(mesh: RelayMesh) -> None:
    HookRig(mesh).add("abe", passes)
    stranger = await mesh.foreign_agent("far")
    other = Caller(mesh, "", mesh.admin.token, "other")
    assert stranger.id
    assert await _hooks(other) == []
