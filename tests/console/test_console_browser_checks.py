"""The checks that every page in the browser is held against do find what they are for."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.browser import Browser, accessible, running_browser, screenshots
from tests.support.chromium import chromium

_HEAD = '<!doctype html><html lang="en"><head><title>A page</title><link rel="icon" href="data:,"></head>'
PAGES = {
    "/good": f"{_HEAD}<body><main><h1>Good</h1><p>Nothing is wrong here.</p></main></body></html>",
    "/inline": f"{_HEAD}<body><h1>Inline</h1><script>document.title = 'ran'</script></body></html>",
    "/styled": f'{_HEAD}<body><h1 style="color: red">Styled</h1></body></html>',
    "/missing": f'{_HEAD}<body><h1>Missing</h1><img src="/nowhere.png" alt=""></body></html>',
    "/script": f'{_HEAD}<body><h1>Script</h1><script src="/throws.js"></script></body></html>',
    "/throws.js": "console.error('said so'); throw new Error('thrown');",
    "/wide": f"{_HEAD}<body><h1>Wide</h1><p>{'word' * 100}</p></body></html>",
    "/unlabelled": f"{_HEAD}<body><main><h1>Form</h1><input></main></body></html>",
}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = PAGES.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header(
            "Content-Type", "text/javascript" if self.path.endswith(".js") else "text/html; charset=utf-8"
        )
        self.send_header(
            "Content-Security-Policy", "default-src 'none'; script-src 'self'; img-src 'self' data:"
        )
        self.end_headers()
        self.wfile.write((body or f"{_HEAD}<body><h1>Not found</h1></body></html>").encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


async def _open(url: str) -> None:
    async with running_browser() as browser:
        page = await browser.page()
        await page.goto(url)
        assert await page.title() == "A page"  # no script of it ran


async def test_a_page_with_nothing_wrong_passes_and_leaves_its_screenshots(
    browser: Browser, site: str
) -> None:
    page = await browser.page()
    await page.goto(f"{site}/good")
    laptop, phone = await screenshots(page, "checks-good")
    await accessible(page)
    assert laptop.stat().st_size > 0
    assert phone.stat().st_size > 0
    assert page.viewport_size == {"width": 1280, "height": 800}


async def test_a_page_that_answers_not_found_is_no_complaint(browser: Browser, site: str) -> None:
    page = await browser.page()
    answer = await page.goto(f"{site}/gone")
    assert answer is not None
    assert answer.status == 404


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/inline", "CSP: script-src-elem blocked inline"),
        ("/styled", "CSP: style-src-attr blocked inline"),
        ("/missing", "nowhere.png answered 404"),
        ("/script", "said so"),
        ("/script", "a script failed: thrown"),
    ],
)
async def test_what_a_page_breaks_fails_the_test_at_its_end(site: str, path: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        await _open(site + path)


async def test_what_was_expected_to_break_does_not_fail_the_test(browser: Browser, site: str) -> None:
    page = await browser.page()
    await page.goto(f"{site}/missing")
    browser.expect_complaints("nowhere.png answered 404")
    with pytest.raises(AssertionError, match="nothing of 'nowhere'"):
        browser.expect_complaints("nowhere")


async def test_a_page_that_scrolls_sideways_on_a_phone_is_found(browser: Browser, site: str) -> None:
    page = await browser.page()
    await page.goto(f"{site}/wide")
    with pytest.raises(AssertionError, match=r"scrolls sideways:\n(.*\n)*<p>word"):
        await screenshots(page, "checks-wide")


async def test_an_input_without_a_label_is_found(browser: Browser, site: str) -> None:
    page = await browser.page()
    await page.goto(f"{site}/unlabelled")
    with pytest.raises(AssertionError, match="light: critical: Form elements must have labels"):
        await accessible(page)


def _without_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def test_who_has_no_browser_and_may_install_none_is_told_how(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_a_browser(monkeypatch)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"no Chromium: install it first .*apt-get install"):
        chromium()


def test_in_ci_no_browser_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_a_browser(monkeypatch)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no Chromium"):
        chromium()
