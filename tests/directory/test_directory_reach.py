"""Who may start something on whom: each rule alone, then all together against a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hopline.registry.v1 import agent_pb2 as pb
from hopline_directory import ADMIN, OPERATOR, VIEWER, AgentRecord
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.directory.builders import ABROAD, HOME, World, agent_of, household


def test_an_agent_reaches_the_other_agents_of_its_owner() -> None:
    world = household()
    assert world.slugs(agent_of(world, "a")) == ["b"]


@pytest.mark.parametrize(("role", "reached"), [(0, False), (VIEWER, False), (OPERATOR, True), (ADMIN, True)])
@pytest.mark.parametrize("target", ["", "c"], ids=["on the workspace", "on the agent"])
def test_its_owner_needs_operator_on_somebody_elses_agent(role: int, reached: bool, target: str) -> None:
    world = household()
    if role:
        world.role("alice", role, target)
    assert ("c" in world.slugs(agent_of(world, "a"))) is reached


def test_a_role_that_is_taken_away_holds_for_the_next_call() -> None:
    world = household()
    world.role("alice", OPERATOR, "c")
    assert "c" in world.slugs(agent_of(world, "a"))
    world.role("alice", 0, "c")
    assert "c" not in world.slugs(agent_of(world, "a"))


def test_the_higher_of_two_roles_counts() -> None:
    world = household()
    world.role("alice", OPERATOR)
    world.role("alice", VIEWER, "c")
    assert "c" in world.slugs(agent_of(world, "a"))


@pytest.mark.parametrize("state", [pb.AGENT_STATE_PAUSED, pb.AGENT_STATE_PROVISIONING])
def test_an_agent_that_is_not_active_is_reached_by_nobody(state: pb.AgentState.ValueType) -> None:
    world = household()
    world.agent("b", state=state)
    assert world.slugs(agent_of(world, "a")) == []


@pytest.mark.parametrize("state", [pb.AGENT_STATE_PAUSED, pb.AGENT_STATE_PROVISIONING])
def test_an_agent_that_is_not_active_reaches_nobody(state: pb.AgentState.ValueType) -> None:
    world = household()
    world.agent("a", state=state)
    assert world.slugs(agent_of(world, "a")) == []
    assert not world.view.may_start_on(agent_of(world, "a"), "agt_b")


def test_a_receive_only_agent_reaches_nobody_but_is_reached() -> None:
    world = household()
    world.agent("a", kind=pb.AGENT_KIND_RECEIVE_ONLY)
    assert world.slugs(agent_of(world, "a")) == []
    assert world.slugs(agent_of(world, "b")) == ["a"]


def test_a_deleted_agent_is_reached_by_nobody() -> None:
    world = household()
    world.delete("b")
    assert world.slugs(agent_of(world, "a")) == []


def test_a_group_only_agent_is_reached_by_its_lead_and_its_siblings_alone() -> None:
    world = household()
    world.agent("b", parent="a", is_group_only_callable=True)
    world.agent("d", parent="a")
    world.agent("e")
    assert "b" in world.slugs(agent_of(world, "a"))
    assert "b" in world.slugs(agent_of(world, "d"))
    assert "b" not in world.slugs(agent_of(world, "e"))


def test_a_group_only_agent_without_a_lead_is_reached_by_nobody() -> None:
    world = household()
    world.agent("b", is_group_only_callable=True)
    assert world.slugs(agent_of(world, "a")) == []
    assert world.slugs(agent_of(world, "b")) == ["a"]


def test_a_crew_of_another_lead_gives_no_reach() -> None:
    world = household()
    world.agent("b", parent="a", is_group_only_callable=True)
    world.agent("x")
    world.agent("y", parent="x")
    assert "b" not in world.slugs(agent_of(world, "y"))


def test_a_reach_list_narrows_and_never_widens() -> None:
    world = household()
    world.agent("d")
    world.agent("a", reach=["d", "c"])
    assert world.slugs(agent_of(world, "a")) == ["d"]


def test_a_reach_list_holds_for_the_crew_too() -> None:
    world = household()
    world.agent("b", parent="a", is_group_only_callable=True)
    world.agent("d")
    world.agent("a", reach=["d"])
    assert world.slugs(agent_of(world, "a")) == ["d"]


def test_nothing_of_another_workspace_is_reached() -> None:
    world = household()
    world.workspace(ABROAD)
    world.agent("z", workspace_id=ABROAD)
    world.role("alice", ADMIN, workspace_id=ABROAD)
    assert "z" not in world.slugs(agent_of(world, "a"))
    assert not world.view.may_start_on(agent_of(world, "a"), "agt_z")


def test_a_person_reaches_what_they_operate_group_only_or_not() -> None:
    world = household()
    world.agent("b", parent="a", is_group_only_callable=True)
    bob = world.user("bob")
    assert world.slugs(bob) == ["c"]
    world.role("bob", OPERATOR)
    assert world.slugs(bob) == ["a", "b", "c"]


def test_plugins_and_services_have_no_peers() -> None:
    world = household()
    assert world.slugs(Principal("plugin", "x", HOME)) == []
    assert world.slugs(Principal("service", "x", HOME)) == []


def record(world: World, name: str) -> AgentRecord:
    found = world.view.agent(HOME, f"agt_{name}")
    assert found is not None
    return found


def test_relations_are_told_from_the_callers_side() -> None:
    world = household()
    world.agent("b", parent="a")
    world.agent("d", parent="a")
    lead, child, stranger, sibling = (record(world, name) for name in "abcd")
    assert world.view.relation(lead, child) == "subagent"
    assert world.view.relation(child, lead) == "lead"
    assert world.view.relation(child, sibling) == "sibling"
    assert world.view.relation(lead, stranger) == "peer"
    assert world.view.relation(stranger, replace(stranger, id="agt_other")) == "peer"


# --- all rules together ----------------------------------------------------------------------------

USERS = ("u", "v")
NAMES = ("a", "b", "c", "d", "e")
MAINS = ("a", "b")  # who may lead: there are no crews of crews


@dataclass(frozen=True)
class ModelAgent:
    owner: str
    state: str
    receive_only: bool
    group_only: bool
    parent: str
    reach: frozenset[str]
    abroad: bool
    deleted: bool


@dataclass(frozen=True)
class ModelRole:
    user: str
    agent: str
    role: int


agents = st.builds(
    ModelAgent,
    owner=st.sampled_from(USERS),
    state=st.sampled_from(["ACTIVE", "ACTIVE", "ACTIVE", "PAUSED", "PROVISIONING"]),
    receive_only=st.sampled_from([False, False, False, True]),
    group_only=st.booleans(),
    parent=st.sampled_from(["", *MAINS]),
    reach=st.sampled_from([frozenset[str](), frozenset[str]()]) | st.frozensets(st.sampled_from(NAMES)),
    abroad=st.sampled_from([False, False, False, True]),
    deleted=st.sampled_from([False, False, False, False, True]),
)
roles = st.builds(
    ModelRole,
    user=st.sampled_from(USERS),
    agent=st.sampled_from(["", *NAMES]),
    role=st.sampled_from([0, VIEWER, OPERATOR, ADMIN]),
)


def model_reaches(held: dict[str, ModelAgent], given: dict[tuple[str, str], int], a: str, b: str) -> bool:
    """The six rules, one a line, with nothing clever."""
    caller, other = held[a], held[b]
    owner_role = max(given.get((caller.owner, ""), 0), given.get((caller.owner, b), 0))
    is_lead = other.parent == a
    is_sibling = caller.parent != "" and caller.parent == other.parent
    return (
        a != b
        and not caller.abroad
        and not other.abroad
        and not caller.deleted
        and not other.deleted
        and caller.state == other.state == "ACTIVE"
        and (caller.owner == other.owner or owner_role >= OPERATOR)
        and (not other.group_only or is_lead or is_sibling)
        and (not caller.reach or b in caller.reach)
        and not caller.receive_only
    )


def valid(name: str, agent: ModelAgent) -> ModelAgent:
    return replace(agent, parent="") if name in MAINS else agent


def tell(world: World, name: str, agent: ModelAgent) -> None:
    world.agent(
        name,
        owner=agent.owner,
        workspace_id=ABROAD if agent.abroad else HOME,
        state=pb.AgentState.Value(f"AGENT_STATE_{agent.state}"),
        kind=pb.AGENT_KIND_RECEIVE_ONLY if agent.receive_only else pb.AGENT_KIND_STANDARD,
        is_group_only_callable=agent.group_only,
        parent=agent.parent,
        reach=sorted(agent.reach),
        # To everyone, itself included: what may be used of them is another matter.
        connections=[pb.Connection(name=f"to-{each}", agent=f"agt_{each}") for each in NAMES],
    )
    if agent.deleted:
        world.delete(name, ABROAD if agent.abroad else HOME)


def outcome(world: World, caller: Principal, ref: str) -> Any:
    try:
        return world.view.resolve(caller, ref).id
    except HoplineError as error:
        return error.reason, error.message, error.details


@settings(max_examples=200, deadline=None)
@given(
    held=st.fixed_dictionaries(dict.fromkeys(NAMES, agents)),
    first=st.lists(roles, max_size=4),
    later=st.lists(roles | st.tuples(st.sampled_from(NAMES), agents), max_size=3),
)
def test_lists_look_ups_and_the_claim_of_a_turn_all_follow_the_rules(
    held: dict[str, ModelAgent], first: list[ModelRole], later: list[Any]
) -> None:
    world = World()
    world.workspace(HOME)
    world.workspace(ABROAD)
    held = {name: valid(name, agent) for name, agent in held.items()}
    given: dict[tuple[str, str], int] = {}
    home = {name: agent.abroad for name, agent in held.items()}
    for name, agent in held.items():
        tell(world, name, agent)
    for step in [*first, None, *later]:
        if isinstance(step, ModelRole):
            world.role(step.user, step.role, step.agent)
            given[step.user, step.agent] = step.role
        elif step is not None:
            name, agent = step
            held = {**held, name: valid(name, replace(agent, abroad=home[name]))}  # none ever moves
            tell(world, name, held[name])
        for a in NAMES:
            caller = agent_of(world, a, ABROAD if held[a].abroad else HOME)
            if held[a].abroad:
                continue
            expected = [b for b in NAMES if model_reaches(held, given, a, b)]
            assert world.slugs(caller) == expected
            connections = world.view.connections(caller, has_public_url=False)
            assert [(each.name, peer.slug) for each, peer in connections] == [
                (f"to-{b}", b) for b in expected
            ]
            assert paged(world, caller, 1) == paged(world, caller, 2) == expected
            check_look_ups(world, held[a], caller, expected)


def paged(world: World, caller: Principal, count: int) -> list[str]:
    found: list[str] = []
    more = True
    while more:
        page, more = world.view.peers_after(caller, found[-1] if found else "", count)
        assert len(page) == count or not more
        found += [agent.slug for agent in page]
    return found


def check_look_ups(world: World, own: ModelAgent, caller: Principal, expected: list[str]) -> None:
    for b in NAMES:
        assert world.view.may_start_on(caller, f"agt_{b}") is (b in expected)
        found = outcome(world, caller, f"agt_{b}")
        if b in expected:
            assert found == f"agt_{b}"
        elif own.deleted or own.state != "ACTIVE" or own.receive_only:
            assert found[0] in {"unauthenticated", "agent_paused", "failed_precondition", "receive_only"}
            assert found == outcome(world, caller, "agt_never")
        elif f"agt_{b}" == caller.id:
            assert found[0] == "invalid_argument"
        else:
            never = outcome(world, caller, "agt_never")
            assert found == (never[0], never[1].replace("agt_never", f"agt_{b}"), {"agent": f"agt_{b}"})
