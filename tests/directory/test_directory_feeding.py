"""How the view takes over changes and snapshots."""

from __future__ import annotations

from decimal import Decimal

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hopline.registry.v1 import agent_pb2 as pb
from hopline.registry.v1.visibility_pb2 import Change, WatchChangesResponse
from hopline_directory import OPERATOR, VIEWER, Directory, Gap, Rate
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal, new_signing_key

from tests.directory.builders import ABROAD, HOME, World, agent_of, household


def deltas(*changes: Change) -> WatchChangesResponse:
    return WatchChangesResponse(changes=changes, head_seq=max(change.seq for change in changes))


def snapshot_of(view: Directory, parts: int = 1) -> list[WatchChangesResponse]:
    changes = list(view.snapshot())
    size = -(-len(changes) // parts)
    pages = [
        WatchChangesResponse(changes=changes[at : at + size], head_seq=view.seq, snapshot=True)
        for at in range(0, len(changes), size)
    ]
    pages[-1].snapshot_end = True
    return pages


def same(one: Directory, other: Directory) -> bool:
    return one.seq == other.seq and list(map(str, one.snapshot())) == list(map(str, other.snapshot()))


def test_a_repeated_change_is_no_news() -> None:
    world = household()
    assert world.view.apply(deltas(*world.log)) == []
    assert world.view.seq == world.seq


def test_a_missing_change_is_noticed_and_nothing_is_taken_over() -> None:
    view, world = Directory(), household()
    view.apply(deltas(*world.log[:3]))
    with pytest.raises(Gap):
        view.apply(deltas(*world.log[4:]))
    assert view.seq == 3
    assert view.apply(deltas(*world.log[2:])) == world.log[3:]


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_a_snapshot_makes_the_same_view_in_any_number_of_parts(parts: int) -> None:
    world = household()
    world.role("bob", OPERATOR, "a")
    world.agent(
        "d",
        kind=pb.AGENT_KIND_RECEIVE_ONLY,
        reply_mode=pb.REPLY_MODE_ALL,
        thinking_level=pb.THINKING_LEVEL_HIGH,
        runtime=pb.AGENT_RUNTIME_CLOUD,
        wake=pb.Wake(kind=pb.WAKE_KIND_WEBHOOK, webhook_url="https://wake.example"),
        labels={"team": "x"},
        tools=["whoami"],
        soul="s",
        reach=["a", "b"],
    )
    world.model("opus", input_usd_per_1m="15.5", display_name="Opus")
    world.model("haiku", is_default=True, cached_usd_per_1m="0")
    world.agent("e", crew="research", key="e", model_id="mdl_opus")
    world.delete("b")
    world.revoke("tok_old")
    world.key("key_1", new_signing_key("k").public().public_bytes(Encoding.Raw, PublicFormat.Raw))
    fresh = Directory()
    for page in snapshot_of(world.view, parts):
        assert fresh.seq == 0
        fresh.apply(page)
    assert same(fresh, world.view)
    assert fresh.agent(HOME, "agt_d") == world.view.agent(HOME, "agt_d")
    assert fresh.public_key("key_1") is not None
    assert fresh.models(HOME) == world.view.models(HOME)
    assert [each.model_identifier for each in fresh.models(HOME)] == ["haiku", "opus"]
    assert fresh.models(HOME)[1].input_usd_per_1m == Decimal("15.5")


def test_a_snapshot_says_what_differs_from_the_view_before() -> None:
    world = household()
    world.role("bob", VIEWER, "a")
    world.role("bob", OPERATOR)
    behind = Directory()
    behind.apply(deltas(*world.log))
    world.agent("b", state=pb.AGENT_STATE_PAUSED)
    world.role("bob", 0, "a")
    world.role("bob", VIEWER)
    world.revoke("tok_a")
    world.delete("c")
    news = [change for page in snapshot_of(world.view) for change in behind.apply(page)]
    assert sorted(str(change.WhichOneof("entity")) for change in news) == [
        "agent",
        "agent",
        "agent_deleted",
        "role_granted",
        "role_revoked",
        "token_revoked",
    ]
    assert same(behind, world.view)
    assert {change.agent.slug for change in news if change.WhichOneof("entity") == "agent"} == {"b", "c"}


def test_a_snapshot_without_a_model_forgets_it_and_tells_of_those_that_differ() -> None:
    world = household()
    world.model("opus")
    world.model("haiku", is_default=True)
    behind = Directory()
    behind.apply(deltas(*world.log))
    world.change(HOME, model_deleted="mdl_haiku")
    world.model("opus", is_default=True)
    news = [change for page in snapshot_of(world.view) for change in behind.apply(page)]
    assert [change.model.id for change in news] == ["mdl_opus"]
    assert same(behind, world.view)


def test_an_agent_runs_its_own_model_else_the_default_of_its_workspace() -> None:
    world = household()
    world.workspace(ABROAD)
    world.agent("own", model_id="mdl_opus")
    world.agent("old", model_id="from-before")

    def runs() -> list[str]:
        found = [world.view.agent(HOME, f"agt_{name}") for name in ("own", "old", "a")]
        return [world.view.model_of(each) for each in found if each is not None]

    assert runs() == ["mdl_opus", "from-before", ""]
    world.model("haiku", ABROAD, is_default=True)
    world.model("opus")
    assert runs() == ["opus", "from-before", ""]
    world.model("sonnet", is_default=True)
    assert runs() == ["opus", "from-before", "sonnet"]
    world.change(HOME, model_deleted="mdl_sonnet")
    assert runs() == ["opus", "from-before", ""]


def test_half_a_snapshot_is_forgotten_when_its_stream_ends() -> None:
    world, fresh = household(), Directory()
    first, _ = snapshot_of(world.view, 2)
    fresh.apply(first)
    fresh.restart()
    for page in snapshot_of(world.view, 2):
        fresh.apply(page)
    assert same(fresh, world.view)


def test_a_snapshot_in_the_making_does_not_change_with_the_view() -> None:
    world = household()
    taking = world.view.snapshot()
    first = next(taking)
    world.agent("zz")
    world.user("carol")
    slugs = {change.agent.slug for change in [first, *taking] if change.WhichOneof("entity") == "agent"}
    assert slugs == {"a", "b", "c"}


def test_a_deleted_agent_stays_as_a_tombstone() -> None:
    world = household()
    world.delete("b")
    tombstone = world.view.agent(HOME, "agt_b")
    assert tombstone is not None
    assert tombstone.deleted
    assert tombstone.name == "B"
    assert [agent.slug for agent in world.view.agents(HOME)] == ["a", "c"]


def test_a_revoked_token_is_refused_and_forgotten_when_no_assertion_can_be_left_of_it() -> None:
    world = household()
    caller = agent_of(world, "a")
    assert not world.view.is_revoked(caller)
    world.revoke(caller.token_id, at=1000.0)
    assert world.view.is_revoked(caller)
    world.revoke("tok_other", at=1600.0)
    assert world.view.is_revoked(caller)
    world.revoke("tok_another", at=1601.0)
    assert not world.view.is_revoked(caller)


def test_a_deleted_agent_and_one_of_another_workspace_are_refused() -> None:
    world = household()
    assert world.view.is_revoked(Principal("agent", "agt_a", "ws_abroad"))
    assert not world.view.is_revoked(Principal("agent", "agt_not_known_yet", HOME))
    world.delete("a")
    assert world.view.is_revoked(agent_of(world, "a"))
    assert not world.view.is_revoked(Principal("service", "relay", ""))


def test_a_key_is_known_until_it_is_withdrawn() -> None:
    world = World()
    world.key("key_1", new_signing_key("k").public().public_bytes(Encoding.Raw, PublicFormat.Raw))
    assert world.view.public_key("key_1") is not None
    world.key("key_1", b"")
    assert world.view.public_key("key_1") is None


def test_limits_are_read_into_numbers() -> None:
    world = household()
    policy = world.view.policy(HOME)
    assert policy.pair_budget == Rate(30, 300)
    assert policy.refusals is None
    assert policy.credits == Decimal("0.25")
    assert policy.max_depth == 4


def test_limits_of_a_workspace_that_is_not_known_are_unavailable() -> None:
    with pytest.raises(HoplineError) as caught:
        World().view.policy(HOME)
    assert caught.value.reason == "unavailable"


def test_an_entity_of_a_newer_registry_is_passed_over() -> None:
    world = household()
    world.change(HOME)
    assert world.view.seq == world.seq
