"""A person at the console without a browser: signs in, opens pages, sends forms."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape
from typing import Any

import aiohttp
from yarl import URL

from tests.support.mesh_process import Space

_CSRF = re.compile(r'name="csrf" value="([^"]+)"')


@dataclass(frozen=True)
class Answer:
    """What came back: the status, where it was sent on to (`location`), the headers and the page's text."""

    status: int
    headers: Mapping[str, str]
    html: str

    @property
    def location(self) -> str:
        return self.headers.get("Location", "")

    @property
    def text(self) -> str:
        """What a person reads: without tags, in single blanks."""
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", self.html)).split())


class Visitor:
    """One browser's worth of cookies at the console of a mesh."""

    def __init__(self, space: Space, http: aiohttp.ClientSession) -> None:
        self.space = space
        self.url = str(space.mesh.endpoints["console"])
        self.http = http
        self.csrf = ""

    async def get(self, path: str, **headers: str) -> Answer:
        """Open a page; redirects are not followed."""
        return await self._ask("GET", path, headers=headers)

    async def post(self, path: str, fields: Mapping[str, Any] | None = None, **more: Any) -> Answer:
        """Send a form as its page would, with its CSRF token and origin."""
        data = {"csrf": self.csrf, **(fields or {})}
        headers = {"Origin": self.url, **more.pop("headers", {})}
        return await self._ask("POST", path, data=data, headers=headers, **more)

    async def follow(self, path: str, fields: Mapping[str, Any] | None = None) -> Answer:
        """Send a form and open the page that it leads to."""
        answer = await self.post(path, fields)
        assert answer.status == 303, (answer.status, answer.text)
        return await self.get(answer.location)

    async def sign_in(self, token: str) -> Answer:
        """Sign in to the space."""
        answer = await self.post("/signin", {"token": token, "workspace": self.space.name, "next": "/floor"})
        if answer.status == 303:
            found = _CSRF.search((await self.get("/floor")).html)
            assert found is not None
            self.csrf = found[1]
        return answer

    async def _ask(self, method: str, path: str, **more: Any) -> Answer:
        url = URL(self.url + path, encoded=True)
        async with self.http.request(method, url, allow_redirects=False, **more) as answer:
            return Answer(answer.status, answer.headers, await answer.text())


@asynccontextmanager
async def visitor(space: Space, token: str = "") -> AsyncIterator[Visitor]:
    """Yield a person who is signed in, as the admin of the space unless another token is given."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        found = Visitor(space, http)
        answer = await found.sign_in(token or space.mesh.admin_token)
        assert answer.status == 303, answer.text
        yield found
