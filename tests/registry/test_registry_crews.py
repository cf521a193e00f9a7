"""Crews applied as a whole: what is made, changed and deleted, and that a dry run says exactly that."""

from __future__ import annotations

import asyncio

import pytest
from hopline.registry.v1 import agent_pb2
from hopline.registry.v1.agent_pb2 import (
    Agent,
    DeleteAgentRequest,
    GetAgentRequest,
    PauseAgentRequest,
)
from hopline.registry.v1.crew_pb2 import (
    CrewMember,
)
from hopline.registry.v1.identity_pb2 import ListTokensRequest
from hopline_directory import OPERATOR

from tests.registry.builders import Rig, refusal
from tests.registry.crewing import (
    CRITIC,
    LEAD,
    READER,
    TRIO,
    actions,
    apply,
    but,
    changed,
    crew,
    set_agent,
    set_room,
)

pytestmark = pytest.mark.both_stores


async def test_a_crew_is_made_with_the_lead_first_and_everyone_else_under_it(rig: Rig) -> None:
    applied = await apply(rig.admin, READER, LEAD, CRITIC)
    assert list(actions(applied).items()) == [("lead", "create"), ("reader", "create"), ("critic", "create")]
    found = await crew(rig.admin)
    lead = found["lead"]
    assert (lead.is_subagent, lead.parent_agent_id, lead.soul) == (False, "", "calm")
    for key in ("reader", "critic"):
        assert (found[key].is_subagent, found[key].parent_agent_id) == (True, lead.id)
    assert (found["critic"].name, found["critic"].is_group_only_callable) == ("critic", True)
    assert {each.crew for each in found.values()} == {"research"}
    assert [each.agent_id for each in applied.members] == [found[key].id for key in actions(applied)]


async def test_a_crew_without_a_lead_is_made_of_main_agents(rig: Rig) -> None:
    await apply(rig.admin, READER, CRITIC)
    for each in (await crew(rig.admin)).values():
        assert (each.is_subagent, each.parent_agent_id) == (False, "")


async def test_a_plan_says_of_whom_no_other_agent_reaches(rig: Rig) -> None:
    applied = await apply(rig.admin, READER, CRITIC)
    assert [each.note for each in applied.members] == [
        "",
        "group_only without a lead: no other agent reaches it",
    ]
    applied = await apply(rig.admin, LEAD, READER, CRITIC)
    assert {each.note for each in applied.members} == {""}
    applied = await apply(rig.admin, but(LEAD, group_only=True), dry_run=True)
    assert "no other agent reaches it" in applied.members[0].note


async def test_a_second_run_changes_nothing(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    seq = rig.registry.directory.seq
    again = await apply(rig.admin, *TRIO)
    assert set(actions(again).values()) == {"unchanged"}
    assert rig.registry.directory.seq == seq


async def test_what_is_edited_is_changed_and_nothing_else(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    before = await crew(rig.admin)
    edited = but(READER, description="Reads.", instructions="Read it.")
    applied = await apply(rig.admin, LEAD, edited, CRITIC)
    assert actions(applied) == {"lead": "unchanged", "reader": "update", "critic": "unchanged"}
    assert changed(applied, "reader") == {"description": ("", "Reads."), "instructions": ("", "Read it.")}
    after = await crew(rig.admin)
    assert after["reader"].id == before["reader"].id
    before["reader"].MergeFrom(Agent(description="Reads.", instructions="Read it."))
    assert after == before


async def test_what_a_member_leaves_out_stays_and_what_it_says_empty_is_emptied(rig: Rig) -> None:
    await apply(rig.admin, LEAD, READER)
    await set_agent(rig.admin, "lead", description="Mine.", soul="wild")
    applied = await apply(rig.admin, LEAD, READER)
    assert changed(applied, "lead") == {"soul": ("wild", "calm")}
    assert (await crew(rig.admin))["lead"].description == "Mine."
    await apply(rig.admin, but(LEAD, description="", soul=""), READER)
    lead = (await crew(rig.admin))["lead"]
    assert (lead.description, lead.soul) == ("", "")


async def test_who_is_not_wanted_any_more_is_deleted_with_its_tokens(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    gone = (await crew(rig.admin))["critic"]
    applied = await apply(rig.admin, LEAD, READER)
    assert actions(applied) == {"lead": "unchanged", "reader": "unchanged", "critic": "delete"}
    assert set(await crew(rig.admin)) == {"lead", "reader"}
    error = await refusal(rig.admin.agents.GetAgent(GetAgentRequest(agent=gone.id)))
    assert error.reason == "not_found"


async def test_retired_means_of_this_crew_and_this_owner_only(rig: Rig) -> None:
    alice = await rig.user("Alice", OPERATOR)
    await rig.agent("Critic", key="critic")
    await apply(rig.admin, *TRIO)
    await apply(rig.admin, *TRIO, crew="other")
    await apply(alice, *TRIO)
    applied = await apply(rig.admin, LEAD)
    assert actions(applied) == {"lead": "unchanged", "critic": "delete", "reader": "delete"}
    assert set(await crew(rig.admin, "other")) == {"lead", "reader", "critic"}
    assert set(await crew(alice)) == {"lead", "reader", "critic"}
    assert (await rig.admin.agents.GetAgent(GetAgentRequest(agent="critic"))).agent.crew == ""


async def test_another_may_take_over_the_lead(rig: Rig) -> None:
    """The old lead has subagents until they have the new one; none of them is without one in between."""
    await apply(rig.admin, *TRIO)
    before = await crew(rig.admin)
    applied = await apply(rig.admin, CrewMember(key="lead"), but(READER, lead=True), CRITIC)
    assert list(actions(applied)) == ["reader", "lead", "critic"]
    assert changed(applied, "lead")["parent_agent_id"] == ("", "reader")
    after = await crew(rig.admin)
    assert {key: each.id for key, each in after.items()} == {key: each.id for key, each in before.items()}
    reader = after["reader"]
    assert (reader.is_subagent, reader.parent_agent_id) == (False, "")
    assert after["lead"].parent_agent_id == after["critic"].parent_agent_id == reader.id


async def test_a_new_lead_may_take_the_place_of_one_that_is_not_wanted_any_more(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    applied = await apply(rig.admin, CrewMember(key="boss", lead=True), READER, CRITIC)
    assert actions(applied) == {"boss": "create", "reader": "update", "critic": "update", "lead": "delete"}
    found = await crew(rig.admin)
    assert found["reader"].parent_agent_id == found["critic"].parent_agent_id == found["boss"].id


async def test_a_plan_tells_whom_outside_of_the_crew_a_deletion_leaves_without_a_lead(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    await rig.agent("Helper", parent_agent_id="lead")
    told = await apply(rig.admin, READER, dry_run=True)
    notes = {each.key: each.note for each in told.members}
    assert notes == {"reader": "", "critic": "", "lead": "leaves without a lead: helper"}
    await rig.agent("Another", parent_agent_id="lead")
    error = await refusal(apply(rig.admin, READER, expected_plan_id=told.plan_id))
    assert error.reason == "failed_precondition"
    applied = await apply(rig.admin, READER)
    assert applied.members[-1].note == "leaves without a lead: another, helper"
    for slug in ("helper", "another"):
        assert (await rig.admin.agents.GetAgent(GetAgentRequest(agent=slug))).agent.parent_agent_id == ""


async def test_a_lead_that_leads_somebody_else_too_cannot_become_a_subagent(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    await rig.agent("Helper", parent_agent_id="lead")
    before = await crew(rig.admin)
    error = await refusal(apply(rig.admin, CrewMember(key="lead"), but(READER, lead=True), CRITIC))
    assert error.reason == "invalid_argument"
    assert error.violations[0][0] == "members[0].lead"
    assert "leads a crew itself" in error.message
    assert await crew(rig.admin) == before


async def test_a_deleted_member_is_made_again_under_its_slug(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent="reader"))
    applied = await apply(rig.admin, *TRIO)
    assert actions(applied) == {"lead": "unchanged", "reader": "create", "critic": "unchanged"}
    assert (await crew(rig.admin))["reader"].slug == "reader"


async def test_a_deleted_lead_leaves_its_subagents_without_parent_until_the_crew_is_applied(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent="lead"))
    orphans = await crew(rig.admin)
    assert {each.parent_agent_id for each in orphans.values()} == {""}
    await apply(rig.admin, *TRIO)
    found = await crew(rig.admin)
    assert found["reader"].parent_agent_id == found["critic"].parent_agent_id == found["lead"].id


async def test_a_member_that_its_owner_paused_stays_paused(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    await rig.admin.agents.PauseAgent(PauseAgentRequest(agent="reader"))
    applied = await apply(rig.admin, LEAD, but(READER, soul="new"), CRITIC)
    assert actions(applied)["reader"] == "update"
    assert (await crew(rig.admin))["reader"].state == agent_pb2.AGENT_STATE_PAUSED


# -- only what is missing ------------------------------------------------------------------------------


async def test_only_missing_makes_who_is_missing_and_leaves_an_owners_edits(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    await set_agent(rig.admin, "lead", soul="wild")
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent="reader"))
    fresh = CrewMember(key="fresh")
    applied = await apply(rig.admin, LEAD, READER, fresh, only_missing=True)
    assert actions(applied) == {"lead": "kept", "reader": "create", "fresh": "create", "critic": "kept"}
    assert changed(applied, "lead") == {"soul": ("wild", "calm")}
    found = await crew(rig.admin)
    assert found["lead"].soul == "wild"
    assert found["reader"].parent_agent_id == found["fresh"].parent_agent_id == found["lead"].id
    seq = rig.registry.directory.seq
    again = await apply(rig.admin, LEAD, READER, fresh, only_missing=True)
    assert actions(again) == {"lead": "kept", "reader": "unchanged", "fresh": "unchanged", "critic": "kept"}
    assert rig.registry.directory.seq == seq


async def test_only_missing_gives_orphans_the_lead_that_was_missing_and_nothing_else(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    await set_agent(rig.admin, "reader", description="mine")
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent="lead"))
    edited = but(READER, description="theirs")
    applied = await apply(rig.admin, LEAD, edited, CRITIC, only_missing=True)
    assert actions(applied) == {"lead": "create", "reader": "update", "critic": "update"}
    assert set(changed(applied, "reader")) == {"parent_agent_id"}
    found = await crew(rig.admin)
    assert found["reader"].parent_agent_id == found["critic"].parent_agent_id == found["lead"].id
    assert found["reader"].description == "mine"


async def test_only_missing_puts_new_members_under_the_lead_as_it_stands(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    wanted = (CrewMember(key="lead"), but(READER, lead=True), CrewMember(key="fresh"))
    applied = await apply(rig.admin, *wanted, only_missing=True)
    assert actions(applied) == {"reader": "kept", "lead": "kept", "fresh": "create", "critic": "kept"}
    found = await crew(rig.admin)
    assert found["fresh"].parent_agent_id == found["reader"].parent_agent_id == found["lead"].id
    assert changed(applied, "lead") == {"parent_agent_id": ("", "reader")}


async def test_only_missing_lets_a_subagent_lead_whose_lead_is_gone(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent="lead"))
    applied = await apply(rig.admin, but(READER, lead=True), CRITIC, CrewMember(key="x"), only_missing=True)
    assert actions(applied) == {"reader": "update", "critic": "update", "x": "create"}
    found = await crew(rig.admin)
    assert not found["reader"].is_subagent
    assert found["critic"].parent_agent_id == found["x"].parent_agent_id == found["reader"].id


async def test_only_missing_leaves_a_main_agent_that_an_owner_made_of_a_member(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    await set_agent(rig.admin, "reader", parent_agent_id="", is_subagent=False)
    applied = await apply(rig.admin, *TRIO, only_missing=True)
    assert actions(applied)["reader"] == "kept"
    assert (await crew(rig.admin))["reader"].parent_agent_id == ""


# -- dry runs ------------------------------------------------------------------------------------------


async def test_a_dry_run_says_exactly_what_the_run_then_does(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    wanted = (but(LEAD, soul="bold", description="Leads."), CrewMember(key="scout", soul="x" * 5000), CRITIC)
    before, seq = await crew(rig.admin), rig.registry.directory.seq
    told = await apply(rig.admin, *wanted, dry_run=True)
    assert (await crew(rig.admin), rig.registry.directory.seq) == (before, seq)
    assert actions(told) == {"lead": "update", "scout": "create", "critic": "unchanged", "reader": "delete"}
    did = await apply(rig.admin, *wanted, expected_plan_id=told.plan_id)
    assert did.plan_id == told.plan_id
    scout = next(each for each in did.members if each.key == "scout")
    assert scout.agent_id == (await crew(rig.admin))["scout"].id
    scout.ClearField("agent_id")  # who would be made has no id yet
    assert did.members == told.members


async def test_long_texts_are_cut_in_a_plan_and_their_lengths_told(rig: Rig) -> None:
    told = await apply(rig.admin, but(LEAD, soul="\N{FOX FACE}" * 300), dry_run=True)
    soul = next(each for each in told.members[0].changes if each.field == "soul")
    assert (soul.after, soul.after_length, soul.before_length) == ("\N{FOX FACE}" * 200, 300, 0)


async def test_texts_that_differ_behind_what_is_shown_make_another_plan(rig: Rig) -> None:
    one = await apply(rig.admin, but(LEAD, soul="x" * 300 + "a"), dry_run=True)
    other = await apply(rig.admin, but(LEAD, soul="x" * 300 + "b"), dry_run=True)
    assert one.members == other.members
    assert one.plan_id != other.plan_id


async def test_a_plan_that_does_not_hold_any_more_is_not_carried_out(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    told = await apply(rig.admin, LEAD, READER, dry_run=True)
    await set_agent(rig.admin, "lead", soul="wild")
    before = await crew(rig.admin)
    error = await refusal(apply(rig.admin, LEAD, READER, expected_plan_id=told.plan_id))
    assert error.reason == "failed_precondition"
    assert "make the plan anew" in error.message
    assert await crew(rig.admin) == before


async def test_a_dry_run_is_refused_where_the_run_would_be(rig: Rig) -> None:
    await set_room(rig, 2)
    for dry_run in (True, False):
        assert (await refusal(apply(rig.admin, *TRIO, dry_run=dry_run))).reason == "limit_reached"


# -- at once -------------------------------------------------------------------------------------------


async def test_applies_at_once_come_to_one_crew(rig: Rig) -> None:
    applied = await asyncio.gather(*(apply(rig.admin, *TRIO) for _ in range(8)))
    made = [each for each in applied if set(actions(each).values()) == {"create"}]
    same = [each for each in applied if set(actions(each).values()) == {"unchanged"}]
    assert (len(made), len(same)) == (1, 7)
    ids = {tuple(member.agent_id for member in each.members) for each in applied}
    assert len(ids) == 1
    assert set(await crew(rig.admin)) == {"lead", "reader", "critic"}


async def test_different_files_at_once_come_to_the_last_of_them(rig: Rig) -> None:
    one, other = (LEAD, READER), (but(READER, lead=True), CRITIC)
    await asyncio.gather(*(apply(rig.admin, *wanted) for wanted in (one, other) * 4))
    found = await crew(rig.admin)
    assert set(found) == {"reader", "critic"}
    assert found["critic"].parent_agent_id == found["reader"].id


# -- what is told --------------------------------------------------------------------------------------


async def test_each_change_is_told_and_who_applied_which_crew(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    await apply(rig.admin, but(LEAD, soul="new"), READER)
    notes = [
        each.audit for each in rig.registry._feed._recent if each.audit.action.startswith(("agent", "crew"))
    ]
    assert [each.action for each in notes] == [
        *["agent.created"] * 3,
        "crew.applied",
        "agent.updated",
        "agent.deleted",
        "crew.applied",
    ]
    assert dict(notes[-1].details) == {
        "crew": "research",
        "owner": notes[-1].actor_id,
        "create": 0.0,
        "update": 1.0,
        "delete": 1.0,
    }
    assert list(notes[4].details["fields"]) == ["soul"]  # type: ignore[arg-type]


async def test_a_new_member_has_no_token(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    assert not (await rig.admin.identity.ListTokens(ListTokensRequest(agent="lead"))).tokens


async def test_a_crew_outlives_a_restart(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    reopened = await rig.reopen()
    try:
        admin = reopened.caller(rig.root)
        assert set(actions(await apply(admin, *TRIO)).values()) == {"unchanged"}
    finally:
        await reopened.registry.close()
