"""Setting a workspace up in a real browser: the main flows, how the pages look, and who can use them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hopline.registry.v1 import agent_pb2, identity_pb2, model_pb2, plugin_pb2
from hopline.relay.v1 import schedule_pb2, webhook_pb2
from playwright.async_api import Page, expect

from tests.support.browser import Browser, accessible, screenshots, sign_in
from tests.support.mesh_process import Space

CREW = """\
crew: research
members:
  - {key: lead, name: Research lead, lead: true, description: Splits questions and puts answers together.}
  - {key: librarian, name: Librarian, description: Finds sources., group_only: true}
  - {key: critic, name: Critic, description: Looks for what is wrong.}
"""


@pytest.fixture
async def page(browser: Browser, space: Space) -> Page:
    """A page of the space's admin."""
    opened = await browser.page()
    await sign_in(opened, str(space.mesh.endpoints["console"]), await _admin(space))
    return opened


async def _admin(space: Space) -> str:
    """Make a further admin, with a token that is good in this workspace alone."""
    return await space.person("alice", identity_pb2.ROLE_ADMIN)


async def _open(page: Page, path: str) -> None:
    answer = await page.goto(page.url.split("/", 3)[0] + "//" + page.url.split("/", 3)[2] + path)
    assert answer is not None
    assert answer.status == 200, path


async def _furnish(space: Space) -> dict[str, str]:
    """Fill a workspace with one of everything; returns pages of single things."""
    await space.policy(sent_per_day=5, redact_credentials=True)
    planner = await space.agent(
        "Planner",
        description="Plans what the others do, and asks when it does not know.",
        soul="You are calm.\nYou say what you do not know.",
        instructions="Plan first.",
        labels={"team": "research"},
    )
    writer = await space.agent("Writer", description="Writes it down.")
    client = space.client(planner)
    for _ in range(5):
        await client.send(writer.id, "hello")
    await space.policy(credits="0.25")
    model = model_pb2.Model(
        model_identifier="opus-5", display_name="Opus", input_usd_per_1m="3", is_default=True
    )
    await space.admin.models.CreateModel(model_pb2.CreateModelRequest(model=model))
    added = schedule_pb2.AddScheduleRequest(agent=planner.id, cron="0 7 * * 1-5", text="Plan the day.")
    schedule = (await space.admin.schedules.AddSchedule(added)).schedule
    await space.admin.webhooks.AddWebhook(webhook_pb2.AddWebhookRequest(agent=planner.id, name="orders"))
    manifest = plugin_pb2.PluginManifest(
        key="shop",
        name="Shop",
        version="1.0",
        description="Sells pears to agents.",
        permissions=["session", "agents.read"],
        agents=[plugin_pb2.PluginAgent(key="seller", name="Seller")],
        tools=[plugin_pb2.PluginTool(name="stock", description="Says how many there are.")],
        hooks=[plugin_pb2.PluginHook(kind="inter_agent_message", order=-3, fail_mode="fail_closed")],
        endpoint="127.0.0.1:1",
    )
    install = plugin_pb2.InstallPluginRequest(manifest=manifest)
    plugin = (await space.admin.plugins.InstallPlugin(install)).plugin
    return {
        "agent": f"/agents/{planner.id}",
        "agent-settings": f"/agents/{planner.id}/settings",
        "agent-connections": f"/agents/{planner.id}/connections",
        "agent-usage": f"/usage?agent={planner.id}",
        "plugin": f"/plugins/{plugin.id}",
        "schedule": f"/schedules/{schedule.id}",
    }


LISTS = (
    "/agents",
    "/agents/new",
    "/usage",
    "/audit",
    "/audit/check",
    "/crews",
    "/schedules",
    "/webhooks",
    "/plugins",
    "/hooks",
    "/users",
    "/tokens",
    "/policy",
    "/policy/presets/solo",
    "/models",
    "/credits",
)


async def test_every_page_reads_well_on_a_laptop_and_a_phone_and_is_usable_by_everybody(
    page: Page, space: Space
) -> None:
    single = await _furnish(space)
    for name, path in {**{path.strip("/").replace("/", "-"): path for path in LISTS}, **single}.items():
        await _open(page, path)
        await screenshots(page, f"set-up-{name}")
        await accessible(page)


async def test_an_agent_is_created_changed_paused_and_deleted(page: Page, space: Space) -> None:
    await _open(page, "/agents")
    await page.get_by_role("link", name="Create an agent").click()
    await page.get_by_label("Name").first.fill("Planner")
    await page.get_by_label("What it does").fill("Plans.")
    await page.get_by_role("button", name="Create").click()
    secret = page.locator("code.secret")
    await expect(secret).to_contain_text("hpl_a_")
    token = await secret.inner_text()
    assert token not in page.url
    await page.get_by_role("link", name="Go to the agent").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Planner")
    await page.get_by_role("link", name="Settings").click()
    await page.get_by_label("What it does").fill("Plans and checks.")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status").filter(has_text="Planner is changed.")).to_be_visible()
    # The first press only asks.
    await page.locator("summary", has_text="Pause").click()
    await expect(page.get_by_text("messages to it wait until it is resumed")).to_be_visible()
    await page.get_by_role("button", name="Pause Planner").click()
    await expect(page.get_by_text("Planner is paused.")).to_be_visible()
    await page.get_by_role("button", name="Resume Planner").click()
    await expect(page.get_by_text("Planner is active again.")).to_be_visible()
    await page.locator("summary", has_text="Delete").click()
    await page.get_by_role("button", name="Delete Planner").click()
    await expect(page.get_by_text("The agent is deleted.")).to_be_visible()
    assert not (await space.admin.agents.ListAgents(agent_pb2.ListAgentsRequest())).agents


async def test_going_back_does_not_show_a_secret_again(page: Page, space: Space) -> None:
    await space.agent("planner")
    await _open(page, "/tokens")
    await page.get_by_label("Whose").fill("planner")
    await page.get_by_role("button", name="Create").click()
    await expect(page.locator("code.secret")).to_be_visible()
    await page.get_by_role("link", name="Back to the tokens").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Tokens")
    await page.go_back()
    await expect(page.locator("code.secret")).to_have_count(0)
    tokens = (await space.admin.identities.ListTokens(identity_pb2.ListTokensRequest(agent="planner"))).tokens
    assert len(tokens) == 2


async def test_a_double_click_makes_one_token(page: Page, space: Space) -> None:
    await space.agent("planner")
    await _open(page, "/tokens")
    await page.get_by_label("Whose").fill("planner")
    await page.get_by_role("button", name="Create").dblclick()
    await expect(page.locator("code.secret")).to_be_visible()
    tokens = (await space.admin.identities.ListTokens(identity_pb2.ListTokensRequest(agent="planner"))).tokens
    assert len(tokens) == 2


async def test_a_crew_is_applied_from_a_file_whose_plan_was_read(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "crew.yaml"
    file.write_text(CREW)
    await _open(page, "/crews")
    await page.get_by_label("File", exact=True).set_input_files(file)
    await page.get_by_role("button", name="Show what it would change").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Crew research: the plan")
    await screenshots(page, "set-up-crew-plan")
    await accessible(page)
    await page.get_by_role("button", name="Do exactly this").click()
    await expect(page.get_by_text("The crew research is as its file says: 3 changed.")).to_be_visible()
    await page.get_by_role("link", name="research", exact=True).click()
    await expect(page.get_by_role("row")).to_have_count(4)
    await screenshots(page, "set-up-crew-members")
    await accessible(page)


async def test_a_mistake_is_shown_at_its_field_and_said_to_who_cannot_see_it(page: Page) -> None:
    await _open(page, "/policy")
    depth = page.get_by_label("Agents in a row (needed)", exact=True)
    await depth.fill("99")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("Nothing was changed.")
    await expect(depth).to_have_value("99")
    await expect(depth).to_have_attribute("aria-invalid", "true")
    await expect(depth).to_have_accessible_description(
        "must be a whole number from 0 to 32. How deep a chain of delegations may go."
    )
    await screenshots(page, "set-up-mistake")
    await accessible(page)


async def test_the_log_is_exported_as_a_file(page: Page, tmp_path: Path) -> None:
    await _open(page, "/audit?action=user.")
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Export these as JSON Lines").click()
    file = await download.value
    assert file.suggested_filename == "audit.jsonl"
    await file.save_as(tmp_path / "audit.jsonl")
    assert '"action": "user.created"' in (tmp_path / "audit.jsonl").read_text()


async def test_everything_works_without_script(browser: Browser, space: Space) -> None:
    await space.agent("planner")
    page = await browser.page(java_script_enabled=False)
    await sign_in(page, str(space.mesh.endpoints["console"]), await _admin(space))
    await _open(page, "/agents/planner")
    await page.locator("summary", has_text="Pause").click()
    await page.get_by_role("button", name="Pause planner").click()
    await expect(page.get_by_text("planner is paused.")).to_be_visible()
    await _open(page, "/audit/check")
    await page.get_by_role("button", name="Check").click()
    await expect(page.get_by_text("The log is what was written")).to_be_visible()


async def test_the_keyboard_alone_revokes_a_token(page: Page, space: Space) -> None:
    await space.agent("planner")
    await _open(page, "/tokens?agent=planner")
    await page.locator("summary", has_text="Revoke").focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="Revoke first of planner")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("The token is revoked.")).to_be_visible()
