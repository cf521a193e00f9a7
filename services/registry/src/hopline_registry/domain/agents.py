"""What holds between agents, whoever asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from hopline_directory import AgentRecord

# What a new agent takes from whoever creates it; the rest is given by the mesh.
UPDATABLE: Final = (
    "name",
    "description",
    "owner_id",
    "kind",
    "model_id",
    "soul",
    "instructions",
    "thinking_level",
    "reply_mode",
    "is_subagent",
    "parent_agent_id",
    "is_group_only_callable",
    "key",
    "is_default",
    "runtime",
    "server_tools",
    "reach",
    "wake",
    "tools",
    "labels",
    "connections",
)
WHY_FIXED: Final = {
    "id": "is given by the mesh",
    "slug": "does not change: others address the agent by it",
    "state": "is changed by pausing and resuming",
    "plugin_id": "is given by a plugin's installation",
    "plugin_name": "is given by a plugin's installation",
    "awaits_definition": "is given by the mesh",
    "created_at": "is given by the mesh",
    "former_names": "are kept by the mesh",
    "crew": "is given by the crew that the agent was made in",
}


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose agents are meant: those of a plugin, or of an owner's crew, or an owner's others.

    A key is unique within it. Of a plugin's agents the owner is whoever installed it.
    """

    workspace_id: str
    owner_id: str
    plugin_id: str = ""
    crew: str = ""

    @property
    def columns(self) -> dict[str, str | bool]:
        """What agents of it have in common, by column."""
        if self.plugin_id:
            return {"plugin_id": self.plugin_id}
        return {"owner_id": self.owner_id, "plugin_id": "", "crew": self.crew}


def scope_of(agent: AgentRecord) -> Scope:
    """Return the scope in which an agent's key is unique."""
    owner_id = "" if agent.plugin_id else agent.owner_id
    return Scope(agent.workspace_id, owner_id, agent.plugin_id, agent.crew)


def parent_problem(agent: AgentRecord, parent: AgentRecord, *, has_children: bool) -> str | None:
    """Say why `parent` cannot lead `agent`; None when it can."""
    if parent.id == agent.id:
        return "an agent cannot be its own lead"
    if parent.parent_agent_id or parent.is_subagent:
        return "the lead must be a main agent, not a subagent"
    if parent.owner_id != agent.owner_id and not (agent.plugin_id and parent.plugin_id == agent.plugin_id):
        return "the lead must belong to the same owner or plugin"
    if has_children:
        return "the agent leads a crew itself, and there are no crews of crews"
    return None


def webhook_problem(url: str) -> str | None:
    """Say what is wrong with the address that wakes an agent; None when nothing is."""
    if not url.startswith(("https://", "http://")) or len(url.partition("://")[2]) == 0:
        return "must be an http:// or https:// address"
    if any(each.isspace() for each in url):
        return "must not contain blank space"
    try:
        parts = urlsplit(url)
        reachable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        reachable = False
    return None if reachable else "must name a host, with a port from 1 to 65535 if it names one"
