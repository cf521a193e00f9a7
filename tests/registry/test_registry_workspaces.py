"""Workspaces, their limits and presets, people and roles."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1.identity_pb2 import (
    CreateUserRequest,
    GrantRoleRequest,
    ListRolesRequest,
    ListUsersRequest,
    RevokeRoleRequest,
)
from hopline.registry.v1.visibility_pb2 import GetSelfRequest
from hopline.registry.v1.workspace_pb2 import (
    ApplyPresetRequest,
    CreateWorkspaceRequest,
    GetPolicyRequest,
    GetWorkspaceRequest,
    ListWorkspacesRequest,
    Policy,
    UpdatePolicyRequest,
)
from hopline_directory import ADMIN, OPERATOR, VIEWER
from hopline_registry.domain.policies import KEYS, PRESETS
from hopline_registry.store.schema import policies
from hopline_rpc.errors import HoplineError
from hopline_store import open_engine
from sqlalchemy import update

from tests.registry.builders import Caller, Rig, refusal

pytestmark = pytest.mark.both_stores


async def set_policy(caller: Caller, **keys: Any) -> Policy:
    request = UpdatePolicyRequest(policy=Policy(**keys), update_mask=FieldMask(paths=list(keys)))
    return (await caller.workspaces.UpdatePolicy(request)).policy


async def policy_of(caller: Caller) -> Policy:
    return (await caller.workspaces.GetPolicy(GetPolicyRequest())).policy


async def outcome(call: Any) -> str:
    try:
        await call
    except HoplineError as error:
        return error.reason
    return "ok"


# --- workspaces ------------------------------------------------------------------------------------


async def test_a_workspace_comes_with_an_admin_and_the_default_policy(rig: Rig) -> None:
    request = CreateWorkspaceRequest(name="Other place")
    made = (await rig.admin.workspaces.CreateWorkspace(request)).workspace
    assert made.name == "Other place"
    admin = rig.caller(rig.root, "Other place")
    assert (await admin.workspaces.GetWorkspace(GetWorkspaceRequest())).workspace == made
    assert (await policy_of(admin)).preset == "default"
    users = (await admin.identity.ListUsers(ListUsersRequest())).users
    assert [user.name for user in users] == ["admin"]


async def test_only_the_installation_makes_workspaces_and_sees_all_of_them(rig: Rig) -> None:
    other = await rig.workspace("other")
    boss = await rig.user("Boss", ADMIN)
    error = await refusal(boss.workspaces.CreateWorkspace(CreateWorkspaceRequest(name="third")))
    assert error.reason == "permission_denied"

    async def names(caller: Caller) -> list[str]:
        found = await caller.workspaces.ListWorkspaces(ListWorkspacesRequest())
        return [workspace.name for workspace in found.workspaces]

    assert await names(rig.admin) == ["default", "other"]
    assert await names(other) == ["default", "other"]
    assert await names(boss) == ["default"]
    page = await rig.admin.workspaces.ListWorkspaces(ListWorkspacesRequest(page_size=1))
    assert [workspace.name for workspace in page.workspaces] == ["default"]
    following = ListWorkspacesRequest(page_size=1, page_token=page.next_page_token)
    last = await rig.admin.workspaces.ListWorkspaces(following)
    assert [workspace.name for workspace in last.workspaces] == ["other"]
    assert last.next_page_token == ""


@pytest.mark.parametrize("name", ["", " ", "x" * 101, " x", "a\tb", "nul\0"])
async def test_a_bad_name_of_a_workspace_is_refused(rig: Rig, name: str) -> None:
    error = await refusal(rig.admin.workspaces.CreateWorkspace(CreateWorkspaceRequest(name=name)))
    assert error.reason == "invalid_argument"
    assert error.message.startswith("name: ")


@pytest.mark.parametrize("name", ["x", "x" * 100, "🏠"])
async def test_a_name_of_a_workspace_at_its_border_is_taken(rig: Rig, name: str) -> None:
    assert await outcome(rig.admin.workspaces.CreateWorkspace(CreateWorkspaceRequest(name=name))) == "ok"


async def test_a_name_is_given_to_one_workspace_even_at_once(rig: Rig) -> None:
    request = CreateWorkspaceRequest(name="other")
    results = await asyncio.gather(
        *(outcome(rig.admin.workspaces.CreateWorkspace(request)) for _ in range(4))
    )
    assert sorted(results) == ["failed_precondition"] * 3 + ["ok"]


async def test_the_same_request_id_makes_one_workspace(rig: Rig) -> None:
    request = CreateWorkspaceRequest(name="other", request_id="one")
    answers = await asyncio.gather(*(rig.admin.workspaces.CreateWorkspace(request) for _ in range(4)))
    assert len({answer.workspace.id for answer in answers}) == 1
    error = await refusal(
        rig.admin.workspaces.CreateWorkspace(CreateWorkspaceRequest(name="third", request_id="one"))
    )
    assert error.reason == "request_id_conflict"


# --- policies --------------------------------------------------------------------------------------


async def test_the_default_policy_has_the_figures_of_the_rails(rig: Rig) -> None:
    policy = await policy_of(rig.admin)
    assert {key: getattr(policy, key) for key in KEYS} == {
        "max_depth": 4,
        "root_turns": 200,
        "messages_per_thread": 20,
        "sent_per_day": 200,
        "received_per_day": 500,
        "pair_budget": "30/300s",
        "concurrent_runs": 10,
        "inbox_backlog": 1000,
        "agents": 25,
        "refuse_cycles": "off",
        "credits": "off",
        "subagent_depth": 1,
        "hook_generations": 4,
        "refusals": "300/60s",
        "causality_window_seconds": 600,
        "turn_seconds": 3600,
        "queue_seconds": 86400,
        "retention_days": 0,
        "batch_inbox": False,
        "require_isolation": False,
        "redact_credentials": False,
        "evidence_required": False,
    }


@pytest.mark.parametrize(
    ("preset", "differences"),
    [
        ("default", {}),
        ("strict", {"max_depth": 2}),
        ("free", {"agents": 2, "concurrent_runs": 1}),
        ("solo", {"agents": 5, "concurrent_runs": 3}),
        ("entrepreneur", {"agents": 25, "concurrent_runs": 10}),
    ],
)
async def test_a_preset_replaces_every_limit(rig: Rig, preset: str, differences: dict[str, int]) -> None:
    await set_policy(rig.admin, max_depth=9, batch_inbox=True, pair_budget="0")
    applied = await rig.admin.workspaces.ApplyPreset(ApplyPresetRequest(preset=preset))
    assert applied.policy.preset == preset
    expected = {**PRESETS["default"], **differences, "preset": preset}
    assert {key: getattr(applied.policy, key) for key in expected} == expected
    assert await policy_of(rig.admin) == applied.policy


def test_every_key_of_the_contract_is_a_key_of_the_presets() -> None:
    assert {field.name for field in Policy.DESCRIPTOR.fields} == {"preset", *KEYS}


async def test_an_unknown_preset_is_refused_with_those_that_there_are(rig: Rig) -> None:
    error = await refusal(rig.admin.workspaces.ApplyPreset(ApplyPresetRequest(preset="gold")))
    assert error.reason == "invalid_argument"
    assert "entrepreneur" in error.message


async def test_one_key_is_changed_and_the_preset_is_custom_then(rig: Rig) -> None:
    before = await policy_of(rig.admin)
    after = await set_policy(rig.admin, max_depth=7)
    assert (after.max_depth, after.preset) == (7, "custom")
    before.max_depth, before.preset = 7, "custom"
    assert after == before


async def test_a_key_that_keeps_its_value_changes_nothing(rig: Rig) -> None:
    seq = rig.registry.directory.seq
    assert (await set_policy(rig.admin, max_depth=4)).preset == "default"
    assert rig.registry.directory.seq == seq


async def test_the_mask_chooses_the_keys_and_the_rest_of_the_request_is_not_looked_at(rig: Rig) -> None:
    request = UpdatePolicyRequest(
        policy=Policy(max_depth=3, pair_budget="nonsense", root_turns=0),
        update_mask=FieldMask(paths=["max_depth"]),
    )
    assert (await rig.admin.workspaces.UpdatePolicy(request)).policy.max_depth == 3


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("max_depth", [0, 1, 32], [33]),
        ("root_turns", [1, 1_000_000], [0, 1_000_001]),
        ("messages_per_thread", [1, 100_000], [0, 100_001]),
        ("sent_per_day", [0, 100_000_000], [100_000_001]),
        ("received_per_day", [0, 100_000_000], [100_000_001]),
        ("pair_budget", ["0", "1/1s", "999999999/9999999s"], ["", "off", "0/5s", "5/0s", "5/5", "-1/5s"]),
        ("concurrent_runs", [1, 1_000_000], [0, 1_000_001]),
        ("inbox_backlog", [1, 1_000_000], [0, 1_000_001]),
        ("agents", [0, 1_000_000], [1_000_001]),
        ("refuse_cycles", ["off", "warn", "on"], ["", "ON", "yes"]),
        ("credits", ["off", "0", "0.000001", "999999999"], ["", "-1", "0.0000001", "1e3", "free"]),
        ("subagent_depth", [0, 8], [9]),
        ("hook_generations", [0, 32], [33]),
        ("refusals", ["0", "300/60s"], ["", "300/60"]),
        ("causality_window_seconds", [0, 86_400], [86_401]),
        ("turn_seconds", [1, 604_800], [0, 604_801]),
        ("queue_seconds", [1, 2_592_000], [0, 2_592_001]),
        ("retention_days", [0, 36_500], [36_501]),
    ],
)
async def test_every_key_is_checked_at_its_borders_and_named(
    rig: Rig, key: str, good: list[Any], bad: list[Any]
) -> None:
    for value in good:
        assert getattr(await set_policy(rig.admin, **{key: value}), key) == value
    for value in bad:
        error = await refusal(set_policy(rig.admin, **{key: value}))
        assert error.reason == "invalid_argument"
        assert key in error.message
    assert getattr(await policy_of(rig.admin), key) == good[-1]


@pytest.mark.parametrize("paths", [[], ["depth"], ["preset"], ["max_depth.x"]])
async def test_a_mask_that_names_no_key_is_refused(rig: Rig, paths: list[str]) -> None:
    request = UpdatePolicyRequest(policy=Policy(max_depth=1), update_mask=FieldMask(paths=paths))
    error = await refusal(rig.admin.workspaces.UpdatePolicy(request))
    assert error.reason == "invalid_argument"
    assert "update_mask" in error.message


async def test_a_request_without_a_mask_is_refused(rig: Rig) -> None:
    error = await refusal(rig.admin.workspaces.UpdatePolicy(UpdatePolicyRequest(policy=Policy(max_depth=1))))
    assert error.reason == "invalid_argument"


async def test_only_admins_change_limits_and_everyone_reads_them(rig: Rig) -> None:
    operator = await rig.user("Operator", OPERATOR)
    _, planner = await rig.agent("Planner")
    assert await outcome(set_policy(operator, max_depth=1)) == "permission_denied"
    apply = operator.workspaces.ApplyPreset(ApplyPresetRequest(preset="free"))
    assert await outcome(apply) == "permission_denied"
    for caller in (operator, planner):
        assert (await policy_of(caller)).max_depth == 4


async def test_limits_of_one_workspace_leave_the_other_alone(rig: Rig) -> None:
    other = await rig.workspace("other")
    await set_policy(other, max_depth=1)
    assert (await policy_of(rig.admin)).max_depth == 4
    assert (await policy_of(other)).max_depth == 1


async def test_changes_of_different_keys_at_once_are_all_kept(rig: Rig) -> None:
    await asyncio.gather(
        set_policy(rig.admin, max_depth=1),
        set_policy(rig.admin, root_turns=2),
        set_policy(rig.admin, agents=3),
    )
    policy = await policy_of(rig.admin)
    assert (policy.max_depth, policy.root_turns, policy.agents) == (1, 2, 3)


# --- people and roles ------------------------------------------------------------------------------


async def test_a_new_person_has_no_role_and_a_token(rig: Rig) -> None:
    alice = await rig.user("Alice")
    assert (await alice.visibility.GetSelf(GetSelfRequest())).owner.name == "Alice"
    assert await outcome(rig.agent("Mine", alice)) == "permission_denied"


async def test_only_admins_make_people_and_names_are_not_given_twice(rig: Rig) -> None:
    operator = await rig.user("Operator", OPERATOR)
    assert await outcome(operator.identity.CreateUser(CreateUserRequest(name="X"))) == "permission_denied"
    again = await refusal(rig.admin.identity.CreateUser(CreateUserRequest(name="Operator")))
    assert again.reason == "failed_precondition"
    assert "Operator" in again.message
    other = await rig.workspace("other")
    assert await outcome(other.identity.CreateUser(CreateUserRequest(name="Operator"))) == "ok"


async def test_the_same_request_id_makes_one_person_and_shows_the_token_once(rig: Rig) -> None:
    request = CreateUserRequest(name="Alice", request_id="one")
    answers = await asyncio.gather(*(rig.admin.identity.CreateUser(request) for _ in range(4)))
    assert len({answer.user.id for answer in answers}) == 1
    assert sum(1 for answer in answers if answer.token) == 1


@pytest.mark.parametrize("name", ["", " ", "x" * 101, "a\nb", "x\u2028y"])
async def test_a_bad_name_of_a_person_is_refused(rig: Rig, name: str) -> None:
    error = await refusal(rig.admin.identity.CreateUser(CreateUserRequest(name=name)))
    assert error.reason == "invalid_argument"


async def test_people_are_listed_page_by_page(rig: Rig) -> None:
    for name in ("Carol", "Alice", "Bob"):
        await rig.user(name)
    found: list[str] = []
    token = ""
    while True:
        page = await rig.admin.identity.ListUsers(ListUsersRequest(page_size=2, page_token=token))
        found += [user.name for user in page.users]
        token = page.next_page_token
        if not token:
            break
    assert found == ["Alice", "Bob", "Carol", "admin"]


async def test_people_are_found_by_a_part_of_their_name_page_by_page(rig: Rig) -> None:
    for name in ("Änne Weber", "Weberin", "Bob", "Joe Änn", "ännchen"):
        await rig.user(name)
    found: list[str] = []
    token = ""
    while True:
        request = ListUsersRequest(name_part="änN", page_size=2, page_token=token)
        page = await rig.admin.identity.ListUsers(request)
        found += [user.name for user in page.users]
        token = page.next_page_token
        if not token:
            break
    assert sorted(found) == ["Joe Änn", "Änne Weber", "ännchen"]
    assert not (await rig.admin.identity.ListUsers(ListUsersRequest(name_part="%"))).users


async def test_a_role_replaces_the_earlier_one_on_the_same_target(rig: Rig) -> None:
    alice = await rig.user("Alice", OPERATOR)
    assert await outcome(rig.agent("One", alice)) == "ok"
    await rig.admin.identity.GrantRole(GrantRoleRequest(user="Alice", role=VIEWER))  # type: ignore[arg-type]
    assert await outcome(rig.agent("Two", alice)) == "permission_denied"
    grants = (await rig.admin.identity.ListRoles(ListRolesRequest())).grants
    assert sorted(grant.role for grant in grants) == [VIEWER, ADMIN]


async def test_who_may_give_roles(rig: Rig) -> None:
    await rig.user("Friend")
    owner = await rig.user("Owner", OPERATOR)
    await rig.agent("Planner", owner)
    people = {
        "owner": owner,
        "operator": await rig.user("Op", OPERATOR),
        "admin": await rig.user("Boss", ADMIN),
    }
    table = {}
    for name, caller in people.items():
        on_agent = GrantRoleRequest(user="Friend", agent="planner", role=VIEWER)  # type: ignore[arg-type]
        on_all = GrantRoleRequest(user="Friend", role=VIEWER)  # type: ignore[arg-type]
        table[name] = (
            await outcome(caller.identity.GrantRole(on_agent)),
            await outcome(caller.identity.GrantRole(on_all)),
        )
    no = "permission_denied"
    assert table == {"owner": ("ok", no), "operator": (no, no), "admin": ("ok", "ok")}


async def test_a_role_that_is_taken_away_is_gone_and_taking_it_twice_is_once(rig: Rig) -> None:
    alice = await rig.user("Alice", OPERATOR)
    for _ in range(2):
        await rig.admin.identity.RevokeRole(RevokeRoleRequest(user="Alice"))
    assert await outcome(rig.agent("Mine", alice)) == "permission_denied"


async def test_a_role_is_revoked_only_when_it_is_the_one_that_was_named(rig: Rig) -> None:
    alice = await rig.user("Alice", OPERATOR)
    await rig.admin.identity.RevokeRole(RevokeRoleRequest(user="Alice", role=VIEWER))  # type: ignore[arg-type]
    assert await outcome(rig.agent("Mine", alice)) == "ok"
    await rig.admin.identity.RevokeRole(RevokeRoleRequest(user="Alice", role=OPERATOR))  # type: ignore[arg-type]
    assert await outcome(rig.agent("Other", alice)) == "permission_denied"


async def test_the_user_admin_keeps_its_role(rig: Rig) -> None:
    boss = await rig.user("Boss", ADMIN)
    lower = GrantRoleRequest(user="admin", role=VIEWER)  # type: ignore[arg-type]
    assert await outcome(boss.identity.GrantRole(lower)) == "failed_precondition"
    revoke = boss.identity.RevokeRole(RevokeRoleRequest(user="admin"))
    assert await outcome(revoke) == "failed_precondition"


async def test_a_person_or_a_role_that_is_not_there_is_named(rig: Rig) -> None:
    error = await refusal(rig.admin.identity.GrantRole(GrantRoleRequest(user="who", role=VIEWER)))  # type: ignore[arg-type]
    assert (error.reason, error.details) == ("not_found", {"user": "who"})
    for role in (0, 4):
        request = GrantRoleRequest(user="admin", role=role)  # type: ignore[arg-type]
        assert await outcome(rig.admin.identity.GrantRole(request)) == "invalid_argument"


async def test_roles_on_agents_out_of_sight_are_left_out_of_the_list(rig: Rig) -> None:
    await rig.agent("Hidden")
    alice = await rig.user("Alice")
    for number in range(5):
        await rig.user(f"U{number}")
        grant = GrantRoleRequest(user=f"U{number}", agent="hidden", role=VIEWER)  # type: ignore[arg-type]
        await rig.admin.identity.GrantRole(grant)
    mine = await alice.identity.ListRoles(ListRolesRequest(page_size=2))
    assert [(grant.agent_id, grant.role) for grant in mine.grants] == [("", ADMIN)]
    assert mine.next_page_token == ""
    found = 0
    token = ""
    while True:
        page = await rig.admin.identity.ListRoles(ListRolesRequest(page_size=2, page_token=token))
        found += len(page.grants)
        token = page.next_page_token
        if not token:
            break
    assert found == 6


async def test_names_of_any_letters_do_not_break_the_pages(rig: Rig) -> None:
    names = [letter * 100 for letter in ("a", "é", "語", "\N{GRINNING FACE}")]
    for name in names:
        await rig.user(name)
    seen: list[str] = []
    token = ""
    while True:
        page = await rig.admin.identity.ListUsers(ListUsersRequest(page_size=1, page_token=token))
        seen += [user.name for user in page.users]
        token = page.next_page_token
        if not token:
            break
    assert set(names) < set(seen)


async def test_a_limit_that_somebody_else_has_changed_is_not_changed_unseen(rig: Rig) -> None:
    seen = await policy_of(rig.admin)

    async def change(**keys: Any) -> Policy:
        mask = FieldMask(paths=list(keys))
        request = UpdatePolicyRequest(policy=Policy(**keys), update_mask=mask, expected=seen)
        return (await rig.admin.workspaces.UpdatePolicy(request)).policy

    await change(max_depth=5)
    error = await refusal(change(max_depth=6, agents=30))
    assert error.reason == "failed_precondition"
    assert [name for name, _ in error.violations] == ["max_depth"]
    now = await change(agents=30)
    assert (now.max_depth, now.agents) == (5, 30)


async def test_a_policy_from_before_a_key_was_known_has_its_default_and_can_be_changed(rig: Rig) -> None:
    await rig.registry.close()
    engine = open_engine(rig.store_url or rig.folder / "registry.db", "registry")
    with engine.begin() as connection:
        older = {key: value for key, value in PRESETS["default"].items() if key != "evidence_required"}
        connection.execute(update(policies).values({"keys": {**older, "max_depth": 7, "preset": "custom"}}))
    engine.dispose()
    again = await rig.reopen()
    found = await policy_of(again.admin)
    assert (found.max_depth, found.evidence_required) == (7, False)
    assert (await set_policy(again.admin, evidence_required=True)).evidence_required
    await again.registry.close()
