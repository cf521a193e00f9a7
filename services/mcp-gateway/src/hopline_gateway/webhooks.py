"""`POST /<slug>/v1/webhooks/<name>`: what comes in from outside the mesh, signed and without a credential.

Everything about a delivery is decided by the relay, which answers alike whatever is wrong with it. What is
decided here depends on the request alone: its size, its encoding, its wait.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

import grpc.aio
from hopline.relay.v1 import message_pb2, webhook_pb2
from hopline.relay.v1.webhook_pb2_grpc import WebhookServiceStub
from hopline_rpc import signatures
from hopline_rpc.errors import HoplineError, from_rpc_error, internal
from hopline_rpc.principals import Principal
from hopline_rpc.telemetry import TRACEPARENT
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from hopline_gateway.body import BadBody, read_raw
from hopline_gateway.mesh import CALL_SECONDS, WAIT_MARGIN
from hopline_gateway.refusing import refuse
from hopline_gateway.shapes import status
from hopline_gateway.waits import Waits

log = logging.getLogger("hopline.gateway.webhooks")

MAX_BODY: Final = 64 * 1024
MAX_WAIT: Final = 50
# The contract's; longer ones are nobody's.
_MAX_NAME: Final = 200
_MAX_HEADER: Final = 512
_PATH: Final = re.compile(r"/[^/]+/v1/webhooks/[^/]+")
_SINGLE_PATH: Final = re.compile(r"/v1/webhooks/[^/]+")
_REFUSED: Final = HoplineError(
    "unauthenticated",
    "no webhook takes this: check its address and the header Hopline-Signature "
    "(t=UNIX,v1=HEX of HMAC-SHA256 over t, a dot and the body), whose time is good for 300 s",
)


def is_delivery(scope: Scope, *, single: bool = False) -> bool:
    """Tell, by the shape of the path alone, whether a request may come without a credential."""
    shape = _SINGLE_PATH if single else _PATH
    return scope["method"] == "POST" and shape.fullmatch(scope["path"]) is not None


def webhook_routes(
    stub: WebhookServiceStub, waits: Waits, body_seconds: float, *, agent: str = ""
) -> list[Route]:
    """Return the routes; with `agent`, a slug, those of a gateway that serves this agent alone."""
    deliveries = Deliveries(stub, waits, body_seconds, agent)
    path = "/v1/webhooks/{name}" if agent else "/{slug}/v1/webhooks/{name}"
    return [Route(path, deliveries.serve, methods=["POST"])]


class Deliveries:
    """Hands deliveries to the relay."""

    def __init__(self, stub: WebhookServiceStub, waits: Waits, body_seconds: float, agent: str) -> None:
        self._stub = stub
        self._waits = waits
        self._body_seconds = body_seconds
        self._agent = agent

    async def serve(self, request: Request) -> Response:
        """Serve one request."""
        try:
            return await self._serve(request)
        except BadBody as bad:
            return refuse(HoplineError("invalid_argument", bad.message), bad.status)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except HoplineError as error:
            return refuse(error)
        except Exception as error:
            return refuse(internal(error, log))

    async def _serve(self, request: Request) -> Response:
        seconds = _wait(request)
        body = _text(await read_raw(request.scope, request.receive, self._body_seconds, MAX_BODY))
        slug, name = self._agent or request.path_params["slug"], request.path_params["name"]
        if max(len(slug), len(name)) > _MAX_NAME:
            slug = name = ""
        header = request.headers.get(signatures.HEADER, "")
        delivery = webhook_pb2.DeliverWebhookRequest(
            slug=slug,
            name=name,
            signature=header if len(header) <= _MAX_HEADER else "",
            body=body,
            wait_seconds=seconds,
        )
        turn = await self._deliver(delivery, request.headers.get(TRACEPARENT, ""))
        return _answer(turn)

    async def _deliver(
        self, delivery: webhook_pb2.DeliverWebhookRequest, traceparent: str
    ) -> message_pb2.TurnView:
        """Hand one over, as this service itself: the sender is nobody that the mesh knows."""

        async def call() -> webhook_pb2.DeliverWebhookResponse:
            # The channel adds the credential where the call brings none.
            metadata = ((TRACEPARENT, traceparent),) if traceparent else ()
            timeout = CALL_SECONDS + delivery.wait_seconds + WAIT_MARGIN
            stub: Any = self._stub
            response: webhook_pb2.DeliverWebhookResponse = await stub.DeliverWebhook(
                delivery, timeout=timeout, metadata=metadata
            )
            return response

        nobody = Principal(kind="service", id="webhooks", workspace_id="")
        try:
            return (await self._waits.run(nobody, call(), delivery.wait_seconds, None, "webhook")).turn
        except grpc.aio.AioRpcError as error:
            raise _meant(from_rpc_error(error)) from error
        except HoplineError as error:
            raise _meant(error) from error


def _meant(error: HoplineError) -> HoplineError:
    """Say in the words of this surface what the relay refused."""
    if error.reason == "not_found":
        return _REFUSED
    if error.reason in ("unauthenticated", "permission_denied"):
        # Ours was refused: not the sender's, who has none.
        return HoplineError("unavailable", "the mesh does not accept this gateway's own credential")
    return error


def _wait(request: Request) -> int:
    given = request.query_params.get("wait", "0")
    if not given.isascii() or not given.isdigit() or len(given) > 9:
        raise HoplineError("invalid_argument", f"wait: must be whole seconds, at most {MAX_WAIT}")
    return min(int(given), MAX_WAIT)


def _text(raw: bytes) -> str:
    if not raw:
        raise HoplineError("invalid_argument", "the body must not be empty")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise HoplineError("invalid_argument", f"the body is not UTF-8 (byte {error.start})") from None


def _answer(turn: message_pb2.TurnView) -> Response:
    """Return 202 for what goes on, 200 with the outcome for what has ended."""
    answer: dict[str, Any] = {
        "status": status(turn.status),
        "sessionId": turn.session_id,
        "turnId": turn.turn_id,
    }
    if turn.has_reply:
        answer["reply"] = turn.reply
    if turn.HasField("error"):
        answer["error"] = {"code": turn.error.code, "message": turn.error.message}
    return JSONResponse(answer, 200 if turn.has_reply or turn.HasField("error") else 202)
