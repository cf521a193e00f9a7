"""Agents and their definitions: who may do what, what is refused and why."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import agent_pb2 as pb
from hopline.registry.v1.agent_pb2 import (
    Agent,
    CreateAgentRequest,
    DeleteAgentRequest,
    GetAgentRequest,
    ListAgentsRequest,
    PauseAgentRequest,
    ResumeAgentRequest,
    ServerTool,
    UpdateAgentRequest,
    Wake,
)
from hopline.registry.v1.identity_pb2 import (
    CreateTokenRequest,
    GrantRoleRequest,
    ListTokensRequest,
    RevokeRoleRequest,
)
from hopline.registry.v1.visibility_pb2 import GetSelfRequest
from hopline.registry.v1.workspace_pb2 import Policy, UpdatePolicyRequest
from hopline_directory import ADMIN, OPERATOR, VIEWER
from hopline_registry.definitions import MAX_DEFINITION
from hopline_rpc.errors import HoplineError, to_status

from tests.registry.builders import Caller, Rig, refusal

pytestmark = pytest.mark.both_stores


async def update(caller: Caller, ref: str, **fields: Any) -> Agent:
    """Change the named fields."""
    request = UpdateAgentRequest(
        agent_ref=ref, agent=Agent(**fields), update_mask=FieldMask(paths=list(fields))
    )
    return (await caller.agents.UpdateAgent(request)).agent


async def outcome(call: Any) -> str:
    try:
        await call
    except HoplineError as error:
        return error.reason
    return "ok"


async def test_a_new_agent_is_active_and_belongs_to_whoever_made_it(rig: Rig) -> None:
    alice = await rig.user("Alice", OPERATOR)
    agent, caller = await rig.agent("Planner", alice, description="plans")
    assert (agent.slug, agent.state, agent.kind) == ("planner", pb.AGENT_STATE_ACTIVE, pb.AGENT_KIND_STANDARD)
    assert agent.reply_mode == pb.REPLY_MODE_AUTO
    assert agent.runtime == pb.AGENT_RUNTIME_LOCAL
    itself = await caller.visibility.GetSelf(GetSelfRequest())
    assert itself.owner.name == "Alice"
    assert itself.agent == agent
    assert itself.policy.preset == "default"


async def test_what_the_mesh_gives_is_not_taken_from_the_request(rig: Rig) -> None:
    agent, _ = await rig.agent("Planner", id="agt_mine", state=pb.AGENT_STATE_PAUSED)
    assert agent.id != "agt_mine"
    assert agent.state == pb.AGENT_STATE_ACTIVE


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Planner", "planner"),
        ("  Dr. Who? ", None),
        ("Zoë Größe", "zoe-grosse"),
        ("\uff26\uff35\uff2c\uff2c width", "full-width"),
        ("ﬁle", "file"),
        ("a--b__c", "a-b-c"),
        ("-x-", "x"),
        ("計画", "agent"),
        ("🤖", "agent"),
        ("x" * 63, "x" * 63),
        ("x" * 64, "x" * 63),
        ("x" * 62 + "-y", "x" * 62),
    ],
)
async def test_a_slug_is_made_of_the_name(rig: Rig, name: str, slug: str | None) -> None:
    if slug is None:
        assert (await refusal(rig.agent(name))).reason == "invalid_argument"
        return
    agent, _ = await rig.agent(name)
    assert agent.slug == slug


async def test_derived_slugs_count_on_and_stay_within_their_length(rig: Rig) -> None:
    long = "y" * 63
    slugs = [(await rig.agent(long))[0].slug for _ in range(3)]
    assert slugs == [long, "y" * 61 + "-2", "y" * 61 + "-3"]
    named = [(await rig.agent("Planner", slug="planner-2"))[0].slug]
    named += [(await rig.agent("Planner"))[0].slug for _ in range(2)]
    assert named == ["planner-2", "planner", "planner-3"]


async def test_an_explicit_slug_is_normalised_and_refused_when_it_is_taken(rig: Rig) -> None:
    agent, _ = await rig.agent("Planner", slug="Chief Planner")
    assert agent.slug == "chief-planner"
    error = await refusal(rig.agent("Another", slug="chief-planner"))
    assert error.reason == "failed_precondition"
    assert "taken" in error.message
    assert error.violations[0][0] == "agent.slug"
    assert (await refusal(rig.agent("Third", slug="計画"))).reason == "invalid_argument"


@pytest.mark.parametrize("word", ["mcp", "v1", "endpoints", "healthz", "readyz", "metrics", "console"])
async def test_a_word_of_the_meshs_own_addresses_is_no_slug(rig: Rig, word: str) -> None:
    error = await refusal(rig.agent("Planner", slug=word.upper()))
    assert error.reason == "failed_precondition"
    assert "the mesh's own addresses" in error.message
    assert (await rig.agent(word))[0].slug == f"{word}-2"


async def test_slugs_of_two_workspaces_have_nothing_to_do_with_each_other(rig: Rig) -> None:
    other = await rig.workspace("other")
    await rig.agent("Planner")
    assert (await rig.agent("Planner", other))[0].slug == "planner"


async def test_many_made_at_once_get_slugs_of_their_own(rig: Rig) -> None:
    made = await asyncio.gather(*(rig.agent("Twin") for _ in range(10)))
    assert {agent.slug for agent, _ in made} == {"twin", *(f"twin-{number}" for number in range(2, 11))}
    results = await asyncio.gather(
        *(outcome(rig.agent("Single", slug="single")) for _ in range(5)),
    )
    assert sorted(results) == ["failed_precondition"] * 4 + ["ok"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"name": "nul\0"}, "name"),
        ({"name": "right\u202eleft"}, "name"),
        ({"name": "P", "description": "x" * 2001}, "description"),
        ({"name": "P", "soul": "x" * 65537}, "soul"),
        ({"name": "P", "key": "x" * 201}, "key"),
        ({"name": "P", "slug": "x" * 64}, "slug"),
        ({"name": "P", "plugin_id": "plg_1"}, "plugin_id"),
        ({"name": "P", "reach": ["nobody"]}, "reach"),
        ({"name": "P", "parent_agent_id": "nobody"}, "parent_agent_id"),
        ({"name": "P", "kind": 9}, "kind"),
        ({"name": "P", "wake": Wake(kind=pb.WAKE_KIND_WEBHOOK)}, "webhook_url"),
        ({"name": "P", "wake": Wake(kind=pb.WAKE_KIND_WEBHOOK, webhook_url="ftp://x")}, "webhook_url"),
        ({"name": "P", "wake": Wake(kind=pb.WAKE_KIND_WEBHOOK, webhook_url="http://x y")}, "webhook_url"),
        ({"name": "P", "wake": Wake(kind=pb.WAKE_KIND_WEBHOOK, webhook_url="http://:80/x")}, "webhook_url"),
        ({"name": "P", "wake": Wake(kind=pb.WAKE_KIND_WEBHOOK, webhook_url="http://x:0/")}, "webhook_url"),
        ({"name": "P", "wake": Wake(kind=pb.WAKE_KIND_WEBHOOK, webhook_url="http://x:99999")}, "webhook_url"),
        ({"name": "P", "wake": Wake(kind=pb.WAKE_KIND_WEBHOOK, webhook_url="http://[::1")}, "webhook_url"),
    ],
)
async def test_a_bad_definition_is_refused_by_the_name_of_its_field(
    rig: Rig, fields: dict[str, Any], field: str
) -> None:
    request = CreateAgentRequest(agent=Agent(**fields))
    error = await refusal(rig.admin.agents.CreateAgent(request))
    assert error.reason == "invalid_argument"
    assert field in error.message


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_a_schema_with_what_is_no_number_in_json_is_refused(rig: Rig, number: float) -> None:
    tool = ServerTool(name="t")
    tool.input_schema.update({"maximum": number})
    for call in (rig.agent("P", server_tools=[tool]), update(rig.admin, "planner", server_tools=[tool])):
        error = await refusal(call)
        assert error.reason == "invalid_argument"
        assert "server_tools" in error.message


@pytest.mark.parametrize("name", ["x", "x" * 200, "Family 👨‍👩‍👧", "Ünïcode 計画"])
async def test_names_within_their_limits_are_taken(rig: Rig, name: str) -> None:
    assert (await rig.agent(name))[0].name == name


async def test_the_same_request_id_makes_one_agent_and_shows_its_token_once(rig: Rig) -> None:
    request = CreateAgentRequest(agent=Agent(name="Planner"), request_id="one")
    first, *rest = await asyncio.gather(*(rig.admin.agents.CreateAgent(request) for _ in range(5)))
    answers = [first, *rest]
    assert len({answer.agent.id for answer in answers}) == 1
    assert sum(1 for answer in answers if answer.token) == 1
    assert len((await rig.admin.agents.ListAgents(ListAgentsRequest())).agents) == 1


async def test_a_request_id_with_other_content_is_a_conflict(rig: Rig) -> None:
    await rig.admin.agents.CreateAgent(CreateAgentRequest(agent=Agent(name="A"), request_id="one"))
    error = await refusal(
        rig.admin.agents.CreateAgent(CreateAgentRequest(agent=Agent(name="B"), request_id="one"))
    )
    assert error.reason == "request_id_conflict"


async def test_a_request_id_is_the_callers_own_and_lapses_after_a_day(rig: Rig) -> None:
    alice = await rig.user("Alice", OPERATOR)
    request = CreateAgentRequest(agent=Agent(name="Planner"), request_id="one")
    first = await rig.admin.agents.CreateAgent(request)
    assert (await alice.agents.CreateAgent(request)).agent.id != first.agent.id
    await rig.clock.advance(86_400)
    assert (await rig.admin.agents.CreateAgent(request)).agent.id == first.agent.id
    await rig.clock.advance(1)
    assert (await rig.admin.agents.CreateAgent(request)).agent.id != first.agent.id


async def test_a_refusal_is_not_remembered(rig: Rig) -> None:
    request = CreateAgentRequest(agent=Agent(name="P", reach=["later"]), request_id="one")
    assert (await refusal(rig.admin.agents.CreateAgent(request))).reason == "invalid_argument"
    await rig.agent("Later")
    assert (await rig.admin.agents.CreateAgent(request)).token


@pytest.mark.parametrize("limit", [1, 3])
async def test_the_limit_of_agents_holds_at_its_border_and_counts_the_living(rig: Rig, limit: int) -> None:
    await rig.admin.workspaces.UpdatePolicy(
        UpdatePolicyRequest(policy=Policy(agents=limit), update_mask=FieldMask(paths=["agents"]))
    )
    results = await asyncio.gather(*(outcome(rig.agent(f"A{number}")) for number in range(limit + 2)))
    assert sorted(results) == ["limit_reached"] * 2 + ["ok"] * limit
    agents = (await rig.admin.agents.ListAgents(ListAgentsRequest())).agents
    await rig.admin.agents.PauseAgent(PauseAgentRequest(agent=agents[0].id))
    assert await outcome(rig.agent("Paused ones count")) == "limit_reached"
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent=agents[0].id))
    assert await outcome(rig.agent("Room again")) == "ok"


# --- who may do what -------------------------------------------------------------------------------


async def test_who_may_make_agents_and_for_whom(rig: Rig) -> None:
    people = {
        "nobody": await rig.user("Nobody"),
        "viewer": await rig.user("Viewer", VIEWER),
        "operator": await rig.user("Operator", OPERATOR),
        "admin": await rig.user("Boss", ADMIN),
    }
    table = {
        name: (
            await outcome(rig.agent("Own", caller)),
            await outcome(rig.agent("His", caller, owner_id="admin")),
        )
        for name, caller in people.items()
    }
    no = "permission_denied"
    assert table == {"nobody": (no, no), "viewer": (no, no), "operator": ("ok", no), "admin": ("ok", "ok")}
    assert await outcome(rig.agent("For nobody", owner_id="who?")) == "not_found"


async def test_who_may_do_what_to_an_agent(rig: Rig) -> None:
    owner = await rig.user("Owner", OPERATOR)
    await rig.agent("Planner", owner)
    people = {"owner": owner, "nobody": await rig.user("Nobody")}
    for role in (VIEWER, OPERATOR, ADMIN):
        people[f"workspace {role}"] = await rig.user(f"W{role}", role)
        people[f"agent {role}"] = await rig.user(f"A{role}")
        grant = GrantRoleRequest(user=f"A{role}", agent="planner", role=role)  # type: ignore[arg-type]
        await rig.admin.identity.GrantRole(grant)
    table = {}
    for name, caller in people.items():
        table[name] = [
            await outcome(caller.agents.GetAgent(GetAgentRequest(agent="planner"))),
            await outcome(caller.agents.PauseAgent(PauseAgentRequest(agent="planner"))),
            await outcome(caller.agents.ResumeAgent(ResumeAgentRequest(agent="planner"))),
            await outcome(update(caller, "planner", description="d")),
        ]
    no = "permission_denied"
    sees, starts, manages = ["ok", no, no, no], ["ok", "ok", "ok", no], ["ok"] * 4
    assert table == {
        "owner": manages,
        "nobody": ["not_found"] * 4,
        "workspace 1": sees,
        "agent 1": sees,
        "workspace 2": starts,
        "agent 2": starts,
        "workspace 3": manages,
        "agent 3": manages,
    }
    assert await outcome(people["agent 2"].agents.DeleteAgent(DeleteAgentRequest(agent="planner"))) == no
    assert await outcome(people["agent 3"].agents.DeleteAgent(DeleteAgentRequest(agent="planner"))) == "ok"


def addressed(caller: Caller, ref: str) -> list[Any]:
    """Return every call that addresses an agent."""
    return [
        caller.agents.GetAgent(GetAgentRequest(agent=ref)),
        caller.agents.PauseAgent(PauseAgentRequest(agent=ref)),
        caller.agents.ResumeAgent(ResumeAgentRequest(agent=ref)),
        caller.agents.DeleteAgent(DeleteAgentRequest(agent=ref)),
        update(caller, ref, description="x"),
        caller.identity.GrantRole(GrantRoleRequest(user="admin", agent=ref, role=VIEWER)),  # type: ignore[arg-type]
        caller.identity.RevokeRole(RevokeRoleRequest(user="admin", agent=ref)),
        caller.identity.CreateToken(CreateTokenRequest(agent=ref)),
        caller.identity.ListTokens(ListTokensRequest(agent=ref)),
    ]


async def test_an_agent_without_a_role_on_it_is_as_if_it_had_never_been(rig: Rig) -> None:
    other = await rig.workspace("other")
    agent, _ = await rig.agent("Planner", labels={"a": "b"})
    nobody = await rig.user("Nobody", OPERATOR)
    stranger = await rig.user("Stranger")
    for caller in (stranger, other):
        for ref in (agent.id, "planner", "Planner"):
            for hidden, never in zip(addressed(caller, ref), addressed(caller, "zzz"), strict=True):
                missed, unknown = await refusal(hidden), await refusal(never)
                assert missed.reason == "not_found"
                words = unknown.message.replace("zzz", ref)
                same = HoplineError(unknown.reason, words, details={"agent": ref})
                assert to_status(missed) == to_status(same)
    assert len((await stranger.agents.ListAgents(ListAgentsRequest())).agents) == 0
    assert len((await nobody.agents.ListAgents(ListAgentsRequest())).agents) == 1


async def test_agents_are_listed_page_by_page_in_order_of_slug(rig: Rig) -> None:
    for name in ("d", "b", "a", "c", "e"):
        await rig.agent(name)
    found: list[str] = []
    token = ""
    while True:
        page = await rig.admin.agents.ListAgents(ListAgentsRequest(page_size=2, page_token=token))
        found += [agent.slug for agent in page.agents]
        token = page.next_page_token
        if not token:
            break
    assert found == ["a", "b", "c", "d", "e"]
    error = await refusal(rig.admin.agents.ListAgents(ListAgentsRequest(page_token="made up")))
    assert error.reason == "invalid_argument"
    error = await refusal(rig.admin.agents.ListAgents(ListAgentsRequest(page_size=-1)))
    assert error.reason == "invalid_argument"


# --- changes ---------------------------------------------------------------------------------------


async def test_an_update_takes_what_the_mask_names_and_nothing_else(rig: Rig) -> None:
    await rig.agent("Planner", description="old", soul="calm")
    request = UpdateAgentRequest(
        agent_ref="planner",
        agent=Agent(name="Chief", description="new", soul="x" * 100_000),
        update_mask=FieldMask(paths=["description", "name"]),
    )
    agent = (await rig.admin.agents.UpdateAgent(request)).agent
    assert (agent.name, agent.description, agent.soul, agent.slug) == ("Chief", "new", "calm", "planner")
    assert (await rig.admin.agents.GetAgent(GetAgentRequest(agent="Chief"))).agent == agent


async def test_a_field_that_the_mask_names_and_the_request_leaves_out_is_emptied(rig: Rig) -> None:
    await rig.agent("Planner", description="old", labels={"a": "b"}, tools=["ask"])
    request = UpdateAgentRequest(
        agent_ref="planner", update_mask=FieldMask(paths=["description", "labels", "tools"])
    )
    agent = (await rig.admin.agents.UpdateAgent(request)).agent
    assert (agent.description, dict(agent.labels), list(agent.tools)) == ("", {}, [])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"slug": "x"}, "slug"),
        ({"id": "x"}, "id"),
        ({"state": pb.AGENT_STATE_ACTIVE}, "pausing"),
        ({"plugin_id": "x"}, "plugin_id"),
        ({"name": ""}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": " x"}, "name"),
        ({"reach": ["nobody"]}, "nobody"),
        ({"thinking_level": 17}, "thinking_level"),
    ],
)
async def test_a_bad_update_is_refused_by_the_name_of_its_field(
    rig: Rig, fields: dict[str, Any], words: str
) -> None:
    await rig.agent("Planner")
    error = await refusal(update(rig.admin, "planner", **fields))
    assert error.reason == "invalid_argument"
    assert words in error.message


@pytest.mark.parametrize("paths", [[], ["nonsense"], ["wake.kind"], ["*"]])
async def test_a_mask_without_sense_is_refused(rig: Rig, paths: list[str]) -> None:
    await rig.agent("Planner")
    request = UpdateAgentRequest(agent_ref="planner", update_mask=FieldMask(paths=paths))
    error = await refusal(rig.admin.agents.UpdateAgent(request))
    assert error.reason == "invalid_argument"
    assert "update_mask" in error.message


async def test_of_two_who_change_what_they_have_seen_at_once_one_is_told(rig: Rig) -> None:
    seen, _ = await rig.agent("Planner", description="old", soul="calm")

    def changing(path: str, text: str) -> Any:
        wanted = Agent(**{path: text})  # type: ignore[arg-type]
        mask = FieldMask(paths=[path])
        request = UpdateAgentRequest(agent_ref=seen.id, agent=wanted, update_mask=mask, expected=seen)
        return rig.admin.agents.UpdateAgent(request)

    texts = [f"text {number}" for number in range(8)]
    done = await asyncio.gather(*(changing("description", each) for each in texts), return_exceptions=True)
    refused = [each for each in done if isinstance(each, HoplineError)]
    assert len(refused) == 7
    assert {each.reason for each in refused} == {"failed_precondition"}
    assert {each.violations[0][0] for each in refused} == {"description"}
    (agent,) = [each.agent for each in done if not isinstance(each, BaseException)]
    assert (await changing("description", agent.description)).agent == agent  # sent twice, it stands
    assert (await changing("soul", "stern")).agent.soul == "stern"  # which nobody has changed


async def test_an_update_that_changes_nothing_is_no_change(rig: Rig) -> None:
    agent, _ = await rig.agent("Planner", description="d")
    seq = rig.registry.directory.seq
    assert await update(rig.admin, "planner", description="d") == agent
    assert rig.registry.directory.seq == seq


async def test_a_name_that_agents_share_is_ambiguous_and_lists_their_ids(rig: Rig) -> None:
    first, _ = await rig.agent("Twin", slug="one")
    second, _ = await rig.agent("Twin", slug="two")
    for call in (
        rig.admin.agents.GetAgent(GetAgentRequest(agent="Twin")),
        rig.admin.agents.PauseAgent(PauseAgentRequest(agent="Twin")),
    ):
        error = await refusal(call)
        assert error.reason == "ambiguous"
        assert error.details["ids"] == sorted([first.id, second.id])


async def test_reach_takes_ids_slugs_and_names_and_keeps_ids(rig: Rig) -> None:
    one, _ = await rig.agent("One")
    two, _ = await rig.agent("Number Two", slug="second")
    agent, _ = await rig.agent("Planner", reach=[one.id, "second"])
    assert list(agent.reach) == sorted([one.id, two.id])
    assert list((await update(rig.admin, "planner", reach=["Number Two"])).reach) == [two.id]
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent=two.id))
    assert list((await update(rig.admin, "planner", reach=[two.id, one.id])).reach) == sorted(
        [one.id, two.id]
    )


async def test_reach_names_only_agents_that_its_maker_may_see(rig: Rig) -> None:
    await rig.agent("Hidden")
    alice = await rig.user("Alice", OPERATOR)
    await rig.admin.identity.GrantRole(GrantRoleRequest(user="Alice", role=OPERATOR))  # type: ignore[arg-type]
    await rig.agent("Mine", alice)
    helper = await rig.user("Helper")
    await rig.admin.identity.GrantRole(GrantRoleRequest(user="Helper", agent="mine", role=ADMIN))  # type: ignore[arg-type]
    hidden = await refusal(update(helper, "mine", reach=["hidden"]))
    never = await refusal(update(helper, "mine", reach=["never"]))
    assert hidden.message == never.message.replace("never", "hidden")


async def test_a_page_of_large_agents_ends_before_it_is_more_than_a_call_carries(rig: Rig) -> None:
    for number in range(20):
        await rig.agent(f"A{number:02}", soul="x" * 65_536, instructions="😀" * 65_536)
    found: list[str] = []
    token, pages = "", 0
    while True:
        page = await rig.admin.agents.ListAgents(ListAgentsRequest(page_size=50, page_token=token))
        assert page.ByteSize() < 3_000_000
        found += [agent.slug for agent in page.agents]
        token, pages = page.next_page_token, pages + 1
        if not token:
            break
    assert found == [f"a{number:02}" for number in range(20)]
    assert pages == 4


async def test_pausing_and_resuming_twice_is_once(rig: Rig) -> None:
    await rig.agent("Planner")
    for _ in range(2):
        paused = await rig.admin.agents.PauseAgent(PauseAgentRequest(agent="planner"))
        assert paused.agent.state == pb.AGENT_STATE_PAUSED
    seq = rig.registry.directory.seq
    await rig.admin.agents.PauseAgent(PauseAgentRequest(agent="planner"))
    assert rig.registry.directory.seq == seq
    for _ in range(2):
        resumed = await rig.admin.agents.ResumeAgent(ResumeAgentRequest(agent="planner"))
        assert resumed.agent.state == pb.AGENT_STATE_ACTIVE


async def test_a_deleted_agent_is_gone_for_every_call(rig: Rig) -> None:
    agent, caller = await rig.agent("Planner")
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent="planner"))
    assert (await refusal(caller.visibility.GetSelf(GetSelfRequest()))).reason == "unauthenticated"
    for call in (
        rig.admin.agents.GetAgent(GetAgentRequest(agent=agent.id)),
        rig.admin.agents.ResumeAgent(ResumeAgentRequest(agent=agent.id)),
        rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent=agent.id)),
    ):
        assert (await refusal(call)).reason == "not_found"


# --- default, crews, webhooks ----------------------------------------------------------------------


async def test_there_is_one_default_agent_and_it_is_not_deleted(rig: Rig) -> None:
    first, _ = await rig.agent("First", is_default=True)
    error = await refusal(rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent="first")))
    assert error.reason == "failed_precondition"
    await rig.agent("Second")
    assert (await update(rig.admin, "second", is_default=True)).is_default
    assert not (await rig.admin.agents.GetAgent(GetAgentRequest(agent=first.id))).agent.is_default
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent="first"))


async def test_only_an_admin_of_the_workspace_chooses_the_default(rig: Rig) -> None:
    alice = await rig.user("Alice", OPERATOR)
    assert (await refusal(rig.agent("Mine", alice, is_default=True))).reason == "permission_denied"


async def test_only_an_admin_of_the_workspace_sets_an_address_that_the_mesh_calls(rig: Rig) -> None:
    alice = await rig.user("Alice", OPERATOR)
    wake = Wake(
        kind=pb.WAKE_KIND_WEBHOOK, webhook_url="https://wake.example/x", webhook_secret="of sixteen bytes"
    )
    shown = Wake(kind=pb.WAKE_KIND_WEBHOOK, webhook_url="https://wake.example/x", has_webhook_secret=True)
    assert (await refusal(rig.agent("Mine", alice, wake=wake))).reason == "permission_denied"
    await rig.agent("Mine", alice)
    assert (await update(rig.admin, "mine", wake=wake)).wake == shown
    assert (await refusal(update(alice, "mine", wake=wake))).reason == "permission_denied"
    assert (await update(alice, "mine", description="hers to change", wake=shown)).wake == shown
    await update(alice, "mine", wake=Wake(kind=pb.WAKE_KIND_NONE))


async def test_the_secret_of_what_wakes_an_agent_is_kept_and_goes_with_the_rule(rig: Rig) -> None:
    await rig.agent("Mine")
    bare = Wake(kind=pb.WAKE_KIND_WEBHOOK, webhook_url="https://wake.example/x")
    error = await refusal(update(rig.admin, "mine", wake=bare))
    assert (error.reason, error.violations[0][0]) == ("invalid_argument", "agent.wake.webhook_secret")
    signed = Wake(webhook_secret="of sixteen bytes")
    signed.MergeFrom(bare)
    await update(rig.admin, "mine", wake=signed)
    # An address alone keeps the secret; nothing about it is ever returned.
    elsewhere = Wake(kind=pb.WAKE_KIND_WEBHOOK, webhook_url="https://wake.example/y")
    assert (await update(rig.admin, "mine", wake=elsewhere)).wake.has_webhook_secret
    await update(rig.admin, "mine", wake=Wake(kind=pb.WAKE_KIND_EXEC))
    assert (await refusal(update(rig.admin, "mine", wake=bare))).reason == "invalid_argument"
    for wake in (
        Wake(kind=pb.WAKE_KIND_EXEC, webhook_secret="of sixteen bytes"),
        Wake(kind=pb.WAKE_KIND_NONE, webhook_url="https://wake.example/x"),
        Wake(kind=pb.WAKE_KIND_WEBHOOK, webhook_url="https://wake.example/x", webhook_secret="short"),
    ):
        assert (await refusal(update(rig.admin, "mine", wake=wake))).reason == "invalid_argument"


async def test_a_child_is_a_subagent_of_a_main_agent(rig: Rig) -> None:
    lead, _ = await rig.agent("Lead")
    child, _ = await rig.agent("Child", parent_agent_id="lead")
    assert child.parent_agent_id == lead.id
    assert child.is_subagent
    for call, words in (
        (rig.agent("Grandchild", parent_agent_id="child"), "main agent"),
        (update(rig.admin, "lead", parent_agent_id="lead"), "its own lead"),
        (update(rig.admin, "lead", is_subagent=True), "crew"),
    ):
        error = await refusal(call)
        assert error.reason == "invalid_argument"
        assert words in error.message
    await rig.agent("Other lead")
    error = await refusal(update(rig.admin, "lead", parent_agent_id="other-lead"))
    assert "no crews of crews" in error.message


async def test_a_crew_has_one_owner(rig: Rig) -> None:
    alice = await rig.user("Alice", OPERATOR)
    await rig.agent("Lead")
    error = await refusal(rig.agent("Child", alice, parent_agent_id="lead"))
    assert error.reason == "invalid_argument"
    await rig.agent("Child", parent_agent_id="lead")
    assert (await refusal(update(rig.admin, "child", owner_id="Alice"))).reason == "invalid_argument"
    assert (await refusal(update(rig.admin, "lead", owner_id="Alice"))).reason == "invalid_argument"
    await update(rig.admin, "child", parent_agent_id="")
    assert (await update(rig.admin, "lead", owner_id="Alice")).owner_id


async def test_only_an_admin_of_the_workspace_gives_an_agent_away(rig: Rig) -> None:
    alice = await rig.user("Alice", OPERATOR)
    await rig.agent("Mine", alice)
    assert (await refusal(update(alice, "mine", owner_id="admin"))).reason == "permission_denied"
    await update(alice, "mine", owner_id="Alice")
    await update(rig.admin, "mine", owner_id="admin")
    assert (await alice.agents.GetAgent(GetAgentRequest(agent="mine"))).agent.name == "Mine"


async def test_the_children_of_a_deleted_lead_stay_without_a_parent(rig: Rig) -> None:
    await rig.agent("Lead")
    await rig.agent("Child", parent_agent_id="lead")
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent="lead"))
    child = (await rig.admin.agents.GetAgent(GetAgentRequest(agent="child"))).agent
    assert (child.parent_agent_id, child.is_subagent) == ("", True)


async def test_a_definition_takes_one_mebibyte_at_most(rig: Rig) -> None:
    tools = [ServerTool(name=f"tool-{number}", description="t" * 2000) for number in range(100)]
    agent, _ = await rig.agent("Planner", soul="\N{GRINNING FACE}" * 65_536, server_tools=tools)
    room = MAX_DEFINITION - agent.ByteSize()
    agent.server_tools[0].input_schema["title"] = "x" * (room - 200)
    mask = FieldMask(paths=["server_tools"])
    fits = await rig.admin.agents.UpdateAgent(
        UpdateAgentRequest(agent_ref=agent.id, agent=agent, update_mask=mask)
    )
    assert MAX_DEFINITION - 200 < fits.agent.ByteSize() <= MAX_DEFINITION
    agent.server_tools[0].input_schema["title"] = "x" * room
    error = await refusal(
        rig.admin.agents.UpdateAgent(UpdateAgentRequest(agent_ref=agent.id, agent=agent, update_mask=mask))
    )
    assert error.reason == "invalid_argument"
    assert "the limit is 1048576 (1 MiB)" in error.message
