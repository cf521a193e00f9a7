"""Paths that begin with an agent's slug: whose they are, and who may go there.

A caller finds only agents that it may use. Any other slug is answered like one that was never given out:
the same look into the same map, the same refusal by the relay (which notes it with its true reason), the
same 404.
"""

from __future__ import annotations

import logging
from typing import Final

from hopline.relay.v1 import session_pb2
from hopline_directory import AgentRecord, Follower, not_found
from hopline_rpc.errors import HoplineError, internal
from starlette.types import ASGIApp, Receive, Scope, Send

from hopline_gateway import mesh
from hopline_gateway.mesh import Caller, Mesh
from hopline_gateway.refusing import refuse
from hopline_gateway.toolkit import AGENT, CALLER

log = logging.getLogger("hopline.gateway")

# A longer one than any agent's is not asked for.
_MAX_SLUG: Final = 63
# What may stand in the way of the relay's own refusal, and is worth telling instead.
_TOLD: Final = frozenset({"overloaded", "unavailable", "unauthenticated", "deadline_exceeded"})


class Addressed:
    """Finds the agent that a path is for. With `single` paths have no slug, and all are for that one."""

    def __init__(self, mesh: Mesh, follower: Follower, single: str = "") -> None:
        self._mesh = mesh
        self._follower = follower
        self._single = single

    def path(self, rest: str) -> str:
        """Return the route of `rest` at every agent: `/{slug}/v1/…`, or `/v1/…` where there is one alone."""
        return f"/v1/{rest}" if self._single else f"/{{slug}}/v1/{rest}"

    def before(self, app: ASGIApp) -> ASGIApp:
        """Return an application that is served only with the agent in its scope."""
        return _ForAgent(self, app)

    async def agent(self, scope: Scope) -> AgentRecord:
        """Return the agent that a request is for; `not_found` for every slug that the caller may not use."""
        slug = self._single or scope["path_params"]["slug"]
        caller: Caller = scope[CALLER]
        await self._follower.ensure_fresh()
        agent = self._follower.directory.with_slug(caller.principal, slug)
        if agent is None:
            await self._have_it_refused(caller, slug)
            raise not_found(slug)
        return agent

    async def _have_it_refused(self, caller: Caller, slug: str) -> None:
        """Have the relay note who asked for what is not there, or not for them."""
        if len(slug) > _MAX_SLUG:
            return
        try:
            await mesh.call(self._mesh.sessions.ListSessions, _looked_for(slug), caller)
        except HoplineError as error:
            if error.reason in _TOLD:
                raise


def _looked_for(slug: str) -> session_pb2.ListSessionsRequest:
    return session_pb2.ListSessionsRequest(agent=slug, page_size=1)


class _ForAgent:
    """An application behind a path that is an agent's."""

    def __init__(self, addressed: Addressed, app: ASGIApp) -> None:
        self._addressed = addressed
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            scope[AGENT] = await self._addressed.agent(scope)
        except HoplineError as error:
            await refuse(error)(scope, receive, send)
        except Exception as error:
            await refuse(internal(error, log))(scope, receive, send)
        else:
            await self._app(scope, receive, send)
