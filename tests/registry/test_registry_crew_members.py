"""Members of crews one by one, by key, and who sees which crew."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1.agent_pb2 import WAKE_KIND_WEBHOOK, Agent, GetAgentRequest, Wake
from hopline.registry.v1.crew_pb2 import (
    CreateMemberRequest,
    CreateMemberResponse,
    CrewMember,
    DeleteCrewRequest,
    DeleteMemberRequest,
    ListCrewsRequest,
    ListMembersRequest,
    UpdateMemberRequest,
)
from hopline.registry.v1.identity_pb2 import GrantRoleRequest, RevokeRoleRequest
from hopline_directory import ADMIN, OPERATOR, VIEWER
from hopline_registry.domain.agents import Scope
from hopline_registry.store.agents import agents_with
from hopline_rpc.errors import to_status

from tests.registry.builders import Caller, Rig, refusal
from tests.registry.crewing import LEAD, TRIO, apply, crew, set_agent, set_room


async def create(
    caller: Caller, key: str, crew: str = "research", owner: str = "", **fields: Any
) -> CreateMemberResponse:
    agent = Agent(**{"key": key, "name": key, **fields})
    return await caller.crews.CreateMember(CreateMemberRequest(crew=crew, agent=agent, owner=owner))


async def update(caller: Caller, ref: str, /, **fields: Any) -> Agent:
    request = UpdateMemberRequest(
        crew="research", key=ref, agent=Agent(**fields), update_mask=FieldMask(paths=list(fields))
    )
    return (await caller.crews.UpdateMember(request)).agent


async def crews(caller: Caller) -> list[tuple[str, str, int]]:
    found = (await caller.crews.ListCrews(ListCrewsRequest(page_size=200))).crews
    return [(each.name, each.owner_name, each.member_count) for each in found]


async def test_the_same_key_again_is_the_same_agent_untouched(rig: Rig) -> None:
    made = await create(rig.admin, "oracle", soul="old")
    assert made.was_created
    await set_agent(rig.admin, "oracle", description="edited by its owner")
    again = await create(rig.admin, "oracle", soul="new", description="re-run")
    assert not again.was_created
    assert again.agent.id == made.agent.id
    assert (again.agent.soul, again.agent.description) == ("old", "edited by its owner")


async def test_a_deleted_member_is_made_anew(rig: Rig) -> None:
    made = await create(rig.admin, "oracle")
    await rig.admin.crews.DeleteMember(DeleteMemberRequest(crew="research", key="oracle"))
    again = await create(rig.admin, "oracle")
    assert again.was_created
    assert (again.agent.slug, again.agent.id == made.agent.id) == ("oracle", False)


async def test_keys_are_of_a_crew_and_of_an_owner(rig: Rig) -> None:
    alice = await rig.user("Alice", OPERATOR)
    outside, _ = await rig.agent("Oracle", key="oracle")
    found = [
        (await create(rig.admin, "oracle")).agent.id,
        (await create(rig.admin, "oracle", "other")).agent.id,
        (await create(alice, "oracle")).agent.id,
        outside.id,
    ]
    assert len(set(found)) == 4


@pytest.mark.parametrize(("key", "good"), [("", False), ("k", True), ("k" * 200, True), ("k" * 201, False)])
async def test_a_key_has_one_to_two_hundred_characters(rig: Rig, key: str, *, good: bool) -> None:
    if good:
        assert (await create(rig.admin, key, name="x")).agent.key == key
    else:
        assert (await refusal(create(rig.admin, key, name="x"))).violations[0][0] == "agent.key"


async def test_creating_one_key_at_once_makes_one_agent(rig: Rig) -> None:
    found = await asyncio.gather(*(create(rig.admin, "oracle") for _ in range(6)))
    assert sum(each.was_created for each in found) == 1
    assert len({each.agent.id for each in found}) == 1


async def test_a_member_beyond_the_twentieth_or_the_plans_room_is_refused(rig: Rig) -> None:
    for number in range(20):
        await create(rig.admin, f"m{number}")
    assert (await refusal(create(rig.admin, "m20"))).details == {"limit": 20, "used": 21}
    assert not (await create(rig.admin, "m19")).was_created
    await set_room(rig, 20)
    assert (await refusal(create(rig.admin, "m0", "other"))).details["rail"] == "agents"


async def test_outside_of_crews_two_agents_of_an_owner_do_not_share_a_key(rig: Rig) -> None:
    alice = await rig.user("Alice", ADMIN)
    await rig.agent("One", key="oracle")
    two, _ = await rig.agent("Two", key="other")
    await rig.agent("Three", alice, key="oracle")
    for call in (
        rig.agent("Four", key="oracle"),
        set_agent(rig.admin, two.id, key="oracle"),
        set_agent(rig.admin, "three", owner_id="admin"),
    ):
        error = await refusal(call)
        assert (error.reason, error.violations) == ("failed_precondition", (("agent.key", "is taken"),))


async def test_a_member_keeps_its_key_and_a_crew_is_given_by_nobody(rig: Rig) -> None:
    await create(rig.admin, "oracle")
    assert "needed in a crew" in (await refusal(set_agent(rig.admin, "oracle", key=""))).message
    assert (await refusal(set_agent(rig.admin, "oracle", crew="mine"))).reason == "invalid_argument"
    made, _ = await rig.agent("Free", crew="research")
    assert made.crew == ""
    for field, value in (("key", "new"), ("owner_id", "admin"), ("crew", "x"), ("slug", "x")):
        error = await refusal(update(rig.admin, "oracle", **{field: value}))
        assert error.violations[0][0] == f"update_mask: {field}"


async def test_what_only_another_method_takes_is_refused_with_its_name(rig: Rig) -> None:
    wake = Wake(kind=WAKE_KIND_WEBHOOK, webhook_url="https://example.org", webhook_secret="s" * 16)
    assert "UpdateAgent" in (await refusal(create(rig.admin, "oracle", wake=wake))).message
    assert "owner" in (await refusal(create(rig.admin, "oracle", owner_id="admin"))).message


async def test_a_parent_that_is_left_out_stays_and_one_that_is_empty_goes(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    lead = (await crew(rig.admin))["lead"].id
    assert (await update(rig.admin, "reader", description="x")).parent_agent_id == lead
    assert (await update(rig.admin, "reader", parent_agent_id="")).parent_agent_id == ""
    assert (await update(rig.admin, "reader", parent_agent_id="lead")).parent_agent_id == lead
    cleared = await update(rig.admin, "reader", parent_agent_id="", is_subagent=False)
    assert (cleared.parent_agent_id, cleared.is_subagent) == ("", False)


async def test_a_parent_is_a_main_agent_of_the_same_owner(rig: Rig) -> None:
    alice = await rig.user("Alice", OPERATOR)
    await rig.agent("Hers", alice)
    await apply(rig.admin, *TRIO)
    for parent, why in (
        ("critic", "main agent"),
        ("hers", "same owner"),
        ("reader", "own lead"),
        ("x", "no agent"),
    ):
        error = await refusal(update(rig.admin, "reader", parent_agent_id=parent))
        assert (error.reason, error.violations[0][0]) == ("invalid_argument", "agent.parent_agent_id")
        assert why in error.message


async def test_the_default_agent_is_not_deleted_by_key_or_with_its_crew(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    await set_agent(rig.admin, "critic", is_default=True)
    before = await crew(rig.admin)
    for call in (
        rig.admin.crews.DeleteMember(DeleteMemberRequest(crew="research", key="critic")),
        rig.admin.crews.DeleteCrew(DeleteCrewRequest(crew="research")),
    ):
        assert (await refusal(call)).reason == "failed_precondition"
    assert await crew(rig.admin) == before


async def test_a_deleted_crew_is_gone_as_a_whole(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    await apply(rig.admin, LEAD, crew="other")
    gone = await rig.admin.crews.DeleteCrew(DeleteCrewRequest(crew="research"))
    assert [each.key for each in gone.agents] == ["critic", "lead", "reader"]
    assert await crews(rig.admin) == [("other", "admin", 1)]
    actions = [each.audit.action for each in rig.registry._feed._recent]
    assert actions[-4:] == [*["agent.deleted"] * 3, "crew.deleted"]
    assert (await refusal(crew(rig.admin))).reason == "not_found"
    assert (
        await refusal(rig.admin.crews.DeleteCrew(DeleteCrewRequest(crew="research")))
    ).reason == "not_found"


async def test_crews_and_members_page_in_order(rig: Rig) -> None:
    for name in ("b", "a", "c"):
        await apply(rig.admin, *TRIO, crew=name)
    names, token = [], ""
    while True:
        page = await rig.admin.crews.ListCrews(ListCrewsRequest(page_size=2, page_token=token))
        names.append([each.name for each in page.crews])
        if not (token := page.next_page_token):
            break
    assert names == [["a", "b"], ["c"]]
    first = await rig.admin.crews.ListMembers(ListMembersRequest(crew="a", page_size=2))
    rest = await rig.admin.crews.ListMembers(
        ListMembersRequest(crew="a", page_size=2, page_token=first.next_page_token)
    )
    assert [[each.key for each in page.agents] for page in (first, rest)] == [["critic", "lead"], ["reader"]]
    lead = (await crew(rig.admin, "a"))["lead"].id
    assert (await rig.admin.crews.ListCrews(ListCrewsRequest(page_size=1))).crews[0].lead_agent_id == lead


async def test_a_crew_of_which_one_sees_nobody_is_as_if_it_had_never_been(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    alice = await rig.user("Alice")
    await (await rig.workspace("elsewhere")).crews.CreateMember(
        CreateMemberRequest(crew="abroad99", agent=Agent(key="k", name="k"))
    )
    assert await crews(alice) == []

    def calls(name: str) -> list[Any]:
        update_mask = FieldMask(paths=["description"])
        return [
            alice.crews.ListMembers(ListMembersRequest(crew=name, owner="admin")),
            alice.crews.DeleteCrew(DeleteCrewRequest(crew=name, owner="admin")),
            alice.crews.DeleteMember(DeleteMemberRequest(crew=name, key="lead", owner="admin")),
            alice.crews.UpdateMember(
                UpdateMemberRequest(crew=name, key="lead", owner="admin", update_mask=update_mask)
            ),
            alice.crews.ListMembers(ListMembersRequest(crew=name)),
        ]

    async def told(name: str) -> list[str]:
        return [repr(to_status(await refusal(each))).replace(name, "NAME") for each in calls(name)]

    assert await told("research") == await told("nothing!") == await told("abroad99")
    assert "not_found" in (await told("research"))[0].lower()


async def test_a_role_on_one_member_shows_that_one_and_no_more(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    alice = await rig.user("Alice")

    async def grant(role: int) -> None:
        await rig.admin.identity.GrantRole(GrantRoleRequest(user="Alice", agent="reader", role=role))  # type: ignore[arg-type]

    await grant(VIEWER)
    assert await crews(alice) == [("research", "admin", 1)]
    assert set(await crew(alice, owner="admin")) == {"reader"}
    for key, reason in (("reader", "permission_denied"), ("lead", "not_found"), ("nobody", "not_found")):
        request = DeleteMemberRequest(crew="research", key=key, owner="admin")
        assert (await refusal(alice.crews.DeleteMember(request))).reason == reason
    await grant(ADMIN)
    error = await refusal(alice.crews.DeleteCrew(DeleteCrewRequest(crew="research", owner="admin")))
    assert error.reason == "permission_denied"
    await alice.crews.DeleteMember(DeleteMemberRequest(crew="research", key="reader", owner="admin"))
    assert set(await crew(rig.admin)) == {"lead", "critic"}


async def test_an_owner_without_a_role_any_more_may_still_change_and_delete_what_is_theirs(rig: Rig) -> None:
    alice = await rig.user("Alice", OPERATOR)
    await apply(alice, *TRIO)
    await rig.admin.identity.RevokeRole(RevokeRoleRequest(user="Alice"))
    await update(alice, "reader", description="still mine")
    assert (await refusal(create(alice, "more"))).reason == "permission_denied"
    assert (await refusal(apply(alice, CrewMember(key="more")))).reason == "permission_denied"
    await alice.crews.DeleteMember(DeleteMemberRequest(crew="research", key="lead"))
    assert {each.parent_agent_id for each in (await crew(alice)).values()} == {""}
    assert len((await alice.crews.DeleteCrew(DeleteCrewRequest(crew="research"))).agents) == 2


@pytest.mark.sqlite_only("asks SQLite for its plans")
@pytest.mark.parametrize(
    "scope",
    [Scope("ws", "usr", crew="research"), Scope("ws", "usr", plugin_id="plg")],
    ids=["crew", "plugin"],
)
async def test_a_crews_or_a_plugins_agents_are_found_without_a_look_at_all_others(
    rig: Rig, scope: Scope
) -> None:
    asked: list[str] = []
    engine = sa.create_engine(f"sqlite:///{rig.folder / 'registry.db'}")
    with engine.connect() as record:
        sa.event.listen(record, "before_cursor_execute", lambda *told: asked.append(told[2]))
        agents_with(record, "ws", **scope.columns)
        values = ("x",) * asked[0].count("?")
        plan = record.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked[0]}", values).fetchall()
    assert "USING INDEX agents_by_scope" in plan[0][3]


async def test_an_agents_definition_says_which_crew_it_is_of(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    found = (await rig.admin.agents.GetAgent(GetAgentRequest(agent="reader"))).agent
    assert (found.crew, found.key) == ("research", "reader")
    record = rig.registry.directory.agent(rig.registry.directory.workspaces()[0].id, found.id)
    assert record is not None
    assert record.crew == "research"
