"""What people see of what goes on: the floor, the tree of a delegation, and why something does not go on."""

from __future__ import annotations

import asyncio

from hopline.registry.v1 import agent_pb2, identity_pb2
from hopline.relay.v1 import floor_pb2 as pb
from hopline.relay.v1 import session_pb2

from tests.support.hook_rig import HookRig, never
from tests.support.owners import ask_within
from tests.support.relay_mesh import Caller, RelayMesh, refusal, until

VIEWER = identity_pb2.ROLE_VIEWER


async def floor(reader: Caller, agent: str = "", **more: object) -> pb.GetFloorResponse:
    request = pb.GetFloorRequest(agent=agent, **more)  # type: ignore[arg-type]
    answer: pb.GetFloorResponse = await reader.floor.GetFloor(request)
    return answer


async def of(mesh: RelayMesh, name: str) -> pb.FloorAgent:
    [found] = (await floor(mesh.admin, name)).agents
    return found


async def tree(reader: Caller, turn_id: str) -> list[pb.TreeNode]:
    answer: pb.GetTreeResponse = await reader.floor.GetTree(pb.GetTreeRequest(turn_id=turn_id))
    return list(answer.nodes)


def places(mesh: RelayMesh, count: int, presence: str = "idle") -> None:
    """Have every agent's worker take so many turns."""
    mesh.relay.turns.places_source = lambda workspace_id, agent_id: count
    mesh.relay.turns.presence_source = lambda workspace_id, agent_id: presence if count else None


async def test_the_floor_tells_what_each_agent_does_for_whom_and_how_deep(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    adas, bobs = await mesh.worker(ada), await mesh.worker(bob)
    places(mesh, 8, "busy")
    await mesh.admin.send(ada, text="plan it")
    outer = await adas.next()
    await adas.ask(outer, bob)
    await bobs.next()
    found = await floor(mesh.admin)
    assert [each.agent.name for each in found.agents] == ["ada", "bob"]
    assert (found.runs_used, found.runs_limit, found.queued_count) == (2, 10, 0)
    turns = [each.running[0].turn for each in found.agents]
    assert [(turn.caused_by.display, turn.depth) for turn in turns] == [("admin", 0), ("ada (for admin)", 1)]
    assert [each.presence for each in found.agents] == ["busy", "busy"]
    assert not any(each.running[0].HasField("wait") for each in found.agents)


async def test_it_comes_page_by_page(mesh: RelayMesh) -> None:
    for name in ("cleo", "ada", "bob"):
        await mesh.agent(name)
    first = await floor(mesh.admin, page_size=2)
    rest = await floor(mesh.admin, page_size=2, page_token=first.next_page_token)
    assert [each.agent.name for each in (*first.agents, *rest.agents)] == ["ada", "bob", "cleo"]
    assert not rest.next_page_token


async def test_what_nobody_works_on_says_so(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    await mesh.admin.send(ada)
    found = await of(mesh, "ada")
    assert (found.presence, found.queued_count) == ("offline", 1)
    assert found.queued_wait.reason == pb.WAIT_REASON_NO_WORKER
    assert found.queued_wait.remedy == "hopline attach --agent ada -- COMMAND"


async def test_an_agent_that_sleeps_is_being_woken(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada", wake=agent_pb2.Wake(kind=agent_pb2.WAKE_KIND_EXEC))
    await mesh.admin.send(ada)
    found = await of(mesh, "ada")
    assert (found.presence, found.queued_wait.reason) == ("sleeping", pb.WAIT_REASON_WAKING)


async def test_a_paused_agent_says_so(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    await mesh.admin.send(ada)
    await mesh.pause(ada)
    found = await of(mesh, "ada")
    assert found.presence == "paused"
    assert found.queued_wait.reason == pb.WAIT_REASON_PAUSED
    assert found.queued_wait.remedy == "hopline agent resume ada"


async def test_a_full_run_queue_and_a_full_worker_are_told_apart(mesh: RelayMesh) -> None:
    await mesh.policy(concurrent_runs=1)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    adas = await mesh.worker(ada)
    await mesh.admin.send(ada)
    await mesh.admin.send(bob)
    await adas.next()
    places(mesh, 8)
    wait = (await of(mesh, "bob")).queued_wait
    assert wait.reason == pb.WAIT_REASON_RUN_QUEUE
    assert "all 1 run slots" in wait.text
    assert wait.remedy == "hopline policy set concurrent_runs=2"
    await mesh.policy(concurrent_runs=5)
    other = await mesh.person("zoe", 2)
    await other.send(ada)
    places(mesh, 1, "busy")
    assert (await of(mesh, "ada")).queued_wait.reason == pb.WAIT_REASON_WORKER_FULL


async def test_a_turn_that_waits_gives_its_slot_back_and_the_floor_counts_it_so(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    adas = await mesh.worker(ada)
    places(mesh, 8, "busy")
    await mesh.admin.send(ada)
    outer = await adas.next()
    asking = asyncio.create_task(adas.ask(outer, bob, wait=50))
    await until(lambda: mesh.relay.waits.count(), "the wait")

    async def told() -> pb.GetFloorResponse:
        return await floor(mesh.admin)

    found = await told()
    while not found.agents[0].running[0].HasField("wait"):
        found = await told()
    wait = found.agents[0].running[0].wait
    assert wait.reason == pb.WAIT_REASON_ANSWER
    assert found.runs_used == 0
    nodes = await tree(mesh.admin, outer.turn_id)
    assert nodes[1].turn.id == wait.turn_id
    asking.cancel()


async def test_a_question_to_an_owner_names_itself(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    adas = await mesh.worker(ada)
    places(mesh, 8, "busy")
    await mesh.admin.send(ada)
    turn = await adas.next()
    asked = await ask_within(adas, turn)
    wait = (await of(mesh, "ada")).running[0].wait
    assert (wait.reason, wait.escalation_id) == (pb.WAIT_REASON_OWNER, asked.id)
    assert wait.remedy == f"hopline answer {asked.id} TEXT"
    assert (await tree(mesh.admin, turn.turn_id))[0].wait.escalation_id == asked.id


async def test_a_worker_that_is_silent_and_one_that_is_gone_are_told(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    adas = await mesh.worker(ada)
    places(mesh, 8, "busy")
    await mesh.admin.send(ada)
    turn = await adas.next()
    assert not (await of(mesh, "ada")).running[0].HasField("wait")
    await mesh.clock.advance(16)
    wait = (await of(mesh, "ada")).running[0].wait
    assert wait.reason == pb.WAIT_REASON_WORKER_SILENT
    assert "has not been heard from (last heard of 16 s ago)" in wait.text
    assert wait.remedy == f"hopline cancel {turn.turn_id}"
    await adas.renew(turn.held)
    assert not (await of(mesh, "ada")).running[0].HasField("wait")
    places(mesh, 0)
    wait = (await of(mesh, "ada")).running[0].wait
    assert "its worker is gone" in wait.text
    assert wait.remedy == "hopline attach --agent ada -- COMMAND"


async def test_turns_of_one_session_come_one_after_the_other(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    adas = await mesh.worker(ada)
    places(mesh, 8, "busy")
    prompt = session_pb2.PromptRequest(agent=ada.id, text="go", wait_seconds=0)
    begun = (await mesh.admin.sessions.Prompt(prompt)).turn
    turn = await adas.next()
    prompt.session_id = begun.session_id
    await mesh.admin.sessions.Prompt(prompt)
    wait = (await of(mesh, "ada")).queued_wait
    assert (wait.reason, wait.turn_id) == (pb.WAIT_REASON_SESSION, turn.turn_id)


async def test_a_hook_that_is_asked_for_long_or_keeps_failing_is_seen(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig = HookRig(mesh)
    rig.add("slow", never, closed=True)
    sending = asyncio.create_task(ada.ask(bob))
    await until(lambda: rig.asked, "the hook")
    await mesh.clock.advance(1.5)
    [hook] = (await floor(mesh.admin)).hooks
    assert list((await floor(await mesh.person("vera", VIEWER))).hooks) == [hook]
    assert not (await floor(await mesh.person("zoe"))).hooks
    assert (hook.plugin_name, hook.wait.reason) == ("Slow", pb.WAIT_REASON_HOOK)
    assert "has been asked for 1.5 s" in hook.wait.text
    await mesh.clock.advance(1)
    await sending
    [hook] = (await floor(mesh.admin)).hooks
    assert "fails (it did not answer within 2 s): what it has to see is canceled" in hook.wait.text
    assert hook.wait.remedy == "hopline plugin uninstall slow"


async def test_a_tree_shows_who_asked_whom_in_the_order_of_a_walk(mesh: RelayMesh) -> None:
    names = ["ada", "bob", "cleo", "dan"]
    ada, bob, cleo, dan = [await mesh.agent(name) for name in names]
    adas, bobs = await mesh.worker(ada), await mesh.worker(bob)
    await mesh.admin.send(ada, text="the whole thing")
    outer = await adas.next()
    await adas.ask(outer, bob, text="a part")
    await adas.ask(outer, dan, text="another part")
    inner = await bobs.next()
    await bobs.ask(inner, cleo, text="a part of a part")
    nodes = await tree(mesh.admin, inner.turn_id)
    assert [(node.turn.agent.name, node.level, node.excerpt) for node in nodes] == [
        ("ada", 0, "the whole thing"),
        ("bob", 1, "a part"),
        ("cleo", 2, "a part of a part"),
        ("dan", 1, "another part"),
    ]
    assert nodes[2].wait.reason == pb.WAIT_REASON_NO_WORKER


async def test_agents_that_a_person_may_not_look_at_are_on_no_floor_and_in_no_tree(mesh: RelayMesh) -> None:
    ada, bob, cleo = [await mesh.agent(name) for name in ("ada", "bob", "cleo")]
    adas, bobs = await mesh.worker(ada), await mesh.worker(bob)
    await mesh.admin.send(ada)
    outer = await adas.next()
    await adas.ask(outer, bob, text="secret")
    inner = await bobs.next()
    await bobs.ask(inner, cleo)
    zoe = await mesh.person("zoe")
    for agent in (ada, cleo):
        await mesh.grant("zoe", VIEWER, agent.id)
    assert [each.agent.name for each in (await floor(zoe)).agents] == ["ada", "cleo"]
    nodes = await tree(zoe, outer.turn_id)
    assert [(node.turn.agent.name, node.level) for node in nodes] == [("ada", 0), ("cleo", 1)]
    assert "secret" not in str(nodes)
    assert inner.turn_id not in str([node.wait for node in nodes])
    nobodys = "trn_01m8r6qq5d3rrwyeyqtm4ajxm6"
    hidden, never_was = await refusal(tree(zoe, inner.turn_id)), await refusal(tree(zoe, nobodys))
    assert (hidden.reason, hidden.message.replace(inner.turn_id, nobodys)) == (
        never_was.reason,
        never_was.message,
    )
    assert hidden.reason == "not_found"
    assert (await refusal(floor(zoe, "bob"))).reason == "not_found"
