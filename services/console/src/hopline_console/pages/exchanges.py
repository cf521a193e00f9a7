"""The inter-agents window of an agent, `/floor?agent=<id>&channel=relay`: all it has sent and received."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from hopline.registry.v1 import agent_pb2
from hopline.relay.v1 import exchange_pb2, message_pb2
from hopline_rpc.clock import to_timestamp
from hopline_rpc.errors import HoplineError
from starlette.responses import Response

from hopline_console.page import PAGE_SIZE, Page

DIRECTIONS: Final = (("", "sent and received"), ("sent", "sent"), ("received", "received"))
STATES: Final = tuple(
    value.name.removeprefix("DELIVERY_STATE_").lower()
    for value in message_pb2.DeliveryState.DESCRIPTOR.values
    if value.number
)
KINDS: Final = (
    "message",
    "ask",
    "answer",
    "reply",
    "prompt",
    "task",
    "report",
    "peer",
    "tool",
    "todo",
    "timer",
)
_FILTERS: Final = ("q", "direction", "peer", "state", "kind", "from", "until")


async def window(page: Page) -> Response:
    """Show an agent's exchanges across threads, as far as the filters let them through."""
    request, problem = _request(page)
    found = exchange_pb2.ListExchangesResponse()
    agent = page.query("agent")
    try:
        found = await page.mesh.exchanges.ListExchanges(request)
    except HoplineError as error:
        if error.reason != "invalid_argument":
            raise
        problem = error.message
    name = await _name(page, agent)
    return await page.render(
        "exchanges/window.html",
        status=400 if problem else 200,
        agent_id=agent,
        name=name,
        exchanges=found.exchanges,
        more=found.next_page_token,
        problem=problem,
        empty=_empty(page, found.next_page_token),
        directions=DIRECTIONS,
        states=(("", "any"), *((state, state) for state in STATES)),
        kinds=(("", "any"), *((kind, kind) for kind in KINDS)),
        trace_url=page.context.settings.trace_url,
    )


def _empty(page: Page, more: str) -> str:
    """Say what it means that no row is there. A page looks at a part of what there is, so it may lead on."""
    if more:
        return "Nothing fits in the part that was looked at; the next page looks further back."
    if any(page.query(name) for name in (*_FILTERS, "page")):
        return "Nothing here fits."
    return "It has sent and received nothing yet."


async def _name(page: Page, agent: str) -> str:
    found = await page.mesh.agents.GetAgent(agent_pb2.GetAgentRequest(agent=agent))
    return found.agent.name


def _request(page: Page) -> tuple[exchange_pb2.ListExchangesRequest, str]:
    request = exchange_pb2.ListExchangesRequest(
        agent=page.query("agent"),
        query=page.query("q")[:500],
        peer=page.query("peer"),
        page_size=PAGE_SIZE,
        page_token=page.query("page"),
    )
    problem = ""
    if page.query("kind") in KINDS:
        request.kind = page.query("kind")
    if page.query("state") in STATES:
        request.state = message_pb2.DeliveryState.Value(f"DELIVERY_STATE_{page.query('state').upper()}")
    if page.query("direction") == "sent":
        request.direction = exchange_pb2.EXCHANGE_DIRECTION_SENT
    elif page.query("direction") == "received":
        request.direction = exchange_pb2.EXCHANGE_DIRECTION_RECEIVED
    for name in ("from", "until"):
        if given := page.query(name):
            try:
                at = datetime.fromisoformat(given)
            except ValueError:
                problem = f"{given!r} is no time: write it like 2026-11-30 or 2026-11-30T14:00"
                continue
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
            getattr(request, name).CopyFrom(to_timestamp(at.timestamp()))
    return request, problem
