"""The tools of an agent's connections: `weather__ask` and the others, in the agent's own server.

They do what the endpoint of the agent at the other end does, for whoever may use it at the moment of the
call: a connection gives no reach. What leads nowhere is not offered, and is answered like a tool that never
existed.
"""

from __future__ import annotations

import asyncio
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
from hopline_gateway.mesh import Caller, Mesh
from hopline_gateway.server_tools import TOOL, offering, tools_of
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
    # What for is said at the two others.
    "check": "Waits for (waitSeconds 0: looks at) what {name}__ask started in a session.",
    "call_tool": "Runs a tool of the agent {peer} without its model:",
}
_TOOLS: Final[Mapping[str, Tool]] = {**TOOLS, TOOL.name: TOOL}
# How much of a model's context what is said of a peer's server tools may take.
_MAX_LISTED: Final = 1_000


class Connections:
    """Decides by the live view of the registry."""

    def __init__(self, directory: Directory, mesh: Mesh, *, has_public_url: bool) -> None:
        self._directory = directory
        self._mesh = mesh
        self._has_public_url = has_public_url

    def tools(self, principal: Principal) -> list[Tool]:
        """Return the tools of the connections that a caller may use now, but for their server tools."""
        return [
            self._tool(connection.name, kind, connection, peer)
            for connection, peer in self._usable(principal)
            for kind in TOOLS
        ]

    async def offered(self, caller: Caller) -> list[Tool]:
        """Return what a caller is offered: `call_tool` too, where there is something to call just now."""
        usable = self._usable(caller.principal)
        each = await asyncio.gather(*(self._offered(caller, *pair) for pair in usable))
        return [tool for tools in each for tool in tools]

    async def _offered(self, caller: Caller, connection: ConnectionRecord, peer: AgentRecord) -> list[Tool]:
        made = [self._tool(connection.name, kind, connection, peer) for kind in TOOLS]
        try:
            there = await tools_of(self._mesh, caller, peer.id)
        except HoplineError:
            there = ()  # the rest of the list does not need the relay
        if there:
            running = self._tool(connection.name, TOOL.name, connection, peer)
            shown = offering(there, running.description, _MAX_LISTED)
            made.append(replace(running, description=shown.description, properties=shown.properties))
        return made

    def find(self, principal: Principal, name: str) -> Tool | None:
        """Return the tool of that name; None for any that a caller may not use, as for what never existed."""
        connected, _, kind = name.rpartition(SEPARATOR)
        if kind not in _TOOLS or not connected or principal.kind != "agent":
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
        given = "" if connection is None or kind == "check" else connection.description
        purpose = f"{given.rstrip('. ')}. " if given else ""
        # By its slug: a name is other people's words, and this is read as ours.
        does = _DOES[kind].format(peer=peer.slug if peer else "", name=name)
        return replace(
            _TOOLS[kind],
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
            result = await _TOOLS[kind].run(replace(call, agent=peer, names=prompting.NAMES))
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
