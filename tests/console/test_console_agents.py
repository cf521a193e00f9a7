"""The pages of agents: made, changed field by field, paused, connected, deleted; who reaches whom."""

from __future__ import annotations

from google.protobuf.json_format import MessageToDict
from hopline.registry.v1 import agent_pb2 as pb
from hopline.registry.v1 import identity_pb2, model_pb2

from tests.support.forms import done, fill, form, send
from tests.support.mesh_process import Space
from tests.support.pages import visitor


async def _agent(space: Space, ref: str) -> pb.Agent:
    return (await space.admin.agents.GetAgent(pb.GetAgentRequest(agent=ref))).agent


async def test_an_agent_is_made_with_what_was_filled_in_and_its_token_is_shown_once(space: Space) -> None:
    async with visitor(space) as admin:
        fields = {
            **form(await admin.get("/agents/new"), "/agents/new"),
            "name": "Planner",
            "description": "Plans.\r\nTwo lines.",
            "labels": "team=research\n\ncolour = blue",
            "reply_mode": str(pb.REPLY_MODE_IMPLICIT),
            "is_group_only_callable": "1",
        }
        page = await send(admin, fields, "/agents/new")
        assert page.status == 200
        assert page.text.count("hpl_a_") == 1
        again = await send(admin, fields, "/agents/new")
        assert "had been created already" in await done(admin, again)
    made = await _agent(space, "planner")
    assert made.description == "Plans.\nTwo lines."
    assert dict(made.labels) == {"team": "research", "colour": "blue"}
    assert (made.reply_mode, made.is_group_only_callable) == (pb.REPLY_MODE_IMPLICIT, True)
    assert (made.kind, made.runtime) == (pb.AGENT_KIND_STANDARD, pb.AGENT_RUNTIME_LOCAL)


async def test_what_the_mesh_refuses_of_a_new_agent_stands_at_its_field(space: Space) -> None:
    await space.agent("planner")
    await space.policy(agents=2)
    async with visitor(space) as admin:
        taken = await fill(admin, "/agents/new", "/agents/new", name="Other", slug="planner")
        assert taken.status == 409
        assert form(taken, "/agents/new")["slug"] == "planner"
        assert 'aria-invalid="true"' in taken.html
        lead = await fill(admin, "/agents/new", "/agents/new", name="Other", parent_agent_id="nobody")
        assert "nobody" in lead.text
        await space.agent("second")
        full = await fill(admin, "/agents/new", "/agents/new", name="Third")
        assert (full.status, "policy" in full.text or "agents" in full.text) == (409, True)


async def test_only_what_was_changed_is_sent_so_that_two_people_change_two_fields(space: Space) -> None:
    await space.agent("planner", description="old", soul="a calm soul", labels={"a": "1"})
    async with visitor(space) as one, visitor(space) as two:
        at = f"/agents/{(await _agent(space, 'planner')).id}/settings"
        first, second = form(await one.get(at), at), form(await two.get(at), at)
        assert "changed" in await done(one, await send(one, first, at, description="new"))
        assert "changed" in await done(two, await send(two, second, at, soul="a wild soul"))
    now = await _agent(space, "planner")
    assert (now.description, now.soul, dict(now.labels)) == ("new", "a wild soul", {"a": "1"})
    events = await space.events("agent.updated")
    assert [MessageToDict(each.details)["fields"] for each in events] == [["soul"], ["description"]]


async def test_a_field_that_somebody_else_changed_meanwhile_is_not_overwritten_unseen(space: Space) -> None:
    await space.agent("planner", description="old")
    async with visitor(space) as one, visitor(space) as two:
        at = f"/agents/{(await _agent(space, 'planner')).id}/settings"
        first, second = form(await one.get(at), at), form(await two.get(at), at)
        await send(one, first, at, description="theirs")
        refused = await send(two, second, at, description="mine")
        assert refused.status == 400
        assert "somebody else has changed it meanwhile; it is now: theirs" in refused.text
        assert form(refused, at)["description"] == "mine"
        assert "changed" in await done(two, await send(two, form(refused, at), at))
    assert (await _agent(space, "planner")).description == "mine"


async def test_a_form_that_is_sent_as_it_was_changes_nothing(space: Space) -> None:
    await space.agent(
        "planner",
        description="one\ntwo  ",
        soul="\n leading, a tab\t and \u202e what turns",
        tools=["ask", "check"],
        wake=pb.Wake(kind=pb.WAKE_KIND_EXEC),
    )
    before = await _agent(space, "planner")
    async with visitor(space) as admin:
        at = f"/agents/{before.id}/settings"
        page = await admin.get(at)
        assert "\u202e" not in page.html
        assert "Nothing was changed" in await done(admin, await send(admin, form(page, at), at))
    assert await _agent(space, "planner") == before


async def test_the_model_is_one_of_the_catalogue_and_the_lead_an_agent_by_slug(space: Space) -> None:
    lead = await space.agent("lead")
    await space.agent("sub")
    wanted = model_pb2.CreateModelRequest(model=model_pb2.Model(model_identifier="opus"))
    model = (await space.admin.models.CreateModel(wanted)).model
    async with visitor(space) as admin:
        at = f"/agents/{(await _agent(space, 'sub')).id}/settings"
        await done(admin, await fill(admin, at, at, model_id=model.id, parent_agent_id="lead", reach="lead"))
        shown = form(await admin.get(at), at)
        assert (shown["model_id"], shown["parent_agent_id"], shown["reach"]) == (model.id, "lead", "lead")
        nonsense = await fill(admin, at, at, model_id="other")
        assert nonsense.status == 400
    sub = await _agent(space, "sub")
    assert (sub.model_id, sub.parent_agent_id, list(sub.reach)) == (model.id, lead.id, [lead.id])


async def test_a_webhook_that_wakes_keeps_its_secret_where_none_is_typed(space: Space) -> None:
    await space.agent("planner")
    secret = "a secret of sixteen bytes"
    async with visitor(space) as admin:
        at = f"/agents/{(await _agent(space, 'planner')).id}/settings"
        wanted = {"wake_kind": "3", "webhook_url": "https://wake.example.org/", "webhook_secret": secret}
        await done(admin, await fill(admin, at, at, **wanted))
        page = await admin.get(at)
        assert secret not in page.html
        await done(admin, await send(admin, form(page, at), at, webhook_url="https://wake.example.org/2"))
        short = await fill(admin, at, at, webhook_secret="short")
        assert short.status == 400
        assert "short" not in form(short, at).values()
    wake = (await _agent(space, "planner")).wake
    assert (wake.webhook_url, wake.has_webhook_secret) == ("https://wake.example.org/2", True)


async def test_an_agent_is_paused_resumed_and_deleted(space: Space) -> None:
    agent = await space.agent("planner")
    async with visitor(space) as admin:
        page = await admin.get("/agents/planner")
        assert f"/agents/{agent.id}/pause" in page.html
        text = await done(admin, await admin.post(f"/agents/{agent.id}/pause"))
        assert "planner is paused." in text
        assert (await _agent(space, "planner")).state == pb.AGENT_STATE_PAUSED
        assert "is active again" in await done(admin, await admin.post(f"/agents/{agent.id}/resume"))
        assert "deleted" in await done(admin, await admin.post(f"/agents/{agent.id}/delete"))
        assert (await admin.get(f"/agents/{agent.id}")).status == 404
        assert (await admin.post(f"/agents/{agent.id}/delete")).status == 404


async def test_an_agents_page_says_who_reaches_it_and_whom_it_reaches(space: Space) -> None:
    await space.agents("planner", "writer")
    await space.agent("mute", kind=pb.AGENT_KIND_RECEIVE_ONLY)
    token = await space.person("zoe")
    for agent in ("planner", "mute"):
        grant = identity_pb2.GrantRoleRequest(user="zoe", agent=agent, role=identity_pb2.ROLE_VIEWER)
        await space.admin.identities.GrantRole(grant)
    async with visitor(space) as admin, visitor(space, token) as zoe:
        text = (await admin.get("/agents/planner")).text
        callers, peers = text.split("Who may start something on it")[1].split(
            "On whom it may start something"
        )
        assert ("writer" in callers, "mute" in callers) == (True, False)
        assert ("writer" in peers, "mute" in peers) == (True, True)
        seen = await zoe.get("/agents/planner")
        assert seen.status == 200
        assert "writer" not in seen.text
        assert "zoe" in seen.text.split("People with a role on it")[1]
        assert (await zoe.get("/agents/writer")).status == 404


async def test_connections_are_added_and_removed_one_by_one(space: Space) -> None:
    await space.agents("planner", "weather", "maps")
    agent = await _agent(space, "planner")
    at = f"/agents/{agent.id}/connections"
    async with visitor(space) as admin:
        for name in ("weather", "maps"):
            await done(admin, await fill(admin, at, at, name=name, agent=name, description=f"for {name}"))
        taken = await fill(admin, at, at, name="maps", agent="weather")
        assert (taken.status, "is taken" in taken.text) == (409, True)
        wrong = await fill(admin, at, at, name="Not a name", agent="weather")
        assert wrong.status == 400
        assert "must be a letter a-z" in wrong.text
        missing = await fill(admin, at, at, name="other", agent="nobody")
        assert missing.status in (400, 404)
        assert form(missing, at)["agent"] == "nobody"
        removed = form(await admin.get(at), f"{at}/remove", name="weather")
        await done(admin, await send(admin, removed, f"{at}/remove"))
    assert [each.name for each in (await _agent(space, "planner")).connections] == ["maps"]


async def test_agents_come_a_page_at_a_time(space: Space) -> None:
    await space.policy(agents=60)
    for number in range(53):
        await space.agent(f"agent-{number:02}")
    async with visitor(space) as admin:
        first = await admin.get("/agents")
        assert ("agent-49" in first.text, "agent-50" in first.text) == (True, False)
        rest = first.html.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
        second = await admin.get(rest)
        assert ("agent-50" in second.text, "agent-49" in second.text) == (True, False)
