"""`/crews`: leads and their subagents, made and kept by a file whose plan is shown before it is done."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from hopline.registry.v1 import agent_pb2
from hopline.registry.v1 import crew_pb2 as pb
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.blocks import Ask, Block, Cell, Code, Facts, Link, Links, Press, Table
from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE as PAGE
from hopline_console.pages import crew_files
from hopline_console.pages.agents import state_of
from hopline_console.visit import Visit, routed
from hopline_console.words import OPERATOR

NAV: Final = (Item("Set up", "Crews", "/crews"),)

_GONE: Final = "All its members are deleted, with their queued work; their threads stay readable."


def routes(context: ConsoleContext) -> list[Route]:
    """Return the pages of crews."""
    return [
        *routed(context, "/crews", get=show),
        *crew_files.routes(context),
        *routed(context, "/crews/members", get=show_one),
        *routed(context, "/crews/delete", post=delete),
    ]


async def show(visit: Visit) -> Response:
    """List the crews."""
    page = await visit.mesh.crews.ListCrews(
        pb.ListCrewsRequest(page_size=PAGE, page_token=visit.asked("page"))
    )
    rows: list[list[Cell]] = [
        [
            Link(each.name, "/crews/members?" + urlencode({"crew": each.name, "owner": each.owner_id})),
            each.owner_name,
            str(each.member_count),
            Link(each.lead_slug, f"/agents/{each.lead_agent_id}") if each.lead_agent_id else "none",
        ]
        for each in page.crews
    ]
    columns = ("Crew", "Owner", "Members", "Lead")
    blocks: list[Block] = [Table("Crews", columns, rows, "No crews.", more=page.next_page_token)]
    if visit.role >= OPERATOR:
        blocks.append(Ask(crew_files.empty()))
    return await visit.page("Crews", blocks)


async def show_one(visit: Visit) -> Response:
    """List the members of a crew."""
    crew, owner = visit.asked("crew"), visit.asked("owner")
    request = pb.ListMembersRequest(crew=crew, owner=owner, page_size=PAGE, page_token=visit.asked("page"))
    page = await visit.mesh.crews.ListMembers(request)
    lead = {each.parent_agent_id for each in page.agents}
    columns = ("Key", "Agent", "Slug", "State", "Part", "What it does")
    table = Table(
        "Members",
        columns,
        [_row(each, is_lead=each.id in lead) for each in page.agents],
        more=page.next_page_token,
    )
    press = Press("/crews/delete", "Delete the crew", crew, {"crew": crew, "owner": owner}, _GONE)
    blocks: list[Block] = [
        Links("Crews", [Link("All crews", "/crews")]),
        table,
        Facts("", [("End it", press)]),
    ]
    return await visit.page(f"Crew {crew}", blocks)


def _row(agent: agent_pb2.Agent, *, is_lead: bool) -> list[Cell]:
    part = "lead" if is_lead else "subagent" if agent.parent_agent_id else "main agent"
    name = Link(agent.name, f"/agents/{agent.id}")
    return [Code(agent.key), name, Code(agent.slug), state_of(agent), part, agent.description[:200]]


async def delete(visit: Visit) -> Response:
    """Delete all members of a crew."""
    posted = await visit.posted()
    crew = str(posted.get("crew", ""))
    await visit.mesh.crews.DeleteCrew(pb.DeleteCrewRequest(crew=crew, owner=str(posted.get("owner", ""))))
    return visit.done("/crews", f"The crew {crew} is deleted.")
