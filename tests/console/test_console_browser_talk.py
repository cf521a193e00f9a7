"""The pages on which people talk with agents, in a real browser: how they look, and what is done on them."""

from __future__ import annotations

import re

import pytest
from hopline.registry.v1 import identity_pb2
from hopline_client import Turn
from playwright.async_api import Page, expect

from tests.support.browser import Browser, accessible, screenshots
from tests.support.mesh_process import Held, Space, until
from tests.support.pages import visitor


@pytest.fixture
async def token(space: Space) -> str:
    return await space.person("ada", identity_pb2.ROLE_ADMIN)


async def opened(browser: Browser, space: Space, token: str, path: str) -> Page:
    page = await browser.signed_in(str(space.mesh.endpoints["console"]), token)
    await page.goto(f"{space.mesh.endpoints['console']}{path}")
    return page


async def seen(page: Page, name: str) -> None:
    """Keep how it looks at both widths, and have everybody be able to use it."""
    await screenshots(page, f"talk-{name}")
    await accessible(page)


async def test_a_lead_is_talked_with_its_answer_held_and_released(
    browser: Browser, space: Space, token: str
) -> None:
    (lead,) = await space.agents("gardener")

    at_it = Held()  # woken for its todos, it works on them

    async def plan(turn: Turn) -> str:
        if not turn.text.startswith("Plan"):
            return await at_it(turn)
        await turn.mesh.add_todos("Ask the neighbours about the wall", "Order twelve pear trees")
        return "A first draft: twelve pear trees along the wall,\nthe quince in the corner."

    await space.work(lead, plan)
    page = await opened(browser, space, token, "/chat")
    await seen(page, "choose")
    await page.get_by_role("link", name="gardener").click()
    await page.get_by_label("Say").fill("Plan the orchard.\nIt has a wall to the south.")
    await seen(page, "chat-new")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator("#chat")).to_contain_text("twelve pear trees along the wall")
    await expect(page.locator("#chat")).to_contain_text("open todos")
    await seen(page, "chat-held")
    await page.goto(f"{space.mesh.endpoints['console']}/held")
    await seen(page, "held")
    await page.locator("summary", has_text="Send the draft now").click()
    await page.get_by_role("button", name="Send the draft now").click()
    await expect(page.get_by_role("status").filter(has_text="draft")).to_be_visible()
    await page.goto(f"{space.mesh.endpoints['console']}/playground?agent={lead.id}")
    await page.get_by_role("table").get_by_role("link").first.click()
    await expect(page.locator("#session")).to_contain_text("Order twelve pear trees")
    await seen(page, "session")


async def test_a_session_of_mcp_is_read_and_prompted_in_the_playground(
    browser: Browser, space: Space, token: str
) -> None:
    asker, shop = await space.agents("asker", "shop")
    held = Held()
    await space.work(shop, held)
    held.go_on.set()
    async with space.mcp_over_http(asker) as client:
        await client.call_tool("ask", {"agent": "shop", "text": "Are there pears?"})
    page = await opened(browser, space, token, f"/playground?agent={shop.id}")
    await page.get_by_label("Channel").select_option("relay")
    await page.get_by_role("button", name="Show").click()
    await seen(page, "playground")
    await page.get_by_role("table").get_by_role("link").first.click()
    await expect(page.locator("#session")).to_contain_text("Are there pears?")
    await page.get_by_label("Say").fill("And apples?")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator("#session")).to_contain_text("And apples?, answered at attempt 1")


async def test_a_question_is_answered_and_a_dead_letter_tried_again(
    browser: Browser, space: Space, token: str
) -> None:
    peer, other, _ = await space.agents("peer", "other", "away")
    heard: list[str] = []

    async def ask(turn: Turn) -> str:
        found = await turn.mesh.ask_owner("Deploy version 1.2 now?", options=["yes", "no"], wait_seconds=50)
        heard.append(found.answer)
        return found.answer

    await space.work(peer, ask)
    await space.client(other).send("peer", "deploy it")
    await space.policy(queue_seconds=1)
    await space.client(other).send("away", "Are you there?")
    page = await opened(browser, space, token, "/escalations")
    await expect(page.locator("#questions")).to_contain_text("Deploy version 1.2 now?")
    await seen(page, "questions")
    await page.get_by_role("link", name="Deploy version 1.2 now?").click()
    await seen(page, "question")
    await page.get_by_label("yes").check()
    await page.get_by_role("button", name="Answer").click()
    await expect(page.get_by_role("status").filter(has_text="has your answer")).to_be_visible()
    await until(lambda: heard, "the answer")
    assert heard == ["yes"]

    async with visitor(space) as admin:

        async def died() -> bool:
            return "Are you there?" in (await admin.get("/dead")).text

        await until(died, "the dead letter")
    await space.policy(queue_seconds=3600)
    await page.goto(f"{space.mesh.endpoints['console']}/dead")
    letter = page.get_by_role("checkbox", name=re.compile("Are you there"))
    await letter.check()
    await seen(page, "dead")
    await page.get_by_role("button", name="Throw the chosen ones away").click()
    await expect(page.get_by_role("alert")).to_contain_text("Throw 1 chosen letters away for good?")
    await seen(page, "dead-sure")
    await page.get_by_role("link", name="No", exact=True).click()
    await page.get_by_role("link", name=re.compile("Show the letter")).first.click()
    await seen(page, "letter")
    await page.get_by_role("button", name="Try it again").click()
    await expect(page.get_by_role("status").filter(has_text="queued again")).to_be_visible()
