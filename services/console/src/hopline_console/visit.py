"""A page that is set up of blocks, and the forms on it: how they are shown, read, answered and refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from hopline.registry.v1 import agent_pb2, identity_pb2
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.blocks import Block
from hopline_console.context import ConsoleContext
from hopline_console.forms import Filled
from hopline_console.forms.form import ONCE
from hopline_console.mesh import Mesh
from hopline_console.page import STATUS, Page
from hopline_console.words import role_word

# So many names are looked up for a page; what is beyond is shown by its id.
_NAMED: Final = 1000
_AT_ONCE: Final = 200
# These are no matter of what was filled in: they are told on a page of their own.
_ELSEWHERE: Final = frozenset({"unauthenticated", "internal"})

Shown = Callable[["Visit"], Awaitable[Response]]


class Visit:
    """What a page of blocks is given: who looks, what they asked for and sent, and the services."""

    def __init__(self, page: Page, role: int) -> None:
        self._page = page
        # On the whole workspace.
        self.role = role
        self._roles: dict[str, int] = {}
        self.path = page.path
        self.asked = page.query

    @property
    def mesh(self) -> Mesh:
        """The services, called as this person."""
        return self._page.mesh

    @property
    def clock(self) -> Clock:
        """The time."""
        return self._page.context.clock

    @property
    def person_id(self) -> str:
        """Who this is."""
        return self._page.principal.id

    @property
    def query(self) -> Mapping[str, str]:
        """What stands in the address."""
        return self._page.request.query_params

    async def posted(self) -> Mapping[str, Any]:
        """Return what was sent with a form, whose token has been checked."""
        return await self._page.form()

    # -- answers -----------------------------------------------------------------------------------

    async def page(
        self, heading: str, blocks: Sequence[Block], *, lead: str = "", filled: Filled | None = None
    ) -> Response:
        """Answer with a page; where a form on it is `filled` and refused, the status says so."""
        status = 200 if filled is None or filled.good else STATUS.get(filled.reason, 409)
        return await self._page.render("blocks/page.html", status, heading=heading, lead=lead, blocks=blocks)

    def done(self, to: str, said: str) -> Response:
        """Answer a form that went well."""
        return self._page.go(to, said)

    async def answer(
        self,
        filled: Filled,
        act: Callable[[], Awaitable[Response]],
        again: Callable[[], Awaitable[Response]],
        *,
        once: bool = False,
    ) -> Response:
        """Do what a form asks for; what is wrong with it is shown in it, with all that was typed.

        `once`: sent twice it is refused, for calls that would do it twice.
        """
        if filled.good:
            try:
                if not once:
                    return await act()
                with self._page.context.once.first(self.person_id, filled.once):
                    return await act()
            except HoplineError as refusal:
                if refusal.reason in _ELSEWHERE:
                    raise
                filled.refuse(refusal)
        return await again()

    def once(self, posted: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Let a button be pressed once."""
        return self._page.context.once.first(self.person_id, str(posted.get(ONCE, "")))

    def require(self, role: int, needed: int, where: str = "the workspace") -> None:
        """Refuse whoever holds too low a role, in the words of the mesh: a form that would be of no use."""
        if role < needed:
            text = f"this needs the role {role_word(needed)} on {where}"
            raise HoplineError("permission_denied", text)

    async def role_on(self, agent_id: str) -> int:
        """Return the person's role on an agent."""
        if agent_id not in self._roles:
            found = await self.mesh.agents.GetAgent(agent_pb2.GetAgentRequest(agent=agent_id))
            self._roles[agent_id] = int(found.role)
        return self._roles[agent_id]

    # -- names -------------------------------------------------------------------------------------

    async def slugs(self) -> dict[str, str]:
        """Return the slugs of agents that the person may see, by id."""
        found: dict[str, str] = {}
        request = agent_pb2.ListAgentsRequest(page_size=_AT_ONCE)
        while len(found) < _NAMED:
            page = await self.mesh.agents.ListAgents(request)
            found.update((each.id, each.slug) for each in page.agents)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break
        return found

    async def names_of_people(self) -> dict[str, str]:
        """Return the names of the workspace's people, by id."""
        found: dict[str, str] = {}
        request = identity_pb2.ListUsersRequest(page_size=_AT_ONCE)
        while len(found) < _NAMED:
            page = await self.mesh.identities.ListUsers(request)
            found.update((each.id, each.name) for each in page.users)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break
        return found


def routed(
    context: ConsoleContext, path: str, *, get: Shown | None = None, post: Shown | None = None
) -> list[Route]:
    """Return the routes of a page of blocks."""

    def visiting(shown: Shown) -> Callable[[Page], Awaitable[Response]]:
        async def handler(page: Page) -> Response:
            return await shown(Visit(page, int((await page.me()).workspace_role)))

        return handler

    found = [context.get(path, visiting(get))] if get is not None else []
    return [*found, *([context.post(path, visiting(post))] if post is not None else [])]
