"""Whatever a crew was and whatever it is to be: planned, applied, and then there is nothing left to do."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hopline.registry.v1.agent_pb2 import Agent, DeleteAgentRequest
from hopline.registry.v1.crew_pb2 import CrewMember, ModelPreferences
from hopline.registry.v1.model_pb2 import CreateModelRequest, Model
from hopline_rpc.errors import HoplineError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.registry.builders import Rig, copied
from tests.registry.crewing import actions, apply, crew, set_agent

Wish = list[CrewMember]
Edits = list[tuple[str, str]]

KEYS = ("a", "b", "c", "d")
texts = st.sampled_from(("", "x", "y" * 300))


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def liking(patterns: list[str]) -> ModelPreferences:
    return ModelPreferences(patterns=patterns)


@st.composite
def members(draw: st.DrawFn) -> list[CrewMember]:
    """Some members in some order, with a lead or without one."""
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True, min_size=1))
    lead = draw(optional(st.sampled_from(keys)))
    found = []
    for key in keys:
        said = {
            "name": draw(optional(st.sampled_from(("One", "Two")))),
            "soul": draw(optional(texts)),
            "description": draw(optional(texts)),
            "group_only": draw(optional(st.booleans())),
            "reply_mode": draw(optional(st.integers(1, 3))),
            "thinking_level": draw(optional(st.integers(1, 4))),
            "models": draw(
                optional(
                    st.sampled_from((["opus"], ["nope"], [])).map(lambda p: ModelPreferences(patterns=p))
                )
            ),
        }
        given_ = {name: value for name, value in said.items() if value is not None}
        found.append(CrewMember(key=key, lead=key == lead, **given_))
    return found


# What an owner does to a member between two runs.
edits = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(("delete", "soul", "orphan", "main", "describe"))),
    max_size=4,
)


async def edit(rig: Rig, member: Agent, what: str) -> None:
    if what == "delete":
        await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent=member.id))
    elif what == "orphan":
        await set_agent(rig.admin, member.id, parent_agent_id="")
    elif what == "main":
        await set_agent(rig.admin, member.id, parent_agent_id="", is_subagent=False)
    else:
        await set_agent(rig.admin, member.id, **{"soul" if what == "soul" else "description": "mine"})


async def present(rig: Rig) -> dict[str, Agent]:
    try:
        return await crew(rig.admin)
    except HoplineError as error:
        if error.reason != "not_found":
            raise
        return {}


def as_wanted(found: dict[str, Agent], wanted: list[CrewMember]) -> None:
    """Hold a crew against what it was to be."""
    assert set(found) == {each.key for each in wanted}
    lead = next((found[each.key].id for each in wanted if each.lead), "")
    for each in wanted:
        agent = found[each.key]
        expected = "" if each.lead else lead
        assert (agent.parent_agent_id, agent.is_subagent) == (expected, expected != "")
        for name in ("name", "soul", "description", "reply_mode", "thinking_level"):
            if each.HasField(name):
                assert getattr(agent, name) == getattr(each, name)
        if each.HasField("group_only"):
            assert agent.is_group_only_callable == each.group_only


async def play(
    folder: Path,
    first: list[CrewMember],
    owner: list[tuple[str, str]],
    then: list[CrewMember],
    *,
    gentle: bool,
) -> None:
    rig = await Rig.open(folder)
    try:
        for identifier in ("haiku", "opus"):
            await rig.admin.models.CreateModel(CreateModelRequest(model=Model(model_identifier=identifier)))
        await apply(rig.admin, *first)
        as_wanted(await crew(rig.admin), first)
        for key, what in owner:
            if member := (await present(rig)).get(key):
                await edit(rig, member, what)
        before, seq = await present(rig), rig.registry.directory.seq
        told = await apply(rig.admin, *then, dry_run=True, only_missing=gentle)
        assert (await present(rig), rig.registry.directory.seq) == (before, seq)
        did = await apply(rig.admin, *then, only_missing=gentle, expected_plan_id=told.plan_id)
        for each in did.members:
            each.agent_id = "" if actions(did)[each.key] == "create" else each.agent_id
        assert did.members == told.members
        after = await present(rig)
        if gentle:
            assert set(after) == set(before) | {each.key for each in then}
            for key, agent in before.items():
                if agent.is_subagent and not agent.parent_agent_id:  # its lead is gone
                    agent.parent_agent_id = after[key].parent_agent_id
                    agent.is_subagent = after[key].is_subagent
                assert after[key] == agent
        else:
            as_wanted(after, then)
        again = await apply(rig.admin, *then, only_missing=gentle)
        assert set(actions(again).values()) <= ({"unchanged", "kept"} if gentle else {"unchanged"})
        assert await present(rig) == after
    finally:
        await rig.registry.close()


@given(first=members(), owner=edits, then=members(), gentle=st.booleans())
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_a_plan_is_carried_out_as_it_was_told_and_leaves_nothing_to_do(
    started: Path,
    first: list[CrewMember],
    owner: list[tuple[str, str]],
    then: list[CrewMember],
    *,
    gentle: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = copied(started, Path(folder) / "data")
        asyncio.run(play(data, first, owner, then, gentle=gentle))
