"""`/agents`: who there is, and one agent with whom it reaches, who reaches it, and who may manage it."""

from __future__ import annotations

from typing import Final

from hopline.registry.v1 import agent_pb2 as pb
from hopline.registry.v1 import identity_pb2
from hopline.relay.v1 import session_pb2
from hopline_rpc.clock import from_timestamp
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.blocks import (
    Badge,
    Block,
    Cell,
    Code,
    Facts,
    Link,
    Links,
    Long,
    Moment,
    Press,
    Several,
    State,
    Table,
    Tone,
    yes_no,
)
from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE as PAGE
from hopline_console.pages import agent_connections, agent_settings
from hopline_console.visit import Visit, routed
from hopline_console.words import ADMIN, OPERATOR, role_word, word

NAV: Final = (Item("Set up", "Agents", "/agents"),)

_TONES: Final[dict[str, Tone]] = {"active": "good", "paused": "waiting", "provisioning": "quiet"}
_GONE: Final = (
    "It is deleted with its queued work; its running turns end, what it owes ends, and its threads stay"
    " readable. This cannot be taken back."
)


def routes(context: ConsoleContext) -> list[Route]:
    """Return the pages of agents."""
    return [
        *routed(context, "/agents", get=show_all),
        *agent_settings.routes(context),
        *agent_connections.routes(context),
        *routed(context, "/agents/{agent}", get=show_one),
        *routed(context, "/agents/{agent}/pause", post=pause),
        *routed(context, "/agents/{agent}/resume", post=resume),
        *routed(context, "/agents/{agent}/delete", post=delete),
    ]


async def show_all(visit: Visit) -> Response:
    """List the agents on which the person holds a role."""
    page = await visit.mesh.agents.ListAgents(
        pb.ListAgentsRequest(page_size=PAGE, page_token=visit.asked("page"))
    )
    asked = session_pb2.GetPresenceRequest(agents=[each.id for each in page.agents])
    presence = (await visit.mesh.sessions.GetPresence(asked)).presence if page.agents else {}
    rows = [_row(each, presence.get(each.id, "")) for each in page.agents]
    columns = ("Agent", "Slug", "State", "Presence", "What it does")
    blocks: list[Block] = []
    if visit.role >= OPERATOR:
        blocks.append(Links("Agents", [Link("Create an agent", "/agents/new")]))
    table = Table("Agents", columns, rows, "No agents that you may see.", more=page.next_page_token)
    return await visit.page("Agents", [*blocks, table])


def _row(agent: pb.Agent, presence: str) -> list[Cell]:
    name: Cell = Link(agent.name, f"/agents/{agent.id}")
    if agent.plugin_id:
        name = Several([name, Badge(agent.plugin_name, "plugin")])
    return [
        name,
        Code(agent.slug),
        state_of(agent),
        presence.replace("_", " ") or "—",
        agent.description[:200],
    ]


def state_of(agent: pb.Agent) -> State:
    """Return how an agent stands."""
    said = word(pb.AgentState.DESCRIPTOR, agent.state)
    return State(said, _TONES.get(said, "quiet"))


async def show_one(visit: Visit) -> Response:
    """Show one agent."""
    found = await visit.mesh.agents.GetAgent(pb.GetAgentRequest(agent=visit.path("agent")))
    agent = found.agent
    blocks: list[Block] = [Links("This agent", _links(agent, found.role)), await _facts(visit, agent)]
    if found.role >= OPERATOR:
        blocks.append(Facts("What you can do", _acts(agent, found.role)))
    blocks += [await _reach(visit, agent, "callers"), await _reach(visit, agent, "peers")]
    blocks += [_connections(agent), await _people(visit, agent)]
    texts: list[tuple[str, Cell]] = [
        ("Persona", Long(agent.soul)),
        ("Instructions", Long(agent.instructions)),
    ]
    texts = [(name, cell) for name, cell in texts if isinstance(cell, Long) and cell.text]
    if texts:
        blocks.append(Facts("What it is told", texts))
    return await visit.page(agent.name, blocks, lead=agent.description)


def _links(agent: pb.Agent, role: int) -> list[Link]:
    links = [
        Link("Its exchanges", f"/floor?agent={agent.id}&channel=relay"),
        Link("Playground", f"/playground?agent={agent.id}"),
        Link("Usage", f"/usage?agent={agent.id}"),
        Link("Audit log", f"/audit?agent={agent.id}"),
    ]
    if role >= ADMIN:
        links = [
            Link("Settings", f"/agents/{agent.id}/settings"),
            Link("Connections", f"/agents/{agent.id}/connections"),
            Link("Tokens", f"/tokens?agent={agent.id}"),
            *links,
        ]
    return links


async def _facts(visit: Visit, agent: pb.Agent) -> Facts:
    slugs = await visit.slugs()
    parent, model = agent.parent_agent_id, agent.model_id
    owner = await visit.names_of_people()
    pairs: list[tuple[str, Cell]] = [
        ("State", state_of(agent)),
        ("Id", Code(agent.id)),
        ("Slug", Code(agent.slug)),
        ("Owner", owner.get(agent.owner_id, agent.owner_id)),
        ("Kind", word(pb.AgentKind.DESCRIPTOR, agent.kind)),
        ("Lead", Link(slugs.get(parent, parent), f"/agents/{parent}") if parent else "none: a main agent"),
        ("Only for its crew", yes_no(agent.is_group_only_callable)),
        ("Model", Code(model) if model else "the workspace's default"),
        ("Thinking level", word(pb.ThinkingLevel.DESCRIPTOR, agent.thinking_level) or "as its worker has it"),
        ("Answers", word(pb.ReplyMode.DESCRIPTOR, agent.reply_mode)),
        ("Woken by", word(pb.WakeKind.DESCRIPTOR, agent.wake.kind) or "none"),
        ("Default agent", yes_no(agent.is_default)),
        ("Crew", agent.crew or "none"),
        ("Plugin", Link(agent.plugin_name, f"/plugins/{agent.plugin_id}") if agent.plugin_id else "none"),
        ("Labels", ", ".join(f"{key}={value}" for key, value in sorted(agent.labels.items())) or "none"),
        ("Created", Moment(from_timestamp(agent.created_at))),
    ]
    return Facts("", pairs)


def _acts(agent: pb.Agent, role: int) -> list[tuple[str, Cell]]:
    at = f"/agents/{agent.id}"
    paused = agent.state == pb.AGENT_STATE_PAUSED
    acts: list[tuple[str, Cell]] = []
    if paused:
        acts.append(("Make it active again", Press(f"{at}/resume", "Resume", agent.name)))
    else:
        words = "Its running turns end, what it owes ends, and messages to it wait until it is resumed."
        acts.append(("Let it rest", Press(f"{at}/pause", "Pause", agent.name, warning=words)))
    if role >= ADMIN:
        acts.append(("End it", Press(f"{at}/delete", "Delete", agent.name, warning=_GONE)))
    return acts


async def _reach(visit: Visit, agent: pb.Agent, which: str) -> Table:
    request = pb.ListReachRequest(
        agent=agent.id,
        direction=pb.ReachDirection.Value(f"REACH_DIRECTION_{which.upper()}"),
        page_size=PAGE,
        page_token=visit.asked(which),
    )
    page = await visit.mesh.agents.ListReach(request)
    rows: list[list[Cell]] = [
        [Link(each.name, f"/agents/{each.id}"), Code(each.slug)] for each in page.agents
    ]
    caption = "Who may start something on it" if which == "callers" else "On whom it may start something"
    empty = (
        "No agent that you may see."
        if agent.state == pb.AGENT_STATE_ACTIVE
        else "No agent: it is not active."
    )
    return Table(caption, ("Agent", "Slug"), rows, empty, more=page.next_page_token, pager=which)


def _connections(agent: pb.Agent) -> Table:
    rows: list[list[Cell]] = [
        [Code(each.name), Link(each.agent, f"/agents/{each.agent}"), each.description]
        for each in agent.connections
    ]
    return Table("Connections", ("Name", "Agent", "When to use it"), rows, "It has no connections.")


async def _people(visit: Visit, agent: pb.Agent) -> Table:
    request = identity_pb2.ListRolesRequest(agent=agent.id, page_size=PAGE, page_token=visit.asked("roles"))
    page = await visit.mesh.identities.ListRoles(request)
    rows: list[list[Cell]] = [[each.user_name, role_word(each.role)] for each in page.grants]
    empty = "Nobody but its owner, and those with a role on the whole workspace."
    return Table(
        "People with a role on it",
        ("Person", "Role"),
        rows,
        empty,
        more=page.next_page_token,
        pager="roles",
    )


async def pause(visit: Visit) -> Response:
    """Pause an agent."""
    await visit.posted()
    made = await visit.mesh.agents.PauseAgent(pb.PauseAgentRequest(agent=visit.path("agent")))
    return visit.done(f"/agents/{made.agent.id}", f"{made.agent.name} is paused.")


async def resume(visit: Visit) -> Response:
    """Make an agent active again."""
    await visit.posted()
    made = await visit.mesh.agents.ResumeAgent(pb.ResumeAgentRequest(agent=visit.path("agent")))
    return visit.done(f"/agents/{made.agent.id}", f"{made.agent.name} is active again.")


async def delete(visit: Visit) -> Response:
    """Delete an agent."""
    await visit.posted()
    await visit.mesh.agents.DeleteAgent(pb.DeleteAgentRequest(agent=visit.path("agent")))
    return visit.done("/agents", "The agent is deleted.")
