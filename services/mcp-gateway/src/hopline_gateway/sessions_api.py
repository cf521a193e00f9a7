"""The sessions API of every agent, in plain JSON: list its sessions, read one, prompt in one.

`GET /<slug>/v1/sessions`, `GET /<slug>/v1/sessions/<id>`, `POST /<slug>/v1/sessions`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from hopline.relay.v1 import session_pb2
from hopline_rpc import telemetry
from hopline_rpc.errors import HoplineError, internal, invalid
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from hopline_gateway import prompting, shapes
from hopline_gateway.addressed import Addressed
from hopline_gateway.arguments import Checker, is_uuid
from hopline_gateway.body import BadBody, check_is_json, read_json
from hopline_gateway.mcp_endpoint import until_disconnect
from hopline_gateway.mesh import Mesh
from hopline_gateway.refusing import refuse
from hopline_gateway.server import TRACEPARENT
from hopline_gateway.toolkit import AGENT, CALLER, MAX_PAGE, MAX_WAIT, Call, Json, Tool
from hopline_gateway.tools import fields
from hopline_gateway.waits import Waits

log = logging.getLogger("hopline.gateway")

_KEY: Final = "idempotency-key"
_MAX_KEY: Final = 255
# Of keys that are no UUIDs themselves.
_KEYS: Final = uuid.UUID("6d1f5a86-9a3e-4b3c-8f58-4c3c0a1f6f11")
_ENDED: Final = frozenset({"completed", "failed", "canceled"})
# What a prompt may hold, checked and explained as the arguments of a tool are.
_PROMPT: Final = Tool(
    name="the agent",
    description="",
    run=prompting.ask,
    properties={
        "message": fields.text('the task, e.g. "What is the weather in Oslo?"'),
        "sessionId": {"type": "string", "minLength": 1, "maxLength": 64},
        "waitSeconds": fields.wait(MAX_WAIT),
        "request_id": fields.REQUEST_ID,
    },
    required=("message",),
)

Handler = Callable[[Request], Awaitable[Response]]


class SessionsApi:
    """Serves the sessions of the agent in a request's scope."""

    def __init__(self, mesh: Mesh, waits: Waits, body_seconds: float) -> None:
        self._mesh = mesh
        self._waits = waits
        self._body_seconds = body_seconds
        self._checker = Checker(_PROMPT)

    async def list_sessions(self, request: Request) -> Response:
        """Return the agent's sessions that the caller may see, newest first."""
        call = self._call(request, {})
        size, cursor = _page(request)
        asked = session_pb2.ListSessionsRequest(
            agent=prompting.of_endpoint(call).id, page_size=size, page_token=cursor
        )
        listed = await call.rpc(call.mesh.sessions.ListSessions, asked)
        found = [shapes.session(each) for each in listed.sessions]
        return JSONResponse({"sessions": found, "next_cursor": listed.next_page_token or None})

    async def read_session(self, request: Request) -> Response:
        """Return a session and a page of its transcript."""
        call = self._call(request, {})
        size, cursor = _page(request)
        session_id = request.path_params["session_id"]
        got = await call.rpc(
            call.mesh.sessions.GetSession, session_pb2.GetSessionRequest(session_id=session_id)
        )
        if got.session.agent.id != prompting.of_endpoint(call).id:
            raise _no_session(session_id)
        asked = session_pb2.ReadSessionRequest(session_id=session_id, page_size=size, page_token=cursor)
        read = await call.rpc(call.mesh.sessions.ReadSession, asked)
        return JSONResponse(
            {
                "session": shapes.session(got.session),
                "transcript": [shapes.entry(each) for each in read.entries],
                "next_cursor": read.next_page_token or None,
            }
        )

    async def prompt(self, request: Request) -> Response:
        """Prompt the agent and wait for its answer; 202 where it goes on."""
        body = await self._body(request)
        _take_key(request.headers, body)
        result = await until_disconnect(prompting.ask(self._call(request, body)), request.receive)
        if result is None:
            raise ClientDisconnect
        ended = result.structured["status"] in _ENDED
        return JSONResponse(result.structured, 200 if ended else 202)

    async def _body(self, request: Request) -> Json:
        check_is_json(request.headers)
        value, had_surrogates = await read_json(request.scope, request.receive, self._body_seconds)
        if not isinstance(value, dict):
            raise BadBody(400, 'the body must be a JSON object such as {"message": "…"}')
        self._checker.check(value, had_surrogates=had_surrogates)
        return value

    def _call(self, request: Request, arguments: Mapping[str, Any]) -> Call:
        scope = request.scope
        return Call(scope[CALLER], self._mesh, arguments, self._waits, None, scope[AGENT], prompting.NAMES)


def routes(addressed: Addressed, api: SessionsApi) -> list[BaseRoute]:
    """Return the routes of the sessions of every agent."""
    every, one = addressed.path("sessions"), addressed.path("sessions/{session_id}")
    return [
        _route(addressed, every, {"GET": api.list_sessions, "POST": api.prompt}),
        _route(addressed, one, {"GET": api.read_session}),
    ]


def _route(addressed: Addressed, path: str, handlers: Mapping[str, Handler]) -> BaseRoute:
    return Route(path, addressed.before(_Answered(path, handlers)), methods=list(handlers))


class _Answered:
    """Handlers by method as an application: in a span, with their refusals as JSON."""

    def __init__(self, path: str, handlers: Mapping[str, Handler]) -> None:
        self._path = path
        # Where a route takes GET it takes HEAD too.
        self._handlers = {"HEAD": handlers["GET"], **handlers}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        attributes = {
            "http.request.method": method,
            "http.route": self._path,
            "gen_ai.agent.id": scope[AGENT].id,
        }
        span = telemetry.span_from(
            scope[TRACEPARENT], f"{method} {self._path}", "server", attributes, service="gateway"
        )
        failure: str | None = "cancelled"
        try:
            with span.current():
                response, failure = await self._response(Request(scope, receive))
            await response(scope, receive, send)
        except ClientDisconnect:
            return
        finally:
            span.end(failure)

    async def _response(self, request: Request) -> tuple[Response, str | None]:
        """Return what is answered, and the reason of a refusal."""
        try:
            return await self._handlers[request.method](request), None
        except ClientDisconnect:
            raise
        except BadBody as bad:
            error, status = HoplineError("invalid_argument", bad.message), bad.status
        except HoplineError as refused:
            error, status = refused, 0
        except Exception as unexpected:
            error, status = internal(unexpected, log), 0
        return refuse(error, status), error.reason


def _page(request: Request) -> tuple[int, str]:
    """Return the size of the page that is asked for, and where it begins."""
    given = request.query_params
    for name in given:
        if name not in ("limit", "cursor"):
            raise invalid(name, "is not known here; there are limit and cursor")
    limit = given.get("limit", "50")
    if not (limit.isascii() and limit.isdigit()) or int(limit[:9]) == 0:
        raise invalid("limit", f"must be a whole number of 1 or more (at most {MAX_PAGE} come at once)")
    return min(int(limit[:9]), MAX_PAGE), given.get("cursor", "")


def _take_key(headers: Headers, body: Json) -> None:
    """Take an `Idempotency-Key` for the body's `request_id`; each that is no UUID stands for one."""
    key = headers.get(_KEY)
    if key is None:
        return
    key = key.strip().strip('"')
    if not key or len(key) > _MAX_KEY or not key.isascii() or not key.isprintable():
        raise invalid("Idempotency-Key", f"must be 1 to {_MAX_KEY} printable characters of ASCII")
    request_id = key.lower() if is_uuid(key) else str(uuid.uuid5(_KEYS, key))
    if body.setdefault("request_id", request_id).lower() != request_id:
        raise invalid("request_id", "differs from the header Idempotency-Key; give one of them")


def _no_session(session_id: str) -> HoplineError:
    """Return what the relay says of a session that the caller may not know of."""
    return HoplineError(
        "not_found", f"there is no session {session_id!r}", details={"session_id": session_id}
    )
