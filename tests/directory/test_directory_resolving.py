"""What a reference means, and what is said when it means nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hopline.registry.v1 import agent_pb2 as pb
from hopline_directory import ADMIN, OPERATOR, VIEWER
from hopline_rpc.errors import HoplineError, to_status
from hopline_rpc.principals import Principal

from tests.directory.builders import ABROAD, HOME, World, agent_of, household


def refusal(world: World, caller: Principal, ref: str) -> HoplineError:
    with pytest.raises(HoplineError) as caught:
        world.view.resolve(caller, ref)
    return caught.value


@pytest.mark.parametrize("ref", ["agt_b", "b", "B"], ids=["id", "slug", "name"])
def test_a_peer_is_found_by_id_slug_or_name(ref: str) -> None:
    world = household()
    assert world.view.resolve(agent_of(world, "a"), ref).slug == "b"


def test_a_slug_goes_before_a_name() -> None:
    world = household()
    world.agent("d", name="b")
    assert world.view.resolve(agent_of(world, "a"), "b").slug == "b"


def test_a_name_goes_before_a_slug_that_the_caller_may_not_see() -> None:
    world = household()
    world.agent("d", name="c")
    assert world.view.resolve(agent_of(world, "a"), "c").slug == "d"


def test_a_shared_name_is_ambiguous_and_lists_the_ids() -> None:
    world = household()
    world.agent("d", name="B")
    error = refusal(world, agent_of(world, "a"), "B")
    assert error.reason == "ambiguous"
    assert error.details["ids"] == ["agt_b", "agt_d"]
    assert "agt_b" in error.message
    assert "agt_d" in error.message


def test_a_name_shared_with_an_agent_out_of_sight_is_not_ambiguous() -> None:
    world = household()
    world.agent("c", owner="bob", name="B")
    assert world.view.resolve(agent_of(world, "a"), "B").slug == "b"


@pytest.mark.parametrize("ref", ["agt_a", "a", "A"], ids=["id", "slug", "name"])
@pytest.mark.parametrize("reach", [[], ["b"]], ids=["free", "with a reach list"])
def test_an_agent_that_addresses_itself_is_told_so(ref: str, reach: list[str]) -> None:
    world = household()
    world.agent("a", reach=reach)
    error = refusal(world, agent_of(world, "a"), ref)
    assert error.reason == "invalid_argument"
    assert "itself" in error.message


def hidden_worlds() -> dict[str, World]:
    """In each of them `x` is out of the sight of `a` for another reason."""
    worlds = {name: household() for name in ("none", "role", "paused", "group", "reach", "abroad", "deleted")}
    worlds["role"].agent("x", owner="bob")
    worlds["paused"].agent("x", state=pb.AGENT_STATE_PAUSED)
    worlds["group"].agent("x", is_group_only_callable=True)
    worlds["reach"].agent("x")
    worlds["reach"].agent("a", reach=["b"])
    worlds["abroad"].workspace(ABROAD)
    worlds["abroad"].agent("x", workspace_id=ABROAD)
    worlds["deleted"].agent("x")
    worlds["deleted"].delete("x")
    return worlds


@pytest.mark.parametrize("ref", ["agt_x", "x", "X"], ids=["id", "slug", "name"])
def test_every_miss_is_the_same_to_the_byte(ref: str) -> None:
    answers = set()
    for world in hidden_worlds().values():
        wire = to_status(refusal(world, agent_of(world, "a"), ref))
        answers.add((wire.code, wire.message, wire.trailing_metadata))
    assert len(answers) == 1


def test_the_true_reason_of_a_miss_is_told_for_the_audit_and_says_nothing_of_other_workspaces() -> None:
    found = {
        name: world.view.why_hidden(agent_of(world, "a"), "x") for name, world in hidden_worlds().items()
    }
    assert found == {
        "none": "unknown",
        "role": "no_role",
        "paused": "paused",
        "group": "group_only",
        "reach": "out_of_reach",
        "abroad": "unknown",
        "deleted": "deleted",
    }


def test_the_reason_is_told_for_people_too() -> None:
    world = household()
    bob = world.user("bob")
    assert world.view.why_hidden(bob, "a") == "no_role"
    assert world.view.why_hidden(bob, "nobody") == "unknown"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"state": pb.AGENT_STATE_PAUSED}, "agent_paused"),
        ({"state": pb.AGENT_STATE_PROVISIONING}, "failed_precondition"),
        ({"kind": pb.AGENT_KIND_RECEIVE_ONLY}, "receive_only"),
        ({"kind": pb.AGENT_KIND_RECEIVE_ONLY, "state": pb.AGENT_STATE_PAUSED}, "agent_paused"),
    ],
)
@pytest.mark.parametrize("ref", ["b", "nobody", "a"])
def test_an_agent_that_may_start_nothing_hears_that_whatever_it_asks_for(
    fields: dict[str, Any], reason: str, ref: str
) -> None:
    world = household()
    world.agent("a", **fields)
    assert refusal(world, agent_of(world, "a"), ref).reason == reason


def test_a_caller_that_is_deleted_or_not_known_yet_gets_no_further() -> None:
    world = household()
    assert refusal(world, agent_of(world, "new"), "b").reason == "unavailable"
    world.delete("a")
    assert refusal(world, agent_of(world, "a"), "b").reason == "unauthenticated"


def test_a_person_finds_paused_agents_where_they_hold_the_role() -> None:
    world = household()
    bob = world.user("bob")
    world.agent("b", state=pb.AGENT_STATE_PAUSED)
    world.role("bob", VIEWER, "b")
    assert world.view.resolve_for_person(bob, "b", VIEWER).slug == "b"
    with pytest.raises(HoplineError) as lacking:
        world.view.resolve_for_person(bob, "b", OPERATOR)
    assert lacking.value.reason == "permission_denied"
    assert lacking.value.message == "this needs the role operator on the agent 'b'"


@pytest.mark.parametrize("role", [VIEWER, OPERATOR])
def test_a_person_without_any_role_gets_the_answer_of_what_never_existed(role: int) -> None:
    world = household()
    bob = world.user("bob")
    with pytest.raises(HoplineError) as missed:
        world.view.resolve_for_person(bob, "b", role)
    assert missed.value.reason == "not_found"
    assert missed.value.message == refusal(world, bob, "b").message


def test_a_name_is_theirs_first_with_whom_a_person_holds_the_role() -> None:
    world = household()
    bob = world.user("bob")
    world.agent("one", name="Twin")
    world.agent("two", name="Twin")
    world.role("bob", VIEWER, "one")
    world.role("bob", OPERATOR, "two")
    assert world.view.resolve_for_person(bob, "Twin", OPERATOR).slug == "two"
    with pytest.raises(HoplineError) as shared:
        world.view.resolve_for_person(bob, "Twin", VIEWER)
    assert shared.value.reason == "ambiguous"


def test_names_stay_known_when_either_side_is_paused_or_deleted() -> None:
    world = household()
    reader = agent_of(world, "a")
    for change in (
        lambda: world.agent("b", state=pb.AGENT_STATE_PAUSED),
        lambda: world.delete("b"),
        lambda: world.agent("a", state=pb.AGENT_STATE_PAUSED),
        lambda: world.agent("a", kind=pb.AGENT_KIND_RECEIVE_ONLY),
    ):
        change()
        assert world.view.may_know(reader, "agt_b")


def test_names_are_known_by_the_rules_of_reach() -> None:
    world = household()
    world.agent("g", is_group_only_callable=True)
    reader = agent_of(world, "a")
    assert world.view.may_know(reader, "agt_a")
    assert not world.view.may_know(reader, "agt_c")
    assert not world.view.may_know(reader, "agt_g")
    assert not world.view.may_know(reader, "agt_never")
    world.agent("a", reach=["g"])
    assert not world.view.may_know(reader, "agt_b")
    assert world.view.may_know(reader, "agt_a")


def test_people_know_the_names_of_agents_they_may_view_and_plugins_their_own() -> None:
    world = household()
    bob = world.user("bob")
    assert not world.view.may_know(bob, "agt_a")
    world.role("bob", VIEWER, "a")
    assert world.view.may_know(bob, "agt_a")
    world.agent("p", plugin_id="plg_1")
    assert world.view.may_know(Principal("plugin", "plg_1", HOME), "agt_p")
    assert not world.view.may_know(Principal("plugin", "plg_2", HOME), "agt_p")
    assert world.view.may_know(Principal("service", "relay", HOME), "agt_p")


def test_roles_are_the_higher_of_workspace_and_agent_and_owners_are_admins() -> None:
    world = household()
    other = world.view.agent(HOME, "agt_c")
    assert other is not None
    assert world.view.role_on_agent("usr_bob", other) == ADMIN
    assert world.view.role_on_agent("usr_alice", other) == 0
    world.role("alice", VIEWER)
    world.role("alice", OPERATOR, "c")
    assert world.view.role_on_agent("usr_alice", other) == OPERATOR
    assert world.view.workspace_role(HOME, "usr_alice") == VIEWER


def test_an_agent_is_shown_in_its_owners_name() -> None:
    world = household()
    agent = world.view.agent(HOME, "agt_a")
    assert agent is not None
    assert world.view.display(agent) == "A (for Alice)"
    orphan = world.agent("o", owner="nobody")
    record = world.view.agent(HOME, orphan.id)
    assert record is not None
    assert world.view.display(record) == "O"
