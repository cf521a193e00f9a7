"""A real browser looks at every page of a workspace in which everybody wrote what no page may obey."""

from __future__ import annotations

from typing import Any

from hopline.registry.v1 import identity_pb2

from tests.console.hostile import poison
from tests.console.walk import crawl
from tests.support.browser import LAPTOP, PHONE, Browser, fits
from tests.support.mesh_process import Space
from tests.support.pages import visitor

# Everything that ran, or that a click would run or lead away by.
_LOOK = """
() => {
  const found = [];
  if (window.ran !== undefined || document.title === '49') found.push('something ran');
  for (const each of document.querySelectorAll('*')) {
    for (const attribute of each.attributes) {
      if (/^on|^style$/.test(attribute.name)) found.push(`${each.tagName} has ${attribute.name}`);
      if (/^(href|src|action|formaction|xlink:href|data|srcdoc)$/.test(attribute.name)) {
        const target = new URL(attribute.value, location.href);
        if (target.origin !== location.origin) found.push(`${each.tagName} leads to ${attribute.value}`);
      }
    }
  }
  const odd = 'iframe, object, embed, base, style, template, img, meta[http-equiv]';
  for (const each of document.querySelectorAll(odd)) found.push(`there is: ${each.outerHTML.slice(0, 100)}`);
  const scripts = [...document.scripts].filter((each) => !each.src.startsWith(`${location.origin}/static/`));
  for (const each of scripts) found.push(`a script: ${each.outerHTML.slice(0, 100)}`);
  if (!document.querySelector('main h1')) found.push('the frame of the page is broken');
  if (document.activeElement && document.activeElement.autofocus) found.push('the focus was taken');
  return found;
}
"""


async def test_nothing_runs_nothing_leads_away_and_the_layout_holds(space: Space, browser: Browser) -> None:
    await poison(space)
    token = await space.person("root", identity_pb2.ROLE_ADMIN)
    async with visitor(space, token) as walker:
        found = await crawl(walker)
    pages = [
        address
        for address, answer in found.pages.items()
        if answer.status == 200 and "html" in answer.headers["Content-Type"]
    ]
    assert len(pages) > 10
    page = await browser.signed_in(str(space.mesh.endpoints["console"]), token)
    wrong: dict[str, Any] = {}
    for address in pages:
        await page.goto(f"{walker.url}{address}", wait_until="domcontentloaded")
        seen = await page.evaluate(_LOOK)
        for viewport in (PHONE, LAPTOP):
            await page.set_viewport_size(viewport)
            try:
                await fits(page)
            except AssertionError as error:
                seen.append(f"{viewport['width']}: {error}")
        if page.url.partition("#")[0] != f"{walker.url}{address}":
            seen.append(f"it went to {page.url}")
        if seen:
            wrong[address] = seen
    assert wrong == {}
