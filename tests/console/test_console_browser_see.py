"""The pages that show what goes on, in a real browser: how they look, who can use them, how they keep up."""

from __future__ import annotations

import re

import pytest
from hopline.registry.v1 import identity_pb2
from hopline_client import Turn
from playwright.async_api import Page, expect

from tests.support.browser import Browser, accessible, screenshots
from tests.support.mesh_process import Held, Space, shout


@pytest.fixture
async def token(space: Space) -> str:
    return await space.person("ada", identity_pb2.ROLE_ADMIN)


async def _busy(space: Space, held: Held) -> str:
    """Have `lead` ask three agents one after the other; the last one works until it is let go."""
    lead, scout, writer, critic = await space.agents("lead", "scout", "writer", "critic")

    async def ask(turn: Turn) -> str:
        said = [
            str((await turn.mesh.ask(peer, text, wait_seconds=50)).text)
            for peer, text in (
                ("scout", "Find three sources on how pears ripen, with the year of each."),
                ("writer", "Write a paragraph of it for people who have never grown one.\nKeep it short."),
                ("critic", "Say what is wrong with the paragraph."),
            )
        ]
        return " ".join(said)

    await space.work(scout, shout)
    await space.work(writer, shout)
    await space.work(critic, held)
    await space.work(lead, ask)
    begun = await space.mesh.cli(
        "chat", "lead", "Tell me about pears", "--wait", "0", "--workspace", space.name
    )
    await held.begun()
    return str(begun["turn_id"])


async def _open(page: Page, space: Space, path: str) -> None:
    answer = await page.goto(f"{space.mesh.endpoints['console']}{path}")
    assert answer is not None
    assert answer.status == 200, path


async def test_every_page_of_what_goes_on_reads_well_and_is_usable_by_everybody(
    browser: Browser, space: Space, token: str
) -> None:
    turn_id = await _busy(space, Held())
    page = await browser.signed_in(str(space.mesh.endpoints["console"]), token)
    await _open(page, space, "/floor")
    await expect(page.locator("#floor")).to_contain_text("running")
    await screenshots(page, "see-floor")
    await accessible(page)
    await page.get_by_role("rowheader", name="lead").get_by_role("link").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("inter-agents")
    ways = {
        "thread": page.get_by_role("link", name="thread", exact=True).first,
        "trace": page.get_by_role("link", name="trace", exact=True).first,
    }
    paths = {name: str(await way.get_attribute("href")).split("#")[0] for name, way in ways.items()}
    await screenshots(page, "see-window")
    await accessible(page)
    paths |= {"tree": f"/turns/{turn_id}", "threads": "/threads", "activity": "/activity"}
    for name, path in paths.items():
        await _open(page, space, path)
        await screenshots(page, f"see-{name}")
        await accessible(page)


async def test_words_are_looked_for_by_keyboard_and_the_thread_is_opened(
    browser: Browser, space: Space, token: str
) -> None:
    await _busy(space, Held())
    page = await browser.signed_in(str(space.mesh.endpoints["console"]), token)
    await page.get_by_role("rowheader", name="lead").get_by_role("link").press("Enter")
    search = page.get_by_label("Search")
    await search.fill("paragraph")
    await search.press("Enter")
    await page.wait_for_url(re.compile("q=paragraph"))
    rows = page.locator("#exchanges tbody tr")
    assert await rows.count() == 3  # what the writer was asked, its answer, and what the critic was asked
    await expect(rows.first).to_contain_text("what is wrong")
    await rows.first.get_by_role("link", name="thread", exact=True).press("Enter")
    await expect(page.get_by_role("article")).to_contain_text(["Say what is wrong with the paragraph."])


async def test_a_page_keeps_up_by_itself_and_reads_the_same_without_script(
    browser: Browser, space: Space, token: str
) -> None:
    held = Held()
    turn_id = await _busy(space, held)
    console = str(space.mesh.endpoints["console"])
    page = await browser.signed_in(console, token)
    await _open(page, space, f"/turns/{turn_id}")
    await expect(page.locator("#live-state")).to_have_text("live")
    await expect(page.locator(".waterfall")).to_contain_text("so far")
    held.go_on.set()
    await expect(page.locator(".waterfall")).not_to_contain_text("so far")
    plain = await browser.signed_in(console, token, java_script_enabled=False)
    await _open(plain, space, f"/turns/{turn_id}")
    assert await plain.locator(".waterfall").inner_text() == await page.locator(".waterfall").inner_text()
