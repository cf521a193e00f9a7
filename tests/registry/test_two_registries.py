"""Two registries on one PostgreSQL: what one writes, the other knows and tells before a second is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hopline.registry.v1.agent_pb2 import GetAgentRequest, ListAgentsRequest, PauseAgentRequest
from hopline.registry.v1.identity_pb2 import (
    CreateUserRequest,
    GrantRoleRequest,
    ListTokensRequest,
    ListUsersRequest,
    RevokeTokenRequest,
    RotateKeysRequest,
    User,
)
from hopline.registry.v1.visibility_pb2 import GetSelfRequest, WatchChangesRequest, WatchChangesResponse
from hopline_directory import OPERATOR, Guard
from hopline_registry.feed import POLL_SECONDS
from hopline_rpc.clock import ManualClock

from tests.registry.builders import Rig, refusal
from tests.support import postgres, stores


class Two(NamedTuple):
    """The registries, and the address of what they share."""

    first: Rig
    second: Rig
    clock: ManualClock
    url: str

    async def passes(self) -> None:
        """Let one look of each at the table of changes go by."""
        await self.clock.advance(POLL_SECONDS * 1.5)
        async with asyncio.timeout(20):
            while self.first.registry.directory.seq != self.second.registry.directory.seq:
                await self.clock.advance(POLL_SECONDS)

    async def follow(self, rig: Rig, service: str = "relay") -> Guard:
        """Return the view of a service that follows one of them."""
        guard = Guard((await rig.service(service)).channel, "hopline", self.clock)
        starting = asyncio.create_task(guard.start())
        async with asyncio.timeout(20):
            while not starting.done():
                await self.clock.settle()
        return guard


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    clock = ManualClock()
    with postgres.database(stores.migrated()) as url:
        first = await Rig.beside(tmp_path / "first", clock, url)
        (tmp_path / "second").mkdir()
        (tmp_path / "second" / "admin.token").write_text(first.root)
        second = await Rig.beside(tmp_path / "second", clock, url)
        yield Two(first, second, clock, url)
        await first.registry.close()
        await second.registry.close()


async def test_what_both_write_at_once_is_one_gapless_history_at_both(two: Two) -> None:
    rigs = (two.first, two.second)
    made = [rigs[n % 2].admin.identity.CreateUser(CreateUserRequest(name=f"user {n}")) for n in range(20)]
    await asyncio.gather(*made)
    await two.passes()
    seen = [{user.name for user in await _users(rig)} for rig in rigs]
    assert seen[0] == seen[1]
    assert len(seen[0]) == 21
    head = rigs[0].registry.directory.seq
    for rig in rigs:
        assert await _numbers(rig, head) == list(range(2, head + 1))


async def _users(rig: Rig) -> list[User]:
    return list((await rig.admin.identity.ListUsers(ListUsersRequest(page_size=200))).users)


async def _numbers(rig: Rig, head: int) -> list[int]:
    watcher = await rig.service()
    call = watcher.visibility.WatchChanges(WatchChangesRequest(from_seq=1))
    found: list[int] = []
    while not found or found[-1] < head:
        response = await call.read()
        assert isinstance(response, WatchChangesResponse)
        found += [change.seq for change in response.changes]
    call.cancel()
    return [seq for seq in found if seq <= head]


async def test_a_credential_of_one_is_good_at_the_other_at_once_and_revoked_within_a_look(two: Two) -> None:
    agent, ours = await two.first.agent("writer")
    there = two.second.caller(ours.token)
    assert (await there.visibility.GetSelf(GetSelfRequest())) is not None
    tokens = await two.first.admin.identity.ListTokens(ListTokensRequest(agent=agent.slug))
    await two.first.admin.identity.RevokeToken(RevokeTokenRequest(token_id=tokens.tokens[0].id))
    await two.passes()
    assert (await refusal(there.visibility.GetSelf(GetSelfRequest()))).reason == "unauthenticated"


async def test_roles_and_pauses_of_one_reach_whoever_follows_the_other(two: Two) -> None:
    guard = await two.follow(two.second)
    bob = await two.first.admin.identity.CreateUser(CreateUserRequest(name="Bob"))
    await two.first.admin.identity.GrantRole(GrantRoleRequest(user="Bob", role=OPERATOR))  # type: ignore[arg-type]
    agent, _ = await two.first.agent("writer")
    home = (await two.first.admin.visibility.GetSelf(GetSelfRequest())).workspace.id
    await two.first.admin.agents.PauseAgent(PauseAgentRequest(agent=agent.slug))
    await two.passes()
    async with asyncio.timeout(20):
        while guard.directory.seq < two.first.registry.directory.seq:
            await two.clock.settle()
    assert guard.directory.workspace_role(home, bob.user.id) == OPERATOR
    seen = guard.directory.agent(home, agent.id)
    assert seen is not None
    assert seen.state == "paused"
    await guard.close()


async def test_whoever_comes_from_the_other_and_is_ahead_is_not_taken_back(two: Two) -> None:
    await two.first.agent("writer")
    head = two.first.registry.directory.seq
    watcher = await two.second.service()
    call = watcher.visibility.WatchChanges(WatchChangesRequest(from_seq=head))
    response = await call.read()
    call.cancel()
    assert isinstance(response, WatchChangesResponse)
    assert not response.snapshot
    assert response.head_seq >= head


async def test_a_key_that_one_makes_is_published_by_both_and_signs_at_both(two: Two) -> None:
    rotated = await two.first.admin.identity.RotateKeys(RotateKeysRequest())
    await two.passes()
    assert two.second.registry.directory.public_key(rotated.kid) is not None
    again = await two.second.admin.identity.RotateKeys(RotateKeysRequest())
    assert again.kid == rotated.kid


async def test_pages_begun_at_one_go_on_at_the_other(two: Two) -> None:
    for n in range(3):
        await two.first.agent(f"agent {n}")
    await two.passes()
    first = await two.first.admin.agents.ListAgents(ListAgentsRequest(page_size=2))
    rest = await two.second.admin.agents.ListAgents(
        ListAgentsRequest(page_size=2, page_token=first.next_page_token)
    )
    assert [agent.slug for agent in (*first.agents, *rest.agents)] == ["agent-0", "agent-1", "agent-2"]


async def test_one_that_cannot_read_what_others_write_says_nothing_and_lets_nobody_in(two: Two) -> None:
    guard = await two.follow(two.second)
    store = two.second.registry._db
    await store.reader.close()
    await two.clock.advance(1.0)
    assert not guard.follower.fresh
    assert await two.second.registry.missing() != []
    error = await refusal(two.second.admin.agents.GetAgent(GetAgentRequest(agent="writer")))
    assert error.reason == "unavailable"
    await guard.close()


async def test_a_further_registry_leaves_the_token_of_the_installation_in_force(
    two: Two, tmp_path: Path
) -> None:
    (tmp_path / "second" / "admin.token").unlink()
    await two.second.registry.close()
    with pytest.raises(FileNotFoundError):
        await Rig.beside(tmp_path / "second", two.clock, two.url)
    assert (await two.first.admin.visibility.GetSelf(GetSelfRequest())) is not None
