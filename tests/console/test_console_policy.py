"""The policy: one key or many, mistakes at their fields, presets looked at before they are applied."""

from __future__ import annotations

import pytest
from google.protobuf.json_format import MessageToDict
from hopline.registry.v1 import workspace_pb2 as pb
from hopline_console.pages.policy_words import FIELDS

from tests.support.forms import done, fill, form, send
from tests.support.mesh_process import Space
from tests.support.pages import visitor


async def _policy(space: Space) -> pb.Policy:
    return (await space.admin.workspaces.GetPolicy(pb.GetPolicyRequest())).policy


def test_every_key_of_a_policy_has_its_words() -> None:
    keys = {field.name for field in pb.Policy.DESCRIPTOR.fields} - {"preset"}
    assert {each.name for each in FIELDS} == keys
    assert all(each.label for each in FIELDS)


async def test_one_key_or_many_are_changed_and_the_others_stay(space: Space) -> None:
    async with visitor(space) as admin:
        said = await done(admin, await fill(admin, "/policy", "/policy", max_depth="3"))
        assert "Changed: Agents in a row." in said
        wanted = {"agents": "7", "pair_budget": "5/60s", "refuse_cycles": "warn", "batch_inbox": "1"}
        await done(admin, await fill(admin, "/policy", "/policy", **wanted))
    policy = await _policy(space)
    assert (policy.max_depth, policy.agents, policy.pair_budget) == (3, 7, "5/60s")
    assert (policy.refuse_cycles, policy.batch_inbox, policy.preset) == ("warn", True, "custom")
    newest = MessageToDict((await space.events("policy.updated"))[0].details)
    assert set(newest["changed"]) == set(wanted)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("max_depth", "33", "must be a whole number from 0 to 32"),
        ("max_depth", "", "is needed"),
        ("max_depth", "four", "must be a whole number from 0 to 32"),
        ("root_turns", "0", "must be a whole number from 1 to 1000000"),
        ("pair_budget", "many", "must be COUNT/SECONDSs such as 30/300s, or 0 for off"),
        ("credits", "-1", "must be off, or a price such as 0.25"),
        ("refuse_cycles", "perhaps", "must be one of"),
        ("retention_days", "99999999999999999999", "must be a whole number from 0 to 36500"),
    ],
)
async def test_what_is_wrong_stands_at_its_field_and_nothing_is_changed(
    space: Space, key: str, value: str, said: str
) -> None:
    before = await _policy(space)
    async with visitor(space) as admin:
        answer = await fill(admin, "/policy", "/policy", agents="7", **{key: value})
        assert answer.status == 400
        assert said in answer.text
        again = form(answer, "/policy")
        assert again["agents"] == "7"
        if key != "refuse_cycles":
            assert again[key] == value
        at = answer.html.index(f'name="{key}"')
        assert said.split(" such")[0][:20] in answer.html[at : at + 1500]
    assert await _policy(space) == before


async def test_the_borders_of_the_contract_are_those_of_the_form(space: Space) -> None:
    async with visitor(space) as admin:
        wanted = {"max_depth": "32", "root_turns": "1", "retention_days": "36500", "sent_per_day": "0"}
        await done(admin, await fill(admin, "/policy", "/policy", **wanted))
    policy = await _policy(space)
    assert (policy.max_depth, policy.root_turns, policy.retention_days, policy.sent_per_day) == (
        32,
        1,
        36500,
        0,
    )


async def test_two_people_who_change_two_keys_do_not_undo_each_other(space: Space) -> None:
    async with visitor(space) as one, visitor(space) as two:
        first, second = form(await one.get("/policy"), "/policy"), form(await two.get("/policy"), "/policy")
        await done(one, await send(one, first, "/policy", max_depth="3"))
        await done(two, await send(two, second, "/policy", agents="9"))
        refused = await send(two, second, "/policy", max_depth="2")
        assert "it is now: 3" in refused.text
    policy = await _policy(space)
    assert (policy.max_depth, policy.agents) == (3, 9)


async def test_a_preset_is_shown_with_what_it_changes_and_then_applied(space: Space) -> None:
    async with visitor(space) as admin:
        page = await admin.get("/policy/presets/solo")
        table = page.text.split("What it changes")[1]
        assert ("Turns at once 10 3" in table, "Agents 25 5" in table) == (True, True)
        assert (await _policy(space)).preset == "default"
        at = "/policy/presets/solo"
        stale = form(page, at)
        await space.policy(agents=20)
        refused = await send(admin, stale, at)
        assert "Somebody else has changed the policy meanwhile" in refused.text
        await done(admin, await send(admin, form(refused, at), at))
        assert (await _policy(space)).preset == "solo"
        assert "It is in force." in (await admin.get(at)).text
        assert (await admin.get("/policy/presets/none")).status == 404
