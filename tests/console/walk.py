"""Every route of the console, and every page that can be reached by a link: what is new is walked too."""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final
from unittest.mock import MagicMock
from urllib.parse import urlsplit

from hopline_console.context import ConsoleContext
from hopline_console.oidc import Client, Provider
from hopline_console.sealing import Seal
from hopline_console.settings import ConsoleSettings
from hopline_console.web import build_app
from hopline_rpc.service import Wiring
from starlette.routing import Mount, Route, compile_path

from tests.support.pages import Answer, Visitor

# Served to whoever asks; they show nothing of a workspace.
OPEN: Final = {"/healthz", "/readyz", "/signin", "/signin/oidc", "/signin/oidc/start"}
# One kind of page is looked at so many times, each time with other things on it.
_ALIKE: Final = 4
_MOST: Final = 400


@dataclass(frozen=True)
class Way:
    """A route: its method and the pattern of its path."""

    method: str
    pattern: str

    @property
    def path(self) -> str:
        """A path that fits, of nothing that exists."""
        return re.sub(r"{\w+(:\w+)?}", "nothing_at_all", self.pattern)

    def fits(self, path: str) -> bool:
        """Tell whether a path is of this route."""
        return compile_path(self.pattern)[0].match(path) is not None


def ways() -> list[Way]:
    """Return every route that the application has."""
    settings = ConsoleSettings.load({})
    seal = Seal([b"x" * 43 + b"="], Wiring().clock)
    context = ConsoleContext(settings, Wiring(), MagicMock(), seal, {})
    context.provider = Provider(Client("https://id.example.org", "console", ""), Wiring().clock)
    found = []
    for route in build_app(context, []).routes:
        assert isinstance(route, Route | Mount), route
        if isinstance(route, Route):
            found += [Way(method, route.path) for method in sorted((route.methods or set()) - {"HEAD"})]
    return found


WAYS: Final = ways()
PAGES: Final = [way for way in WAYS if way.method == "GET" and way.pattern not in OPEN]
FORMS: Final = [way for way in WAYS if way.method == "POST"]


class Markup(HTMLParser):
    """What of a page could run, lead somewhere or be sent: every element with its attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    @property
    def links(self) -> list[str]:
        """Where its links lead."""
        return [attrs["href"] for tag, attrs in self.elements if tag == "a" and "href" in attrs]


@dataclass
class Crawl:
    """What a person finds who follows every link."""

    pages: dict[str, Answer] = field(default_factory=dict)

    def unseen(self) -> set[str]:
        """Return the patterns of pages that no link led to."""
        paths = [urlsplit(address).path for address in self.pages]
        return {way.pattern for way in PAGES if not any(way.fits(path) for path in paths)}


async def crawl(visitor: Visitor, start: str = "/floor") -> Crawl:
    """Follow every link of every page, each kind of page a few times."""
    found, seen, alike = Crawl(), {start}, Counter[str]()
    waiting = deque([start])
    while waiting and len(found.pages) < _MOST:
        address = waiting.popleft()
        kind = kind_of(address)
        alike[kind] += 1
        if alike[kind] > _ALIKE:
            continue
        answer = await visitor.get(address)
        found.pages[address] = answer
        if answer.status == 303:
            onward = [answer.location]
        else:
            onward = Markup(answer.html).links if "html" in answer.headers.get("Content-Type", "") else []
        for link in onward:
            link = link.partition("#")[0]
            if link.startswith("/") and not link.startswith("//") and link not in seen:
                seen.add(link)
                waiting.append(link)
    return found


def kind_of(address: str) -> str:
    """Return what pages of one kind have in common: their route, and the names of what is asked for."""
    parts = urlsplit(address)
    pattern = next((way.pattern for way in PAGES if way.fits(parts.path)), parts.path)
    return f"{pattern}?{sorted(re.findall(r'(?:^|&)([^=&]*)=', parts.query))}"
