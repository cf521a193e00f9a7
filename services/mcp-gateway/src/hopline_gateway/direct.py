"""Serves well-formed tool calls without the SDK's transport, which costs more than everything else together.

For every request of an earlier revision it makes a session, two pairs of streams and two tasks, and of each
message of any revision it makes five models. What is well-formed is still for the SDK's own checks to say:
whatever they do not accept, and every other method, goes the long way, so that there is one account of what
is wrong with a request.
"""

from __future__ import annotations

import json
from typing import Final

import mcp.types as t
from mcp.shared.inbound import (
    MCP_PROTOCOL_VERSION_HEADER,
    InboundLadderRejection,
    classify_inbound_request,
)
from mcp.types import methods
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.responses import Response
from starlette.types import Scope

from hopline_gateway.body import Body
from hopline_gateway.limits import LIMITS
from hopline_gateway.server import Arrived, ToolServer
from hopline_gateway.toolkit import Json, Tool

_JSON: Final = "application/json"
_CALL: Final = "tools/call"
_REQUEST: Final = frozenset({"jsonrpc", "id", "method", "params"})


def recognised(scope: Scope, body: Body) -> Arrived | None:
    """Return a tool call that needs no second look; None: the SDK has to serve it, or to refuse it."""
    message = body.message
    if body.had_surrogates or message.keys() != _REQUEST:
        return None
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    if len(headers) != len(scope["headers"]) or not _takes_json(headers):
        return None
    revision = headers.get(MCP_PROTOCOL_VERSION_HEADER, t.DEFAULT_NEGOTIATED_VERSION)
    params = message["params"]
    if revision in MODERN_PROTOCOL_VERSIONS:
        if isinstance(classify_inbound_request(message, headers=headers), InboundLadderRejection):
            return None
    elif revision not in HANDSHAKE_PROTOCOL_VERSIONS:
        return None
    try:
        methods.validate_client_request(_CALL, revision, params)
        t.CallToolRequestParams.model_validate(params, by_name=False)
    except (KeyError, ValidationError):
        return None
    return Arrived(_CALL, params, message["id"], revision, scope)


def _takes_json(headers: dict[str, str]) -> bool:
    """Tell whether a request says plainly that it sends JSON and takes it."""
    accepted = [each.partition(";")[0].strip().lower() for each in headers.get("accept", "").split(",")]
    return headers.get("content-type", "").lower() == _JSON and _JSON in accepted


class DirectCalls:
    """Answers them as JSON."""

    def __init__(self, server: ToolServer) -> None:
        self._server = server

    async def serve(self, tool: Tool, request: Arrived) -> Response:
        """Serve one call."""
        result = await self._server.call(tool, request)
        answer = {"jsonrpc": "2.0", "id": request.request_id, "result": self._enveloped(request, result)}
        written = json.dumps(answer, separators=(",", ":"))
        return Response(written, media_type=_JSON, headers=request.scope.get(LIMITS))

    def _enveloped(self, request: Arrived, result: Json) -> Json:
        """Give a result what its revision wants around it."""
        if request.revision in MODERN_PROTOCOL_VERSIONS:
            return {**result, "_meta": {t.SERVER_INFO_META_KEY: self._server.mcp.server_info_stamp}}
        return {name: value for name, value in result.items() if name != "resultType"}
