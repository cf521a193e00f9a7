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
}
_AGENTS: Final = 200


@dataclass(frozen=True, slots=True)
class Line:
    """An event as a sentence; `inter_agent`: it is between agents."""

    event: audit_pb2.Event
    inter_agent: bool
    words: str
    about: str
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
    agents = await page.mesh.agents.ListAgents(agent_pb2.ListAgentsRequest(page_size=_AGENTS))
    names = {agent.id: agent.name for agent in agents.agents}
    return await page.render(
        "activity/activity.html",
        lines=[_line(event, names) for event in found.events],
        kinds=KINDS,
        more=found.next_page_token,
    )


def _line(event: audit_pb2.Event, names: dict[str, str]) -> Line:
    details: dict[str, Any] = MessageToDict(event.details)
    inter_agent = event.action.startswith("message.") and event.actor_kind == "agent"
    words = _WORDS.get(event.action, event.action.replace(".", " ").replace("_", " "))
    more = [str(details[key]) for key in ("state", "reason", "kind", "code") if details.get(key)]
    own = event.agent_id == event.actor_id
    about = "" if own else names.get(event.agent_id, "a person" if event.action == "message.sent" else "")
    return Line(event, inter_agent, words, about, ", ".join(more))
