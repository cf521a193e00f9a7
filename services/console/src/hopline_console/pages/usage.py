"""`/usage`: what is used of each limit, of the workspace and of each agent, and when it is free again."""

from __future__ import annotations

import asyncio
from typing import Final

from hopline.quota.v1 import usage_pb2 as pb
from hopline.registry.v1 import agent_pb2
from hopline_rpc.clock import from_timestamp
from hopline_rpc.errors import HoplineError
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.blocks import Bar, Block, Cell, Facts, Gauge, Gauges, Link, Links, Moment, Note, Table
from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.visit import Visit, routed

NAV: Final = (Item("See", "Usage", "/usage"),)

_PAGE = 25
_AT_ONCE = 5


def routes(context: ConsoleContext) -> list[Route]:
    """Return the pages of usage."""
    return [*routed(context, "/usage", get=show)]


async def show(visit: Visit) -> Response:
    """Show the usage of the workspace and its agents, or of one agent."""
    agent = visit.asked("agent")
    return await (_one(visit, agent) if agent else _all(visit))


async def _usage(visit: Visit, agent: str) -> pb.GetUsageResponse:
    return await visit.mesh.usage.GetUsage(pb.GetUsageRequest(agent=agent))


async def _all(visit: Visit) -> Response:
    request = agent_pb2.ListAgentsRequest(page_size=_PAGE, page_token=visit.asked("page"))
    page = await visit.mesh.agents.ListAgents(request)
    few = asyncio.Semaphore(_AT_ONCE)

    async def read(agent: agent_pb2.Agent) -> pb.GetUsageResponse | None:
        async with few:
            try:
                return await _usage(visit, agent.id)
            except HoplineError as error:
                if error.reason != "not_found":
                    raise
                return None  # it was deleted a moment ago

    read_of = await asyncio.gather(*map(read, page.agents))
    found = [(agent, usage) for agent, usage in zip(page.agents, read_of, strict=True) if usage is not None]
    rows = [_row(agent, usage) for agent, usage in found]
    blocks: list[Block] = []
    if found:
        blocks += [_workspace(found[0][1]), *_credits(found[0][1])]
    else:
        blocks.append(Note("Usage is told by agent, and there is none that you may see."))
    columns = ("Agent", "Sent today", "Received today", "Waiting for it", "Depth")
    blocks.append(Table("Agents", columns, rows, "No agents.", more=page.next_page_token))
    return await visit.page("Usage", blocks)


def _row(agent: agent_pb2.Agent, usage: pb.GetUsageResponse) -> list[Cell]:
    limits = usage.limits

    def bar(what: str, used: int, key: str) -> Bar:
        return Bar(f"{what} of {agent.name}", used, float(limits[key]))

    return [
        Link(agent.name, f"/usage?agent={agent.id}"),
        bar("sent today", usage.sent_today, "sent_per_day"),
        bar("received today", usage.received_today, "received_per_day"),
        bar("waiting", usage.inbox, "inbox_backlog"),
        f"{usage.depth} of {limits['max_depth']}",
    ]


def _gauge(label: str, used: int, limit: float, note: str = "", until: float | None = None) -> Gauge:
    return Gauge(label, used, limit, note, until)


def _workspace(usage: pb.GetUsageResponse) -> Gauges:
    resets = from_timestamp(usage.resets_at)
    slots = float(usage.limits["concurrent_runs"])
    return Gauges(
        "The workspace",
        [
            _gauge(
                "Sent today by all agents",
                usage.workspace_sent_today,
                usage.workspace_sent_limit,
                "Free again:",
                resets,
            ),
            _gauge("Turns at once", usage.running, slots, "When all are used, further turns wait in line."),
        ],
    )


def _credits(usage: pb.GetUsageResponse) -> list[Block]:
    if not usage.HasField("credits"):
        return []
    held = usage.credits
    pairs: list[tuple[str, Cell]] = [
        ("Balance", held.balance),
        ("Paid in", held.deposited),
        ("Charged", held.charged),
        ("Price of a turn", held.price),
        ("More", Link("Deposits", "/credits")),
    ]
    return [Facts("Credits", pairs)]


async def _one(visit: Visit, ref: str) -> Response:
    found = await visit.mesh.agents.GetAgent(agent_pb2.GetAgentRequest(agent=ref))
    agent, usage = found.agent, await _usage(visit, ref)
    blocks: list[Block] = [
        Links(
            "This agent", [Link("The agent", f"/agents/{agent.id}"), Link("Usage of all agents", "/usage")]
        ),
        _gauges(usage),
        _pairs(usage),
        _workspace(usage),
        *_credits(usage),
    ]
    return await visit.page(f"Usage of {agent.name}", blocks)


def _gauges(usage: pb.GetUsageResponse) -> Gauges:
    limits, resets = usage.limits, from_timestamp(usage.resets_at)
    gauges = [
        _gauge("Sent today", usage.sent_today, float(limits["sent_per_day"]), "Free again:", resets),
        _gauge(
            "Received today", usage.received_today, float(limits["received_per_day"]), "Free again:", resets
        ),
        _gauge(
            "Waiting for it",
            usage.inbox,
            float(limits["inbox_backlog"]),
            "Unread messages and queued turns; free again as they are taken.",
        ),
        _gauge(
            "Depth",
            usage.depth,
            float(limits["max_depth"]),
            "Agents in a row, where it runs now or ran a moment ago.",
        ),
    ]
    if usage.root_id:
        words = "Of the act that its turns go back to; a person may extend it."
        gauges.append(_gauge("Turns from one start", usage.root_turns, usage.root_limit, words))
    return Gauges("This agent", gauges)


def _pairs(usage: pb.GetUsageResponse) -> Table:
    budget = usage.limits["pair_budget"]
    limit = float(budget.partition("/")[0])
    rows: list[list[Cell]] = [
        [
            Link(each.name, f"/usage?agent={each.agent_id}") if each.agent_id else each.name,
            Bar(f"starts with {each.name}", each.used, limit) if limit else str(each.used),
            Moment(from_timestamp(each.frees_at) if each.HasField("frees_at") else None, "now"),
        ]
        for each in usage.pairs
    ]
    caption = f"Starts between two agents ({budget})" if limit else "Starts between two agents (no limit)"
    return Table(caption, ("With", "Used", "Room for another"), rows, "None within the window.")
