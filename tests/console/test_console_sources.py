"""Schedules, webhooks and models: set, changed, ended; secrets shown once."""

from __future__ import annotations

from hopline.registry.v1 import identity_pb2, model_pb2
from hopline.relay.v1 import schedule_pb2, webhook_pb2

from tests.support.forms import done, fill, form, send
from tests.support.mesh_process import Space
from tests.support.pages import visitor


async def test_a_schedule_is_set_once_paused_resumed_and_removed(space: Space) -> None:
    await space.agent("planner")
    async with visitor(space) as admin:
        fields = {
            **form(await admin.get("/schedules"), "/schedules"),
            "agent": "planner",
            "cron": "0 5 * * 1-5",
            "timezone": "Europe/Berlin",
            "text": "Wake up.\r\nWork.",
        }
        for _ in range(2):
            assert "Wake up." in await done(admin, await send(admin, fields, "/schedules"))
        listed = (await space.admin.schedules.ListSchedules(schedule_pb2.ListSchedulesRequest())).schedules
        (made,) = listed
        assert (made.text, made.timezone) == ("Wake up.\nWork.", "Europe/Berlin")
        at = f"/schedules/{made.id}"
        assert "is paused" in await done(admin, await admin.post(f"{at}/pause"))
        assert "is active" in await done(admin, await admin.post(f"{at}/resume"))
        page = await admin.get(at)
        assert "0 5 * * 1-5" in page.text
        gone = form(page, f"{at}/remove")
        assert "is removed" in await done(admin, await send(admin, gone, f"{at}/remove"))
        assert (await admin.get(at)).status == 404


async def test_what_is_wrong_with_a_schedule_stands_at_its_field(space: Space) -> None:
    await space.agent("planner")
    async with visitor(space) as admin:
        for field, value in (("cron", "often"), ("timezone", "Mars/Olympus")):
            wanted = {"agent": "planner", "cron": "0 5 * * *", "text": "x", field: value}
            answer = await fill(admin, "/schedules", "/schedules", **wanted)
            assert answer.status == 400, field
            assert form(answer, "/schedules")[field] == value
            place = answer.html.index(f'name="{field}"')
            assert 'aria-invalid="true"' in answer.html[place - 100 : place + 300], field
        missing = await fill(admin, "/schedules", "/schedules", agent="nobody", cron="0 5 * * *", text="x")
        assert (missing.status, "nobody" in missing.text) == (404, True)


async def test_a_webhooks_secret_is_shown_when_it_is_made_and_when_it_is_replaced(space: Space) -> None:
    agent = await space.agent("planner")
    async with visitor(space) as admin:
        made = await fill(admin, "/webhooks", "/webhooks", agent="planner", name="orders")
        assert made.html.count('class="secret"') == 1
        secret = made.html.split('<code class="secret" tabindex="0">')[1].split("<")[0]
        page = await admin.get("/webhooks")
        assert secret not in page.html
        assert "/webhooks/orders" in page.text or "orders" in page.text
        taken = await fill(admin, "/webhooks", "/webhooks", agent="planner", name="orders")
        assert taken.status == 409
        wrong = await fill(admin, "/webhooks", "/webhooks", agent="planner", name="Or ders")
        assert (wrong.status, "must be 1-64 lower-case" in wrong.text) == (400, True)
        fields = form(page, "/webhooks/rotate")
        rotated = await send(admin, fields, "/webhooks/rotate")
        other = rotated.html.split('<code class="secret" tabindex="0">')[1].split("<")[0]
        assert other != secret
        assert (await send(admin, fields, "/webhooks/rotate")).status == 409
        assert "the one before until" in (await admin.get("/webhooks")).text
        at_once = form(await admin.get("/webhooks"), "/webhooks/rotate", at_once="1")
        assert (await send(admin, at_once, "/webhooks/rotate")).status == 200
        assert "the one before until" not in (await admin.get("/webhooks")).text
        gone = form(await admin.get("/webhooks"), "/webhooks/remove", agent=agent.id)
        await done(admin, await send(admin, gone, "/webhooks/remove"))
    left = await space.admin.webhooks.ListWebhooks(webhook_pb2.ListWebhooksRequest())
    assert not left.webhooks


async def test_who_may_only_look_at_an_agent_sets_nothing_on_it(space: Space) -> None:
    await space.agent("planner")
    token = await space.person("vera", identity_pb2.ROLE_VIEWER)
    async with visitor(space, token) as vera:
        schedule = await fill(vera, "/schedules", "/schedules", agent="planner", cron="0 5 * * *", text="x")
        webhook = await fill(vera, "/webhooks", "/webhooks", agent="planner", name="orders")
        for answer in (schedule, webhook):
            assert answer.status == 403
            assert "this needs the role operator" in answer.text


async def test_models_are_added_changed_made_the_default_and_removed(space: Space) -> None:
    async with visitor(space) as admin:
        wanted = {"model_identifier": "opus", "input_usd_per_1m": "3", "output_usd_per_1m": "15.5"}
        fields = {**form(await admin.get("/models"), "/models"), **wanted}
        for _ in range(2):
            await done(admin, await send(admin, fields, "/models"))
        taken = await fill(admin, "/models", "/models", model_identifier="opus")
        assert taken.status == 409
        dear = await fill(admin, "/models", "/models", model_identifier="x", input_usd_per_1m="-3")
        assert (dear.status, "must be a price such as" in dear.text) == (400, True)
        (model,) = (await space.admin.models.ListModels(model_pb2.ListModelsRequest())).models
        assert (model.input_usd_per_1m, model.HasField("cached_usd_per_1m")) == ("3", False)
        at = f"/models/{model.id}"
        await done(admin, await fill(admin, at, at, display_name="Opus", input_usd_per_1m=""))
        assert "unknown 15.5 unknown" in (await admin.get("/models")).text
        default = form(await admin.get("/models"), "/models/default", model=model.id)
        assert "Opus is the default." in await done(admin, await send(admin, default, "/models/default"))
        none = form(await admin.get("/models"), "/models/default", model="")
        assert "no default" in await done(admin, await send(admin, none, "/models/default"))
        gone = form(await admin.get(at), f"{at}/delete")
        await done(admin, await send(admin, gone, f"{at}/delete"))
        assert (await admin.get(at)).status == 404
    events = [each.action for each in await space.events("model.")]
    assert events.count("model.created") == 1
