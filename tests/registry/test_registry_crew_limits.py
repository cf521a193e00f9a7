"""What of a crew is refused, and who may apply one."""

from __future__ import annotations

import pytest
from hopline.registry.v1 import agent_pb2
from hopline.registry.v1.crew_pb2 import (
    CrewMember,
)
from hopline_directory import ADMIN, OPERATOR, VIEWER

from tests.registry.builders import Rig, refusal
from tests.registry.crewing import (
    CRITIC,
    LEAD,
    READER,
    TRIO,
    actions,
    apply,
    but,
    crew,
    set_agent,
    set_room,
)

# -- limits --------------------------------------------------------------------------------------------


async def test_the_room_of_the_plan_is_looked_for_first_and_as_a_whole(rig: Rig) -> None:
    await rig.agent("Other")
    await set_room(rig, 3)
    error = await refusal(apply(rig.admin, *TRIO))
    assert error.reason == "limit_reached"
    assert error.details == {"rail": "agents", "limit": 3, "used": 1}
    assert "has 1 agents, 3 are to be made and 0 deleted" in error.message
    assert "agents=4" in error.message
    assert len(rig.registry.directory.agents(rig.registry.directory.workspaces()[0].id)) == 1
    await set_room(rig, 4)
    await apply(rig.admin, *TRIO)


async def test_who_is_deleted_makes_room_for_who_is_made(rig: Rig) -> None:
    await set_room(rig, 3)
    await apply(rig.admin, *TRIO)
    applied = await apply(rig.admin, LEAD, READER, CrewMember(key="scout"))
    assert actions(applied) == {
        "lead": "unchanged",
        "reader": "unchanged",
        "scout": "create",
        "critic": "delete",
    }
    error = await refusal(apply(rig.admin, LEAD, READER, CrewMember(key="more"), only_missing=True))
    assert error.reason == "limit_reached"


async def test_a_crew_has_twenty_members_at_most(rig: Rig) -> None:
    members = [CrewMember(key=f"m{number}") for number in range(21)]
    assert (await refusal(apply(rig.admin, *members))).reason == "invalid_argument"
    await apply(rig.admin, *members[:20])
    # Who stays counts too.
    error = await refusal(apply(rig.admin, members[20], only_missing=True))
    assert (error.reason, error.details) == ("limit_reached", {"limit": 20, "used": 21})
    assert actions(await apply(rig.admin, members[20]))["m20"] == "create"


async def test_a_crew_without_members_is_refused(rig: Rig) -> None:
    assert (await refusal(apply(rig.admin))).reason == "invalid_argument"


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ((LEAD, but(READER, lead=True)), "members[1].lead"),
        ((LEAD, READER, but(CRITIC, key="reader")), "members[2].key"),
        ((CrewMember(key=" blank"),), "members[0].key"),
        ((LEAD, but(READER, name=" ")), "members[1].name"),
        ((LEAD, CrewMember(key="")), "members[1].key"),
        ((LEAD, CrewMember(key="k" * 201)), "members[1].key"),
        ((LEAD, but(READER, description="x" * 2001)), "members[1].description"),
        ((LEAD, but(READER, soul="x" * 65537)), "members[1].soul"),
        ((LEAD, CrewMember(key="x", reply_mode=agent_pb2.REPLY_MODE_UNSPECIFIED)), "members[1].reply_mode"),
        ((LEAD, CrewMember(key="x", thinking_level=9)), "members[1].thinking_level"),  # type: ignore[arg-type]
    ],
)
async def test_what_is_wrong_is_refused_with_its_path_and_nothing_is_made(
    rig: Rig, members: tuple[CrewMember, ...], path: str
) -> None:
    error = await refusal(apply(rig.admin, *members))
    assert error.reason == "invalid_argument"
    assert error.violations[0][0] == path
    assert not rig.registry.directory.agents(rig.registry.directory.workspaces()[0].id)


@pytest.mark.parametrize("name", ["", "x" * 101, " x", "a\nb", "\u202eab"])
async def test_a_name_that_cannot_be_shown_is_no_name_of_a_crew(rig: Rig, name: str) -> None:
    error = await refusal(apply(rig.admin, LEAD, crew=name))
    assert (error.reason, error.violations[0][0]) == ("invalid_argument", "crew")


async def test_keys_and_names_of_any_script_are_kept_as_they_are(rig: Rig) -> None:
    keys = ["Überprüfer", "読者", "критик", "a/b c", "\N{FOX FACE}" * 200]
    await apply(rig.admin, *(CrewMember(key=key, name=key) for key in keys), crew="Предприятие")
    assert sorted(keys) == list(await crew(rig.admin, "Предприятие"))
    again = await apply(rig.admin, *(CrewMember(key=key) for key in keys), crew="Предприятие")
    assert set(actions(again).values()) == {"unchanged"}


async def test_the_default_agent_is_not_deleted_and_then_nothing_else_is_changed(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    await set_agent(rig.admin, "critic", is_default=True)
    before = await crew(rig.admin)
    for dry_run in (True, False):
        error = await refusal(apply(rig.admin, but(LEAD, soul="new"), dry_run=dry_run))
        assert error.reason == "failed_precondition"
        assert "critic" in error.message
    assert await crew(rig.admin) == before
    assert actions(await apply(rig.admin, LEAD, only_missing=True))["critic"] == "kept"


# -- who may -------------------------------------------------------------------------------------------


async def test_operators_apply_their_own_crews_and_admins_others(rig: Rig) -> None:
    viewer = await rig.user("Vera", VIEWER)
    alice = await rig.user("Alice", OPERATOR)
    assert (await refusal(apply(viewer, *TRIO))).reason == "permission_denied"
    await apply(alice, *TRIO)
    for name in ("research", "nothing"):
        error = await refusal(apply(alice, *TRIO, crew=name, owner="admin"))
        assert error.reason == "permission_denied"
    applied = await apply(rig.admin, *TRIO, owner="Alice")
    assert set(actions(applied).values()) == {"unchanged"}
    assert (await refusal(apply(rig.admin, *TRIO, owner="Nobody"))).reason == "not_found"
    owner = (await crew(alice))["lead"].owner_id
    assert {each.owner_id for each in (await crew(rig.admin, owner="Alice")).values()} == {owner}


async def test_a_member_that_is_given_away_leaves_the_crew(rig: Rig) -> None:
    """Else the crew of its new owner that happens to be called alike would delete it."""
    alice = await rig.user("Alice", ADMIN)
    await apply(rig.admin, READER, CRITIC)
    await apply(alice, LEAD)
    given = await set_agent(rig.admin, "reader", owner_id="Alice")
    assert (given.crew, given.key) == ("", "reader")
    assert set(await crew(rig.admin)) == {"critic"}
    assert actions(await apply(alice, LEAD)) == {"lead": "unchanged"}
    assert actions(await apply(rig.admin, READER, CRITIC))["reader"] == "create"
