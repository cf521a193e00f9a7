"""The stream of changes: a snapshot, then every change once and in order, heartbeats between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hopline.registry.v1.agent_pb2 import (
    Agent,
    CreateAgentRequest,
    DeleteAgentRequest,
    ListAgentsRequest,
    PauseAgentRequest,
    ResumeAgentRequest,
)
from hopline.registry.v1.identity_pb2 import GrantRoleRequest, ListTokensRequest, RevokeTokenRequest
from hopline.registry.v1.visibility_pb2 import Change, WatchChangesRequest, WatchChangesResponse
from hopline.registry.v1.workspace_pb2 import ApplyPresetRequest
from hopline_directory import OPERATOR, Directory, Follower, Guard
from hopline_registry.feed import CONSUMED_SECONDS, HEARTBEAT_SECONDS, MAX_WATCHERS
from hopline_rpc.clock import ManualClock
from hopline_rpc.errors import HoplineError

from tests.registry.builders import Caller, Rig, refusal

pytestmark = pytest.mark.both_stores


class Watch:
    """A stream of changes that is read when the test says so."""

    def __init__(self, caller: Caller, from_seq: int = 0) -> None:
        self.call = caller.visibility.WatchChanges(WatchChangesRequest(from_seq=from_seq))
        self.changes: list[Change] = []

    async def read(self) -> WatchChangesResponse:
        response = await self.call.read()
        assert isinstance(response, WatchChangesResponse)
        self.changes += [] if response.snapshot else response.changes
        return response

    async def read_to(self, seq: int) -> list[Change]:
        """Read until a change has come, and return all that came after the snapshot."""
        while not self.changes or self.changes[-1].seq < seq:
            await self.read()
        return self.changes


async def until(clock: ManualClock, condition: Callable[[], bool]) -> None:
    """Let things that happen on threads happen."""
    async with asyncio.timeout(20):
        while not condition():
            await clock.settle()


def head(rig: Rig) -> int:
    return rig.registry.directory.seq


async def test_a_reader_from_nothing_gets_a_snapshot_that_makes_the_whole_view(rig: Rig) -> None:
    await rig.agent("Planner")
    await rig.user("Alice", OPERATOR)
    gone, _ = await rig.agent("Gone")
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent="gone"))
    watch = Watch(await rig.service())
    view = Directory()
    while view.seq == 0:
        response = await watch.read()
        assert response.snapshot
        assert all(not change.HasField("audit") and change.seq == head(rig) for change in response.changes)
        view.apply(response)
    assert list(map(str, view.snapshot())) == list(map(str, rig.registry.directory.snapshot()))
    (home,) = view.workspaces()
    tombstone = view.agent(home.id, gone.id)
    assert tombstone is not None
    assert tombstone.deleted


async def test_a_large_snapshot_comes_in_parts(rig: Rig) -> None:
    for number in range(20):
        await rig.agent(f"A{number}", soul="x" * 65_536, instructions="y" * 65_536)
    watch, view, parts = Watch(await rig.service()), Directory(), 0
    while view.seq == 0:
        response = await watch.read()
        assert response.ByteSize() < 2_000_000
        view.apply(response)
        parts += 1
    assert parts == 3
    assert list(map(str, view.snapshot())) == list(map(str, rig.registry.directory.snapshot()))


async def test_many_large_changes_come_in_parts_from_memory_and_from_disk(rig: Rig) -> None:
    start = head(rig)
    for number in range(20):
        await rig.agent(f"A{number}", soul="x" * 65_536, instructions="😀" * 65_536)

    async def follow(current: Rig) -> None:
        watch = Watch(await current.service(), start)
        while not watch.changes or watch.changes[-1].seq < head(current):
            assert (await watch.read()).ByteSize() < 3_000_000
        assert [change.seq for change in watch.changes] == list(range(start + 1, head(current) + 1))

    await follow(rig)
    again = await rig.reopen()
    await follow(again)
    await again.registry.close()


async def test_every_change_comes_once_without_gaps_under_concurrent_writes(rig: Rig) -> None:
    mesh = await rig.service()
    start = head(rig)
    watches = [Watch(mesh, start) for _ in range(3)]

    async def write(number: int) -> None:
        await rig.agent(f"Agent {number}")
        await rig.admin.agents.PauseAgent(PauseAgentRequest(agent=f"agent-{number}"))
        await rig.admin.agents.ResumeAgent(ResumeAgentRequest(agent=f"agent-{number}"))

    async def follow(watch: Watch, last: int) -> list[int]:
        found = [change.seq for change in await watch.read_to(last)]
        reading = asyncio.ensure_future(watch.call.read())  # comes back for more, so that writes go on
        await asyncio.sleep(0)
        reading.cancel()
        return found

    last = start + 20 * 4
    followers = [asyncio.ensure_future(follow(watch, last)) for watch in watches]
    await asyncio.gather(*(write(number) for number in range(20)))
    assert head(rig) == last
    for found in await asyncio.gather(*followers):
        assert found == list(range(start + 1, last + 1))


@pytest.mark.parametrize("behind", [1, 5, 12])
async def test_a_reader_comes_back_where_it_was(rig: Rig, behind: int) -> None:
    for number in range(6):
        await rig.agent(f"A{number}")
    watch = Watch(await rig.service(), head(rig) - behind)
    changes = await watch.read_to(head(rig))
    assert [change.seq for change in changes] == list(range(head(rig) - behind + 1, head(rig) + 1))
    assert all(change.HasField("audit") for change in changes)


async def test_a_reader_comes_back_over_a_restart(rig: Rig) -> None:
    seen = head(rig)
    await rig.agent("Planner")
    again = await rig.reopen()
    changes = await Watch(await again.service(), seen).read_to(head(again))
    assert [change.seq for change in changes] == list(range(seen + 1, head(again) + 1))
    assert changes[0].agent.slug == "planner"
    await again.registry.close()


async def test_a_reader_that_is_up_to_date_gets_a_heartbeat_at_once(rig: Rig) -> None:
    mesh = await rig.service()
    response = await Watch(mesh, head(rig)).read()
    assert not response.changes
    assert response.head_seq == head(rig)


async def test_a_reader_from_another_history_gets_a_snapshot(rig: Rig) -> None:
    mesh = await rig.service()
    assert (await Watch(mesh, head(rig) + 1).read()).snapshot


async def test_a_heartbeat_comes_at_least_every_200_milliseconds(rig: Rig) -> None:
    assert HEARTBEAT_SECONDS < 0.2
    mesh = await rig.service()
    watch = Watch(mesh, head(rig))
    await watch.read()
    for _ in range(3):
        beat = asyncio.ensure_future(watch.read())
        await rig.clock.advance(HEARTBEAT_SECONDS * 0.9)
        assert not beat.done()
        await rig.clock.advance(HEARTBEAT_SECONDS * 0.2)
        assert (await beat).head_seq == head(rig)


async def test_old_changes_are_dropped_and_a_reader_that_wants_them_gets_a_snapshot(rig: Rig) -> None:
    await rig.agent("Planner")
    pause, resume = PauseAgentRequest(agent="planner"), ResumeAgentRequest(agent="planner")
    for _ in range(60):
        await rig.admin.agents.PauseAgent(pause)
        await rig.admin.agents.ResumeAgent(resume)
    end = head(rig)
    again = await rig.reopen(registry_changes_kept="100")
    mesh = await again.service()

    async def first(seq: int) -> WatchChangesResponse:
        return await Watch(mesh, seq).read()

    async with asyncio.timeout(20):
        while not (await first(1)).snapshot:
            await again.clock.advance(10)
    assert (await first(end - 90)).changes[0].seq == end - 89
    assert (await first(end - 101)).snapshot
    await again.registry.close()


async def test_a_write_returns_when_followers_in_the_process_hold_its_change(rig: Rig) -> None:
    mesh = await rig.service()
    agent, _ = await rig.agent("Planner")
    views = []
    followers = []
    for _ in range(3):
        view = Directory()
        follower = Follower(mesh.channel, view, rig.clock)
        await follower.start()
        await follower.ready()
        views.append(view)
        followers.append(follower)
    home = views[0].workspaces()[0].id

    def states() -> set[str]:
        records = [view.agent(home, agent.id) for view in views]
        return {record.state for record in records if record is not None}

    await rig.admin.agents.PauseAgent(PauseAgentRequest(agent="planner"))
    assert states() == {"paused"}
    await rig.admin.agents.ResumeAgent(ResumeAgentRequest(agent="planner"))
    assert states() == {"active"}
    await rig.admin.workspaces.ApplyPreset(ApplyPresetRequest(preset="strict"))
    assert all(view.policy(home).max_depth == 2 for view in views)
    for follower in followers:
        await follower.close()


async def test_a_write_waits_a_second_at_most_for_a_watcher_that_does_not_come_back(rig: Rig) -> None:
    mesh = await rig.service()
    watch = Watch(mesh, head(rig))
    await watch.read()
    reading = asyncio.ensure_future(watch.read())
    await until(rig.clock, lambda: bool(rig.registry._feed._watchers))
    writing = asyncio.ensure_future(rig.agent("Planner"))
    await until(rig.clock, reading.done)
    await rig.clock.advance(CONSUMED_SECONDS * 0.9)
    assert not writing.done()
    await rig.clock.advance(CONSUMED_SECONDS * 0.2)
    await writing
    # It is waited for no more until it has caught up.
    await rig.agent("Another")
    await watch.read_to(head(rig))


async def test_a_watcher_that_leaves_keeps_nobody_waiting(rig: Rig) -> None:
    mesh = await rig.service()
    watch = Watch(mesh, head(rig))
    await watch.read()
    reading = asyncio.ensure_future(watch.read())
    await until(rig.clock, lambda: bool(rig.registry._feed._watchers))
    writing = asyncio.ensure_future(rig.agent("Planner"))
    await until(rig.clock, reading.done)
    watch.call.cancel()
    await writing


async def test_a_write_whose_caller_gives_up_is_told_all_the_same(rig: Rig) -> None:
    mesh = await rig.service()
    start = head(rig)
    for number in range(20):
        call = rig.admin.agents.CreateAgent(CreateAgentRequest(agent=Agent(name=f"A{number}")))
        writing = asyncio.ensure_future(_response(call))
        for _ in range(number):
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    await rig.agent("Last")
    changes = await Watch(mesh, start).read_to(head(rig))
    assert [change.seq for change in changes] == list(range(start + 1, head(rig) + 1))
    listed = await rig.admin.agents.ListAgents(ListAgentsRequest())
    told = [change.agent.slug for change in changes if change.HasField("agent")]
    assert sorted(told) == [agent.slug for agent in listed.agents]


async def _response(call: Any) -> Any:
    return await call


async def test_there_is_a_bound_to_how_many_watch(rig: Rig) -> None:
    mesh = await rig.service()
    watches = [Watch(mesh, head(rig)) for _ in range(MAX_WATCHERS)]
    for watch in watches:
        await watch.read()
    with pytest.raises(HoplineError) as caught:
        await Watch(mesh, head(rig)).read()
    assert caught.value.reason == "overloaded"
    watches[0].call.cancel()
    await rig.clock.settle()
    await Watch(mesh, head(rig)).read()


async def test_changes_say_what_happened_who_did_it_and_to_what(rig: Rig) -> None:
    alice = await rig.user("Alice", OPERATOR)
    mesh = await rig.service()
    start = head(rig)
    await rig.agent("Planner", alice)
    await alice.agents.PauseAgent(PauseAgentRequest(agent="planner"))
    await rig.admin.workspaces.ApplyPreset(ApplyPresetRequest(preset="strict"))
    await rig.admin.identity.GrantRole(GrantRoleRequest(user="Alice", agent="planner", role=OPERATOR))  # type: ignore[arg-type]
    await alice.agents.DeleteAgent(DeleteAgentRequest(agent="planner"))
    changes = await Watch(mesh, start).read_to(head(rig))
    told = [(change.audit.action, change.audit.actor_name, change.WhichOneof("entity")) for change in changes]
    assert told == [
        ("agent.created", "Alice", "agent"),
        ("token.created", "Alice", "token_created"),
        ("agent.paused", "Alice", "agent"),
        ("policy.updated", "admin", "policy"),
        ("role.granted", "admin", "role_granted"),
        ("agent.deleted", "Alice", "agent_deleted"),
        ("token.revoked", "Alice", "token_revoked"),
    ]
    assert dict(changes[3].audit.details)["preset"] == "strict"
    assert all(change.audit.actor_kind == "user" and change.audit.actor_id for change in changes)


async def test_no_secret_is_in_the_feed(rig: Rig) -> None:
    _, caller = await rig.agent("Planner")
    mesh = await rig.service()
    everything = b"".join(change.SerializeToString() for change in await Watch(mesh, 1).read_to(head(rig)))
    for secret in (rig.root, caller.token, mesh.token):
        assert secret.encode() not in everything


async def test_streams_end_when_the_registry_drains(rig: Rig) -> None:
    watch = Watch(await rig.service(), head(rig))
    await watch.read()
    reading = asyncio.ensure_future(watch.read())
    await rig.registry.drain()
    assert (await refusal(reading)).reason == "unavailable"


async def test_a_guard_ends_the_calls_of_whoever_is_revoked(rig: Rig) -> None:
    agent, caller = await rig.agent("Planner")
    mesh = await rig.service()
    guard = Guard(mesh.channel, "hopline", rig.clock)
    guard.protect(rig.registry.server.live)
    await guard.start()
    assert (await guard.authenticator.principal(caller.token)).id == agent.id
    token = (await rig.admin.identity.ListTokens(ListTokensRequest(agent=agent.id))).tokens[0]
    await rig.admin.identity.RevokeToken(RevokeTokenRequest(token_id=token.id))
    assert (await refusal(guard.authenticator.principal(caller.token))).reason == "unauthenticated"
    await rig.clock.advance(0.6)
    await rig.registry.server.stop()
    asking = asyncio.ensure_future(guard.authenticator.principal(caller.token))
    await rig.clock.advance(1.1)
    assert (await refusal(asking)).reason == "unavailable"
    await guard.close()


async def test_many_large_changes_come_in_parts_that_can_be_carried(rig: Rig) -> None:
    seq = head(rig)
    soul = "\N{GRINNING FACE}" * 65_536
    for number in range(12):
        await rig.agent(f"agent {number}", soul=soul, instructions=soul)
    watch = Watch(await rig.service(), from_seq=seq)
    sizes = []
    while not watch.changes or watch.changes[-1].seq < head(rig):
        sizes.append((await watch.read()).ByteSize())
    assert [change.seq for change in watch.changes] == list(range(seq + 1, head(rig) + 1))
    assert max(sizes) < 2 * 1024 * 1024
