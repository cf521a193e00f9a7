"""Pages of the console in a real browser, and what every one of them is held against.

A test asks for the fixture `browser`, opens a page with it, and looks. Whatever the page breaks on the way
(an error on its console, a breach of its content security policy, a file that is not there) fails the test at
its end. The browser starts with the test, in half a second: what Playwright opens belongs to the test's loop.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import (
    BrowserContext,
    ConsoleMessage,
    Page,
    Response,
    ViewportSize,
    async_playwright,
    expect,
)

from tests.support import node
from tests.support.chromium import ROOT, chromium

LAPTOP: Final = ViewportSize(width=1280, height=800)
PHONE: Final = ViewportSize(width=390, height=844)
SCREENSHOTS: Final = ROOT / "build" / "screenshots"
# What makes it quiet: it looks for nothing outside of this machine.
_FLAGS: Final = (
    "--no-sandbox",  # which root, in CI, cannot have
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_MILLISECONDS: Final = 30_000.0  # the machine may be busy; nothing takes this long when all is well
expect.set_options(timeout=_MILLISECONDS)
_TOLD_OTHERWISE: Final = "Failed to load resource"  # `_look_at` says which, and whether it matters
# Breaches of the policy are events of the document; not all of them are printed.
_LISTEN: Final = """
document.addEventListener('securitypolicyviolation', (event) => {
  console.error(`CSP: ${event.violatedDirective} blocked ${event.blockedURI} ${event.sample}`);
});
"""
_TOO_WIDE: Final = """
() => {
  const room = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= room) return [];
  const right = (each) => Math.max(each.getBoundingClientRect().right, each.offsetLeft + each.scrollWidth);
  return [...document.body.querySelectorAll('*')]
    .filter((each) => right(each) > room + 1 && getComputedStyle(each).overflowX === 'visible')
    .map((each) => each.outerHTML.slice(0, 120)).slice(0, 10).concat(`the page has ${room} px`);
}
"""


class Browser:
    """A browser of one test. Each context is a person: with cookies and a width of its own."""

    def __init__(self, chromium: Chromium) -> None:
        self._chromium = chromium
        self.complaints: list[str] = []

    async def person(self, viewport: ViewportSize = LAPTOP, **options: Any) -> BrowserContext:
        """Open what one person sees: `color_scheme`, `java_script_enabled`, … as Playwright knows them."""
        context = await self._chromium.new_context(viewport=viewport, **options)
        context.set_default_timeout(_MILLISECONDS)
        await context.add_init_script(_LISTEN)
        context.on("console", self._listen_to)
        context.on("weberror", lambda error: self.complaints.append(f"a script failed: {error.error}"))
        context.on("response", self._look_at)
        return context

    async def page(self, viewport: ViewportSize = LAPTOP, **options: Any) -> Page:
        """Open an empty page of a new person."""
        return await (await self.person(viewport, **options)).new_page()

    async def signed_in(
        self, console: str, token: str, viewport: ViewportSize = LAPTOP, **options: Any
    ) -> Page:
        """Open the console as whoever holds the token; the page is where signing in leads."""
        page = await self.page(viewport, **options)
        await sign_in(page, console, token)
        return page

    async def settle(self) -> None:
        """Hear all that the open pages have had to say until now."""
        for page in [page for context in self._chromium.contexts for page in context.pages]:
            await page.evaluate("() => 0")  # what it said before comes before the answer

    def expect_complaints(self, *parts: str) -> None:
        """Say that each of these words was to be complained of, and forget them."""
        for part in parts:
            found = [each for each in self.complaints if part in each]
            assert found, f"nothing of {part!r} in {self.complaints}"
            self.complaints = [each for each in self.complaints if part not in each]

    def _listen_to(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(_TOLD_OTHERWISE):
            where = message.page.url if message.page else ""
            self.complaints.append(f"the console of {where} says: {message.text}")

    def _look_at(self, response: Response) -> None:
        # A page that says `not found` is the test's own business; a style sheet that is not there is not.
        limit = 500 if response.request.is_navigation_request() else 400
        if response.status >= limit:
            self.complaints.append(f"{response.request.method} {response.url} answered {response.status}")


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """Yield a browser, and complain at its end of what its pages did."""
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=chromium(), args=list(_FLAGS))
        try:
            browser = Browser(started)
            yield browser
            await browser.settle()
        finally:
            await started.close()
    assert not browser.complaints, "\n".join(browser.complaints)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """A browser for one test."""
    async with running_browser() as found:
        yield found


async def sign_in(page: Page, console: str, token: str) -> None:
    """Sign in with a token, as a person does it."""
    await page.goto(f"{console}/signin")
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await page.wait_for_url(lambda url: "/signin" not in url)


async def screenshots(page: Page, name: str) -> list[Path]:
    """Keep the page as it looks on a laptop and on a phone; on neither may it scroll sideways."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    before, made = page.viewport_size or LAPTOP, []
    for viewport in (LAPTOP, PHONE):
        await page.set_viewport_size(viewport)
        await fits(page)
        made.append(SCREENSHOTS / f"{name}-{viewport['width']}.png")
        await page.screenshot(path=made[-1], full_page=True, animations="disabled")
    await page.set_viewport_size(before)
    return made


async def fits(page: Page) -> None:
    """Look whether the page fits into the width it has."""
    too_wide: list[str] = await page.evaluate(_TOO_WIDE)
    assert not too_wide, f"{page.url} scrolls sideways:\n" + "\n".join(too_wide)


async def accessible(page: Page) -> None:
    """Look with axe whether everybody can use the page, light and dark."""
    found: list[str] = []
    for scheme in ("light", "dark"):
        # What moves is looked at where it has come to.
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found += [f"{scheme}: {each}" for each in await _violations(page)]
    await page.emulate_media(color_scheme="null", reduced_motion="null")  # as the person has them
    assert not found, f"{page.url} is not accessible:\n" + "\n".join(found)


async def _violations(page: Page) -> list[str]:
    await page.evaluate((node.installed() / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    result: dict[str, Any] = await page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['impact']}: {each['help']} ({each['id']})"
        + "".join(f"\n    {json.dumps(part['target'])} {part['html'][:160]}" for part in each["nodes"][:5])
        for each in result["violations"]
        if each["impact"] in ("serious", "critical")
    ]
