"""Why an `ask` hangs: found from the floor by what the pages say and lead to, and ended there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hopline.registry.v1 import identity_pb2
from playwright.async_api import Page, expect

from tests.support.browser import Browser, accessible, screenshots
from tests.support.hangs import full_run_queue, owners_question, stopped_worker, stuck_hook
from tests.support.mesh_process import Space, until


@pytest.fixture
async def page(browser: Browser, space: Space) -> Page:
    """The floor, as an admin of this workspace sees it."""
    token = await space.person("ada", identity_pb2.ROLE_ADMIN)
    found = await browser.signed_in(str(space.mesh.endpoints["console"]), token)
    await expect(found.get_by_role("heading", level=1, name="Floor")).to_be_visible()
    return found


async def _look(page: Page, name: str) -> None:
    await screenshots(page, f"hang-{name}")
    await accessible(page)


async def _to_the_waiting(page: Page) -> None:
    """Go from the floor to the turn of the agent that waits for its answer."""
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="lead"))
    await expect(row).to_contain_text("It waits for an answer that it has asked for")
    await row.get_by_role("link", name="running").click()
    await expect(page.get_by_role("heading", level=1, name="Turn of lead")).to_be_visible()


async def test_a_worker_that_was_stopped_is_named_and_its_turn_is_ended(page: Page, space: Space) -> None:
    hang = await stopped_worker(space)

    async def gone() -> bool:
        await page.reload()
        return "Its worker is gone" in await page.locator("#floor").inner_text()

    await until(gone, "the floor saying so")
    await _look(page, "floor-worker")
    await _to_the_waiting(page)
    kept = page.get_by_role("listitem").filter(has_text="Its worker is gone")
    await expect(kept).to_contain_text("peer")
    await _look(page, "turn-worker")
    await kept.get_by_role("link", name="open the turn of peer").click()
    await expect(page.get_by_role("heading", level=1, name="Turn of peer")).to_be_visible()
    await page.locator("summary", has_text="Cancel it").click()
    await page.get_by_role("button", name="Cancel it").click()
    await expect(page.get_by_role("main").get_by_role("status")).to_contain_text("One turn was ended.")
    await hang.over("failed")  # what it asked for was taken from it, and its handler lets that fail


async def test_a_question_to_an_owner_is_led_to_and_answered(page: Page, space: Space) -> None:
    hang = await owners_question(space)
    await expect(page.locator("#floor")).to_contain_text("It has asked its owner a question")
    await _to_the_waiting(page)
    await expect(page.locator("#tree")).to_contain_text("It has asked its owner a question")
    await page.get_by_role("link", name="Answer it").click()
    await expect(page.get_by_role("main")).to_contain_text("Deploy 1.2?")
    await _look(page, "question")
    await page.get_by_label("yes").check()
    await page.get_by_role("button", name="Answer").click()
    await expect(page.get_by_role("main")).to_contain_text("The agent has your answer.")
    await hang.over()


async def test_a_full_run_queue_is_led_from_to_the_limit_which_is_raised(page: Page, space: Space) -> None:
    hang = await full_run_queue(space)
    await expect(page.locator("#floor")).to_contain_text("All 1 run slots of the workspace are taken")
    await _to_the_waiting(page)
    await _look(page, "turn-queue")
    await page.get_by_role("link", name="Raise the limit").click()
    await page.get_by_label("Turns at once").fill("3")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("main").get_by_role("status")).to_contain_text("Turns at once")
    await hang.over()


async def test_a_stuck_hook_is_named_on_the_turn_and_goes_with_its_plugin(
    page: Page, space: Space, tmp_path: Path
) -> None:
    async with stuck_hook(space, tmp_path) as hang:
        await page.reload()
        row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="lead"))
        await row.get_by_role("link", name="running").click()
        kept = page.locator("#tree").get_by_role("listitem").filter(has_text="Censor")
        await expect(kept).to_contain_text("The hook inter_agent_message of Censor")
        await _look(page, "turn-hook")
        await page.get_by_role("link", name="Floor", exact=True).click()
        await expect(page.get_by_role("note")).to_contain_text("The hook inter_agent_message of Censor")
        await _look(page, "floor-hook")
        await page.get_by_role("link", name="The plugin Censor").click()
        await page.locator("summary", has_text="Uninstall").click()
        await page.get_by_role("button", name="Uninstall").click()
        await expect(page.get_by_role("main").get_by_role("status")).to_contain_text("is uninstalled")
        await hang.over()
