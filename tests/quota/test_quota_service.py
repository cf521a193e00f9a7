"""The admission service as the relay meets it: over its contract, with real credentials."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hopline.common.v1 import errors_pb2
from hopline.quota.v1 import admission_pb2 as pb
from hopline.quota.v1.usage_pb2 import GetUsageRequest
from hopline_rpc.clock import from_timestamp, to_timestamp
from hopline_rpc.errors import HoplineError

from tests.quota.mesh import LIMITS, Mesh


def reason(result: pb.AdmitResult) -> str:
    assert result.WhichOneof("decision") == "refusal", result
    return errors_pb2.ErrorReason.Name(result.refusal.reason).removeprefix("ERROR_REASON_").lower()


def admitted(result: pb.AdmitResult) -> pb.Admitted:
    assert result.WhichOneof("decision") == "admitted", result
    return result.admitted


EMPTY_CALLS: dict[str, Any] = {
    "Admit": pb.AdmitRequest,
    "Refund": pb.RefundRequest,
    "BeginTurn": pb.BeginTurnRequest,
    "EndTurn": pb.EndTurnRequest,
    "SetWaiting": pb.SetWaitingRequest,
}


async def test_every_call_says_that_the_counters_are_lost_until_they_are_seeded(mesh: Mesh) -> None:
    async def lost(epoch: int) -> set[bool]:
        calls = [getattr(mesh.relay, name)(request(epoch=epoch)) for name, request in EMPTY_CALLS.items()]
        return {(await call).counters_lost for call in calls}

    assert await lost(0) == {True}
    assert await lost(1) == {True}
    seeded = await mesh.relay.Seed(pb.SeedRequest(epoch=1))
    assert (seeded.accepted, seeded.epoch) == (True, 1)
    assert await lost(1) == {False}
    assert await lost(2) == {True}


async def test_a_second_seed_of_an_epoch_is_told_which_one_is_in_force(mesh: Mesh) -> None:
    await mesh.seed(3)
    late = await mesh.relay.Seed(pb.SeedRequest(epoch=2))
    assert (late.accepted, late.epoch) == (False, 3)


async def test_an_admitted_item_comes_back_with_its_depth_root_and_day(mesh: Mesh) -> None:
    await mesh.seed()
    response = await mesh.admit(await mesh.item("k", "agt_a", "agt_b"))
    found = admitted(response.results[0])
    assert (found.depth, found.root_id, found.opened_root, found.day) == (1, "root of k", True, "2025-06-15")


async def test_a_refusal_comes_back_with_its_reason_figures_and_time(mesh: Mesh) -> None:
    await mesh.seed()
    limits = pb.Limits()
    limits.CopyFrom(LIMITS)
    limits.sent_per_day = 1
    first = await mesh.item("k1", "agt_a", "agt_b", limits=limits)
    second = await mesh.item("k2", "agt_a", "agt_b", limits=limits)
    results = (await mesh.admit(first, second)).results
    admitted(results[0])
    refusal = results[1].refusal
    assert reason(results[1]) == "quota_exceeded"
    assert (refusal.limit, refusal.used, refusal.recipient_id) == (1, 1, "")
    assert from_timestamp(refusal.resets_at) == (mesh.clock.now() // 86_400 + 1) * 86_400


async def test_a_refusal_that_no_time_lifts_names_none(mesh: Mesh) -> None:
    await mesh.seed()
    limits = pb.Limits()
    limits.CopyFrom(LIMITS)
    limits.max_depth = 0
    result = (await mesh.admit(await mesh.item("k", "agt_a", "agt_b", limits=limits))).results[0]
    assert reason(result) == "depth_exceeded"
    assert not result.refusal.HasField("resets_at")


async def test_the_whole_life_of_a_turn(mesh: Mesh) -> None:
    await mesh.seed()
    workspace = await mesh.workspace_id()
    item = await mesh.item("k", "agt_a", "agt_b")
    decision = admitted((await mesh.admit(item)).results[0])
    begin = pb.BeginTurnItem(
        turn_id="turn of k",
        workspace_id=workspace,
        agent_id="agt_b",
        depth=decision.depth,
        root_id=decision.root_id,
        attempt=1,
        needs_slot=True,
        concurrent_runs=1,
    )
    other = pb.BeginTurnItem()
    other.CopyFrom(begin)
    other.turn_id = "another"
    states = (await mesh.relay.BeginTurn(pb.BeginTurnRequest(epoch=1, items=[begin, other]))).states
    assert list(states) == [pb.BEGIN_STATE_STARTED, pb.BEGIN_STATE_NO_SLOT]
    onward = await mesh.item("k2", "agt_b", "agt_c")
    found = admitted((await mesh.admit(onward)).results[0])
    assert (found.depth, found.root_id, found.cause_turn_id) == (2, decision.root_id, "turn of k")
    waiting = pb.SetWaitingItem(turn_id="turn of k", workspace_id=workspace, waiting=True)
    await mesh.relay.SetWaiting(pb.SetWaitingRequest(epoch=1, items=[waiting]))
    states = (await mesh.relay.BeginTurn(pb.BeginTurnRequest(epoch=1, items=[other]))).states
    assert list(states) == [pb.BEGIN_STATE_STARTED]
    end = pb.EndTurnItem(
        turn_id="turn of k", workspace_id=workspace, agent_id="agt_b", kind=pb.END_KIND_ENDED, attempt=1
    )
    await mesh.relay.EndTurn(pb.EndTurnRequest(epoch=1, items=[end]))
    refund = pb.RefundRequest(
        epoch=1, settled=[pb.Settlement(key="k2"), pb.Settlement(key="k", committed=True)]
    )
    assert not (await mesh.relay.Refund(refund)).counters_lost


# -- whose item it is --------------------------------------------------------------------------------


async def test_the_senders_own_assertion_is_accepted(mesh: Mesh) -> None:
    await mesh.seed()
    agent_id, token = await mesh.agent("planner")
    item = await mesh.item("k", agent_id, "agt_b", subject_assertion=await mesh.assertion(token))
    admitted((await mesh.admit(item)).results[0])


async def test_an_item_whose_assertion_is_not_its_senders_is_refused_and_the_others_go_on(mesh: Mesh) -> None:
    await mesh.seed()
    agent_id, token = await mesh.agent("planner")
    _, other = await mesh.agent("other")
    service = await mesh.assertion(mesh.tokens["relay"])
    own = await mesh.assertion(token)
    results = (
        await mesh.admit(
            await mesh.item("k1", agent_id, "agt_b", subject_assertion=own),
            await mesh.item("k2", agent_id, "agt_b", subject_assertion=await mesh.assertion(other)),
            await mesh.item("k3", agent_id, "agt_b", subject_assertion=service),
            await mesh.item("k4", agent_id, "agt_b", subject_assertion=own, workspace_id="ws_other"),
            await mesh.item("k5", agent_id, "agt_b", subject_assertion=own[:-4] + "AAAA"),
            await mesh.item("k6", agent_id, "agt_b", subject_assertion="not an assertion"),
            await mesh.item("k7", agent_id, "agt_b", subject_assertion=token),
            await mesh.item("k8", agent_id, "agt_b", subject_assertion=own),
        )
    ).results
    assert [each.WhichOneof("decision") for each in results] == ["admitted", *["refusal"] * 6, "admitted"]
    assert {reason(each) for each in results[1:7]} == {"permission_denied"}
    usage = await mesh.usage(token).GetUsage(GetUsageRequest())
    assert usage.sent_today == 2


async def test_an_expired_assertion_is_refused(mesh: Mesh) -> None:
    await mesh.seed()
    agent_id, token = await mesh.agent("planner")
    item = await mesh.item("k", agent_id, "agt_b", subject_assertion=await mesh.assertion(token))
    await mesh.clock.advance(61)
    assert reason((await mesh.admit(item)).results[0]) == "permission_denied"


async def test_an_agent_cannot_pass_the_rails_as_a_person(mesh: Mesh) -> None:
    await mesh.seed()
    agent_id, token = await mesh.agent("planner")
    assertion = await mesh.assertion(token)
    item = await mesh.item("k", agent_id, "agt_b", kind=pb.ADMIT_KIND_PERSON, subject_assertion=assertion)
    assert reason((await mesh.admit(item)).results[0]) == "permission_denied"


async def test_a_persons_message_passes_with_their_assertion(mesh: Mesh) -> None:
    await mesh.seed()
    user_id, token = await mesh.user("alice")
    assertion = await mesh.assertion(token)
    item = await mesh.item("k", user_id, "agt_b", kind=pb.ADMIT_KIND_PERSON, subject_assertion=assertion)
    assert admitted((await mesh.admit(item)).results[0]).depth == 0


# -- malformed ---------------------------------------------------------------------------------------


async def test_recipients_named_twice_are_refused_for_that_item_alone(mesh: Mesh) -> None:
    await mesh.seed()
    twice = [pb.AdmitRecipient(agent_id="agt_b", turn_id=turn) for turn in ("t1", "t2")]
    bad = await mesh.item("k1", "agt_a", "agt_b", recipients=twice)
    results = (await mesh.admit(bad, await mesh.item("k2", "agt_a", "agt_b"))).results
    assert reason(results[0]) == "invalid_argument"
    assert "recipients" in results[0].refusal.message
    admitted(results[1])


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"key": ""}, "key"),
    ({"key": "k" * 257}, "key"),
    ({"sender_id": ""}, "sender_id"),
    ({"workspace_id": ""}, "workspace_id"),
    ({"kind": 0}, "kind"),
    ({"kind": 9}, "kind"),
    ({"recipients": []}, "recipients"),
    ({"recipients": [pb.AdmitRecipient(agent_id=f"agt_{n}") for n in range(11)]}, "recipients"),
    ({"limits": None}, "limits"),
    ({"new_root_id": "a\0b"}, "new_root_id"),
]


async def test_a_malformed_item_names_its_field(mesh: Mesh) -> None:
    await mesh.seed()
    for fields, names in MALFORMED:
        item = await mesh.item("k", "agt_a", "agt_b", **fields)
        with pytest.raises(HoplineError, match=rf"items\[0\]\.{names}") as caught:
            await mesh.admit(item)
        assert caught.value.reason == "invalid_argument"


async def test_a_batch_at_its_limit(mesh: Mesh) -> None:
    await mesh.seed()
    two = [await mesh.item(f"k{number}", f"agt_{number}", "agt_b") for number in range(2)]
    for size in (255, 256):
        assert len((await mesh.admit(*[two[number % 2] for number in range(size)])).results) == size
    with pytest.raises(HoplineError, match="items"):
        await mesh.admit(*[two[0]] * 257)


async def test_a_seed_with_a_day_that_is_none_is_refused_whole(mesh: Mesh) -> None:
    good = pb.SeedDaySum(workspace_id="ws", agent_id="agt_a", day="2025-06-15", sent=1)
    for day in ("", "yesterday", "2025-13-01", "2025-06-15T00:00:00Z"):
        bad = pb.SeedDaySum(workspace_id="ws", agent_id="agt_a", day=day, sent=1)
        with pytest.raises(HoplineError, match=r"days\[1\]\.day"):
            await mesh.relay.Seed(pb.SeedRequest(epoch=1, days=[good, bad]))
    assert (await mesh.relay.Refund(pb.RefundRequest(epoch=1))).counters_lost


async def test_a_seeded_turn_must_be_in_exactly_one_state(mesh: Mesh) -> None:
    common: dict[str, Any] = {"turn_id": "t", "workspace_id": "ws", "agent_id": "agt_a"}
    for turn in (
        pb.SeedTurn(**common),
        pb.SeedTurn(queued=True, running=True, **common),
        pb.SeedTurn(running=True, ended_at=to_timestamp(1.0), **common),
    ):
        with pytest.raises(HoplineError, match=r"turns\[0\]"):
            await mesh.relay.Seed(pb.SeedRequest(epoch=1, turns=[turn]))


async def test_a_seed_over_the_contract_restores_what_it_says(mesh: Mesh) -> None:
    workspace = await mesh.workspace_id()
    agent_id, token = await mesh.agent("planner")
    now = mesh.clock.now()
    seed = pb.SeedRequest(epoch=5)
    seed.days.add(workspace_id=workspace, agent_id=agent_id, day="2025-06-15", sent=3, received=4)
    common = {"workspace_id": workspace, "agent_id": agent_id, "root_id": "R"}
    seed.turns.add(turn_id="t1", depth=2, running=True, holds_slot=True, attempt=1, **common)
    seed.turns.add(turn_id="t2", depth=2, running=True, holds_slot=True, waiting=True, **common)
    seed.turns.add(turn_id="t3", depth=2, queued=True, **common)
    seed.turns.add(turn_id="t4", depth=9, ended_at=to_timestamp(now - 10), **common)
    seed.roots.add(workspace_id=workspace, root_id="R", turns=17, extra_turns=1)
    seed.pairs.add(workspace_id=workspace, agent_a=agent_id, agent_b="agt_b", starts=[to_timestamp(now - 1)])
    assert (await mesh.relay.Seed(seed)).accepted
    usage = await mesh.usage(token).GetUsage(GetUsageRequest())
    assert (usage.sent_today, usage.received_today, usage.inbox, usage.running) == (3, 4, 1, 1)
    assert (usage.depth, usage.root_turns) == (2, 17)


# -- who may call ------------------------------------------------------------------------------------


async def test_only_services_call_the_admission_service(mesh: Mesh) -> None:
    _, token = await mesh.agent("planner")
    calls = {**EMPTY_CALLS, "Seed": pb.SeedRequest}
    for credential, expected in (
        (token, "permission_denied"),
        (await mesh.assertion(token), "permission_denied"),
        (mesh.tokens["admin"], "permission_denied"),
        ("hpl_a_nothing", "unauthenticated"),
    ):
        for method, request in calls.items():
            with pytest.raises(HoplineError) as caught:
                await getattr(mesh.admission(credential), method)(request())
            assert caught.value.reason == expected


async def test_a_hundred_calls_at_once_against_a_quota_of_ten_pass_ten_times(mesh: Mesh) -> None:
    await mesh.seed()
    limits = pb.Limits()
    limits.CopyFrom(LIMITS)
    limits.sent_per_day = 10
    items = [await mesh.item(f"k{number}", "agt_a", f"agt_{number}", limits=limits) for number in range(100)]
    responses = await asyncio.gather(*[mesh.admit(item) for item in items])
    decisions = [response.results[0].WhichOneof("decision") for response in responses]
    assert (decisions.count("admitted"), decisions.count("refusal")) == (10, 90)
