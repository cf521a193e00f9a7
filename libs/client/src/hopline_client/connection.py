"""Connections: other agents under names of the calling agent's own, called from code without a model's turn.

A connection gives no reach. Each call looks the name up anew, so what its owner changes, or what the caller
may not reach any more, counts from the next call on.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from hopline.relay.v1 import message_pb2 as pb
from hopline_rpc.errors import HoplineError, invalid, renamed

from hopline_client import models
from hopline_client.actions import MAX_WAIT, clamped, make_request
from hopline_client.delegating import Delegating
from hopline_client.left import LeftActions
from hopline_client.models import Answer, Connected, ToolResult

Json = dict[str, Any]


class Connecting(Delegating, LeftActions):
    """Actions of a caller that may have connections."""

    @abstractmethod
    async def connections(self) -> list[Connected]:
        """Return the connections that this agent may use now, in order of name."""

    def connection(self, name: str) -> Connection:
        """Return the connection of that name; whether there is one shows at the first call."""
        return Connection(self, name)


class Connection:
    """Another agent, by the name that this one knows it by.

    For example::

    weather = mesh.connection("weather")
    answer = await weather.call("ask", {"message": "Oslo tomorrow?"})
    print(answer["status"], answer.get("reply"))
    """

    def __init__(self, mesh: Connecting, name: str) -> None:
        self._mesh = mesh
        self.name = name

    async def agent(self) -> Connected:
        """Return where it leads; `not_found`, with the names that there are, where it leads nowhere."""
        there = await self._mesh.connections()
        for each in there:
            if each.name == self.name:
                return each
        names = [each.name for each in there]
        said = f"there are: {', '.join(names)}" if names else "there is none that may be used now"
        details = {"connection": self.name, "connections": names}
        raise HoplineError("not_found", f"there is no connection {self.name!r}; {said}", details=details)

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Json:
        """Call `ask`, `check` or `call_tool` with the arguments they have as tools; returns their result."""
        known = _TOOLS.get(tool)
        if known is None:
            raise invalid("tool", f"there is no tool {tool!r:.80}; there are: {', '.join(_TOOLS)}")
        given: Any = {} if arguments is None else arguments
        if not isinstance(given, Mapping):
            raise invalid("arguments", f"must be a mapping of names to values, not {given!r:.80}")
        required, optional = known
        takes = f"{tool} takes {', '.join(sorted(required | optional))}"
        for name in required - given.keys():
            raise invalid(name, f"is missing; {takes}")
        for name in given.keys() - required - optional:
            raise invalid(str(name), f"is unknown; {takes}")
        try:
            return await self._run(tool, given)
        except HoplineError as error:
            raise renamed(error, _NAMES) from error

    async def _run(self, tool: str, given: Mapping[str, Any]) -> Json:
        request_id = given.get("request_id", "")
        if tool == "call_tool":
            return _tool_told(
                await self.call_tool(given["name"], given.get("arguments"), request_id=request_id)
            )
        wait = given.get("waitSeconds", MAX_WAIT)
        if tool == "check":
            return _told(await self.check(given["sessionId"], wait_seconds=wait))
        session_id = given.get("sessionId", "")
        return _told(
            await self.ask(given["message"], session_id=session_id, wait_seconds=wait, request_id=request_id)
        )

    async def ask(
        self, message: str, *, session_id: str = "", wait_seconds: int = MAX_WAIT, request_id: str = ""
    ) -> Answer:
        """Ask it, in a fresh session or in an earlier one, and wait up to `wait_seconds` (at most 50)."""
        request = make_request(
            pb.AskRequest,
            agent=(await self.agent()).id,
            text=message,
            session_id=session_id,
            wait_seconds=clamped(wait_seconds),
            request_id=request_id or str(uuid.uuid4()),
            own_endpoint=True,
        )
        return models.answer((await self._mesh._call("ask", request)).turn)

    async def check(self, session_id: str, *, wait_seconds: int = MAX_WAIT) -> Answer:
        """Wait for what an `ask` started in a session, or look at it (`wait_seconds` 0)."""
        request = make_request(
            pb.CheckRequest,
            session_id=session_id,
            wait_seconds=clamped(wait_seconds),
            endpoint_of=(await self.agent()).id,
        )
        return models.answer((await self._mesh._call("check", request)).turn)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_seconds: int = MAX_WAIT,
        request_id: str = "",
    ) -> ToolResult:
        """Run one of its server tools, without a turn of its model; the call ends with this one."""
        peer = (await self.agent()).id
        return await self._mesh.call_tool(
            peer, name, arguments, timeout_seconds=timeout_seconds, request_id=request_id
        )


# Tool -> the arguments that it needs, and those that it takes besides.
_TOOLS: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    "ask": (frozenset({"message"}), frozenset({"sessionId", "waitSeconds", "request_id"})),
    "check": (frozenset({"sessionId"}), frozenset({"waitSeconds"})),
    "call_tool": (frozenset({"name"}), frozenset({"arguments", "request_id"})),
}

# What the contract's fields are called among those arguments.
_NAMES: Final[Mapping[str, str]] = {
    "text": "message",
    "session_id": "sessionId",
    "wait_seconds": "waitSeconds",
    "arguments_json": "arguments",
}


def _told(answer: Answer) -> Json:
    """Return what the tool of the same name returns."""
    found: Json = {
        "status": answer.status,
        "sessionId": answer.session_id,
        "turnId": answer.turn_id,
    }
    if answer.reply is not None:
        found["reply"] = answer.reply
    if answer.payload is not None:
        found["payload"] = answer.payload
    if answer.code:
        found["error"] = {"code": answer.code, "message": answer.error}
    return found


def _tool_told(result: ToolResult) -> Json:
    """Return what the tool `call_tool` returns."""
    found: Json = {"status": result.status, "turnId": result.turn_id}
    if result.status == "completed":
        found["result"] = result.result
    if result.code:
        found["error"] = {"code": result.code, "message": result.error}
    return found
