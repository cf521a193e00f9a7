"""`/activity`: the timeline of the workspace: messages, turns, questions, changes, refusals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from hopline.registry.v1 import agent_pb2
from hopline.relay.v1 import audit_pb2
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE, Page

NAV: Final = (Item("See", "Activity", "/activity"),)

KINDS: Final = (
    ("", "everything"),
    ("message.", "messages"),
    ("message.refused", "refusals"),
    ("turn.", "turns"),
    ("escalation.", "questions to owners"),
    ("answer.", "held answers"),
    ("dead_letter.", "dead letters"),
    ("agent.", "agents"),
    ("plugin.", "plugins"),
)
_WORDS: Final = {
    "message.sent": "sent a message to",
    "message.refused": "was refused a message to",
    "turn.started": "began a turn",
    "turn.ended": "ended a turn",
    "turn.requeued": "has a turn run anew",
    "escalation.asked": "asked its owner",
    "escalation.ended": "has a question ended",
    "answer.held": "has an answer held",
    "answer.sent": "sent the answer that was held",
    "answer.released": "released the answer of",
    "session.closed": "closed a session of",
    "tunnel.attached": "has a worker attached",
    "agent.created": "created the agent",
    "agent.updated": "changed the agent",
    "agent.paused": "paused",
    "agent.resumed": "resumed",
    "agent.deleted": "deleted the agent",
    "token.created": "made a token for",
    "token.revoked": "revoked a token of",
    "user.created": "added a person",
    "role.granted": "gave a role",
    "role.revoked": "took a role away",
    "policy.updated": "changed the policy",
    "workspace.created": "created the workspace",
}
_HOLDERS: Final = {"user": "a person", "agent": "an agent", "plugin": "a plugin", "service": "a service"}
# Names are looked up so many at once, and no further than this.
_AGENTS: Final = 200
_NAMED: Final = 2000
_AGENT: Final = "agt_"


@dataclass(frozen=True, slots=True)
class Line:
    """An event as a sentence; `inter_agent`: it is between agents."""

    event: audit_pb2.Event
    inter_agent: bool
    words: str
    about: str
    # The agent it is about, where there is a page of it.
    about_id: str
    more: str


def routes(context: ConsoleContext) -> list[Route]:
    """Return the routes."""
    return [context.get("/activity", activity)]


async def activity(page: Page) -> Response:
    """Show what has happened, newest first."""
    kind = page.query("kind")
    request = audit_pb2.ListEventsRequest(
        action=kind if kind in dict(KINDS) else "",
        agent=page.query("agent"),
        descending=True,
        page_size=PAGE_SIZE,
        page_token=page.query("page"),
    )
    found = await page.mesh.events.ListEvents(request)
    names = await _names(page, {event.agent_id for event in found.events if event.agent_id})
    return await page.render(
        "activity/activity.html",
        lines=[_line(event, names) for event in found.events],
        kinds=KINDS,
        more=found.next_page_token,
    )


async def _names(page: Page, wanted: set[str]) -> dict[str, str]:
    """Return the names of these agents, of those that the person may see."""
    found: dict[str, str] = {}
    request = agent_pb2.ListAgentsRequest(page_size=_AGENTS)
    seen = 0
    while wanted - found.keys() and seen < _NAMED:
        agents = await page.mesh.agents.ListAgents(request)
        seen += len(agents.agents)
        found.update((agent.id, agent.name) for agent in agents.agents if agent.id in wanted)
        request.page_token = agents.next_page_token
        if not agents.next_page_token:
            break
    return found


def _line(event: audit_pb2.Event, names: dict[str, str]) -> Line:
    details: dict[str, Any] = MessageToDict(event.details)
    # What is sent to nobody's agent is an answer to a person.
    to_person = event.action == "message.sent" and not event.agent_id
    between = event.action.startswith("message.") and event.actor_kind == "agent" and not to_person
    words = _WORDS.get(event.action, event.action.replace(".", " ").replace("_", " "))
    of_token = event.action.startswith("token.")
    told = ("state", "reason", "code") if of_token else ("state", "reason", "kind", "code")
    more = [str(details[key]) for key in told if details.get(key)]
    about, about_id = "a person" if to_person else "", ""
    if of_token:
        about = _HOLDERS.get(str(details.get("kind")), "somebody")
    # Also of people an id stands there, and of agents that are gone or hidden by now.
    if event.agent_id.startswith(_AGENT) and event.agent_id != event.actor_id:
        about = names.get(event.agent_id, event.agent_id)
        about_id = event.agent_id if event.agent_id in names else ""
    return Line(event, between, words, about, about_id, ", ".join(more))
