"""Commands of plugins in people's chats: `/name TEXT` goes to the agent that the plugin names for it.

Who prompts an agent with such a text prompts the command's agent with the rest of it, in a session of that
one; whoever could not, as whoever mistypes, has said a plain text. Where several plugins have one of this
name, `/plugin__name` says which. A text that merely begins with a slash is nobody's command.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from hopline_directory import OPERATOR, AgentRecord, Directory, PluginRecord
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.principals import Principal

from hopline_relay.drafts import Draft
from hopline_relay.starts import fronted

_COMMAND: Final = re.compile(r"/(?:([a-z][a-z0-9-]*)__)?([a-z][a-z0-9_-]{0,31})(?:\s+(.*))?\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Routed:
    """Where a prompt goes that is a command: `name` as it was given, and what is left of the text."""

    agent: AgentRecord
    name: str
    text: str


class Commands:
    """Finds whose command a text is."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def apply(self, draft: Draft) -> None:
        """Have a person's prompt go where its command says, if it is one."""
        routed = self.route(draft.principal, draft.to[0], draft.text)
        if routed is None:
            return
        draft.command, draft.as_given = routed.name, (draft.to[0], draft.text)
        draft.to, draft.text, draft.subject = (routed.agent.id,), routed.text, f"/{routed.name}"

    def route(self, person: Principal, addressed: str, text: str) -> Routed | None:
        """Return where a person's prompt goes; None for a plain text.

        Raises what is wrong with the agent that was addressed, or with a command that lacks its text, and
        `ambiguous`.
        """
        if not text.startswith("/") or not self._directory.plugins(person.workspace_id):
            return None
        match = _COMMAND.fullmatch(text)
        if match is None:
            return None
        key, name, rest = match[1] or "", match[2], (match[3] or "").strip()
        found = list(self._found(person, key, name))
        if not found:
            return None
        # Only who may talk to the agent of the chat says anything there.
        fronted(self._directory.resolve_for_person(person, addressed, OPERATOR))
        if len(found) > 1:
            names = [f"/{plugin.key}__{name}" for plugin, _ in found]
            said = f"several plugins have a command /{name}; use one of {', '.join(names)}"
            raise HoplineError("ambiguous", said, details={"command": name, "commands": names})
        if not rest:
            raise invalid("text", f"the command /{name} wants a text after it")
        return Routed(found[0][1], name, rest)

    def _found(self, person: Principal, key: str, name: str) -> list[tuple[PluginRecord, AgentRecord]]:
        """Return the commands of that name that the person may use, each with its agent."""
        return [
            (plugin, agent)
            for plugin in self._directory.plugins(person.workspace_id)
            if not key or plugin.key == key
            for command in plugin.commands
            if command.name == name
            for agent in self._directory.agents(person.workspace_id)
            if (agent.plugin_id, agent.key) == (plugin.id, command.agent_key)
            and agent.state == "active"
            and self._directory.role_on_agent(person.id, agent) >= OPERATOR
        ]
