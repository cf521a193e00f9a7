"""The tools of an agent's connections: `weather__ask` and the others, in the agent's own server.

They do what the endpoint of the agent at the other end does, for whoever may use it at the moment of the
call: a connection gives no reach. What leads nowhere is not offered, and is answered like a tool that never
existed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from hopline_directory import AgentRecord, ConnectionRecord, Directory
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal

from hopline_gateway import prompting
from hopline_gateway.agent_server import TOOLS
from hopline_gateway.mesh import Caller
from hopline_gateway.toolkit import Call, Result, Tool

# Between a connection's name and a tool's. No tool of the platform has it in its name.
SEPARATOR: Final = "__"
_SPOKEN: Final = re.compile(r"\b(ask|check|call_tool)(?= (?:to|with) )")
# What each does, in as few words as a model needs.
_DOES: Final[Mapping[str, str]] = {
    "ask": (
        "Gives the agent {peer} a task and waits for its answer. It sees only this message and what was said"
        " in the session, not your conversation. If status is running or queued, go on with {name}__check."
    ),
    "check": "Waits for (waitSeconds 0: looks at) what {name}__ask started in a session.",
}


class Connections:
    """Decides by the live view of the registry."""

    def __init__(self, directory: Directory, *, has_public_url: bool) -> None:
        self._directory = directory
        self._has_public_url = has_public_url

    def tools(self, principal: Principal) -> list[Tool]:
        """Return the tools of the connections that a caller may use now, in order of their names."""
        return [
            self._tool(connection.name, kind, connection, peer)
            for connection, peer in self._usable(principal)
            for kind in TOOLS
        ]

    async def offered(self, caller: Caller) -> list[Tool]:
        """Return those of them that there is something to do with just now."""
        return self.tools(caller.principal)

    def find(self, principal: Principal, name: str) -> Tool | None:
        """Return the tool of that name; None for any that a caller may not use, as for what never existed."""
        connected, _, kind = name.rpartition(SEPARATOR)
        if kind not in TOOLS or not connected or principal.kind != "agent":
            return None
        for connection, peer in self._usable(principal):
            if connection.name == connected:
                return self._tool(connected, kind, connection, peer)
        # Whoever may start nothing at all is told so, whatever the name.
        return None if self._directory.may_start(principal) else self._tool(connected, kind)

    def _usable(self, principal: Principal) -> list[tuple[ConnectionRecord, AgentRecord]]:
        return self._directory.connections(principal, has_public_url=self._has_public_url)

    def _tool(
        self,
        name: str,
        kind: str,
        connection: ConnectionRecord | None = None,
        peer: AgentRecord | None = None,
    ) -> Tool:
        purpose = f"{connection.description.rstrip('. ')}. " if connection and connection.description else ""
        # By its slug: a name is other people's words, and this is read as ours.
        does = _DOES[kind].format(peer=peer.slug if peer else "", name=name)
        return replace(
            TOOLS[kind],
            name=f"{name}{SEPARATOR}{kind}",
            description=f"{purpose}{does}",
            run=partial(self._run, name, kind),
            for_receive_only=False,
        )

    async def _run(self, name: str, kind: str, call: Call) -> Result:
        """Make a call through a connection, to whoever is at its other end now."""
        principal = call.caller.principal
        self._directory.check_may_start(principal)
        peer = next((each for known, each in self._usable(principal) if known.name == name), None)
        if peer is None:
            raise _gone(name)
        try:
            result = await TOOLS[kind].run(replace(call, agent=peer, names=prompting.NAMES))
            return replace(result, headline=_in_names_of(name, result.headline))
        except HoplineError as error:
            if error.reason == "not_found" and error.details.get("agent") == peer.id:
                raise _gone(name) from error
            raise


def _in_names_of(name: str, headline: str) -> str:
    """Call the tools that a headline speaks of as they are called here."""
    return _SPOKEN.sub(rf"{name}{SEPARATOR}\1", headline)


def _gone(name: str) -> HoplineError:
    text = f"the connection {name!r} leads to no agent that you may use any more"
    return HoplineError("not_found", text, details={"connection": name})
