"""What a tool is, and what its function gets and gives."""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

import mcp.types as t
from hopline_directory import AgentRecord
from hopline_rpc.errors import HoplineError, invalid, renamed

from hopline_gateway import mesh
from hopline_gateway.mesh import Caller, Mesh
from hopline_gateway.waits import Report, Waits

Json = dict[str, Any]
Answer = TypeVar("Answer")
Scope = MutableMapping[str, Any]

# Where the HTTP layer leaves what it knows of a request, in the ASGI scope: the caller, and the agent
# through whose own endpoint the request came.
CALLER: Final = "hopline.caller"
AGENT: Final = "hopline.agent"

MAX_WAIT: Final = 50
MAX_TEXT: Final = 65_536
MAX_QUESTION: Final = 8_192
MAX_PAYLOAD: Final = 16_384
MAX_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool answers: the facts, and one line that says what they mean."""

    structured: Json
    headline: str = ""


# What the contract's fields are called among the arguments of the platform's tools.
PLATFORM_NAMES: Final[Mapping[str, str]] = {
    "page_token": "cursor",
    "page_size": "limit",
    "payload_json": "payload",
    "to": "agent",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool, with everything its function needs."""

    caller: Caller
    mesh: Mesh
    arguments: Mapping[str, Any]
    waits: Waits
    report: Report | None
    # The agent through whose own endpoint it came.
    agent: AgentRecord | None = None
    # What the contract's fields are called among the arguments.
    names: Mapping[str, str] = field(default_factory=lambda: PLATFORM_NAMES)

    async def rpc(self, method: Callable[..., Awaitable[Answer]], request: object) -> Answer:
        """Make an RPC that answers at once."""
        try:
            return await mesh.call(method, request, self.caller)
        except HoplineError as error:
            raise renamed(error, self.names) from error

    async def wait_rpc(
        self, method: Callable[..., Awaitable[Answer]], request: object, seconds: int, what: str
    ) -> Answer:
        """Make an RPC that waits up to `seconds` in the service, reporting progress meanwhile."""
        work = mesh.call(method, request, self.caller, seconds + mesh.WAIT_MARGIN)
        principal = self.caller.principal
        try:
            return await self.waits.run(principal, work, seconds, self.report if seconds else None, what)
        except HoplineError as error:
            raise renamed(error, self.names) from error

    def text(self, name: str) -> str:
        """Return a text argument; empty when it was left out."""
        return str(self.arguments.get(name, ""))

    def wait_seconds(self, default: int, name: str = "wait_seconds") -> int:
        """Return how long to wait, clamped to what every client survives."""
        return min(int(self.arguments.get(name, default)), MAX_WAIT)

    def page(self) -> int:
        """Return the size of a page: 50 unless asked otherwise, clamped."""
        return min(int(self.arguments.get("limit", 50)), MAX_PAGE)

    def payload_json(self) -> str:
        """Return the payload as JSON text; empty when it was left out."""
        if "payload" not in self.arguments:
            return ""
        given = self.arguments["payload"]
        try:
            text = json.dumps(given, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except ValueError:
            raise invalid("payload", "holds a number too large for JSON") from None
        size = len(text.encode())
        if size > MAX_PAYLOAD:
            raise invalid("payload", f"{size} bytes of JSON; the limit is {MAX_PAYLOAD} (16 KiB)")
        return text

    def request_id(self) -> str:
        """Return the caller's request id, or a fresh one, under which the call can be repeated safely."""
        return self.text("request_id") or str(uuid.uuid4())


Run = Callable[[Call], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of the platform's MCP server."""

    name: str
    description: str
    run: Run
    properties: Mapping[str, Json] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    # The whole JSON Schema of its arguments where it is not ours: then it is checked where the tool is known.
    schema: Json | None = None
    # The top-level facts of a result and their JSON types.
    output: Mapping[str, Json] = field(default_factory=dict)
    reads: bool = False
    destroys: bool = False
    # Whether a call may last longer than the RPC itself, because it waits for somebody.
    waits: bool = False
    # Who is offered it, besides standard agents.
    for_users: bool = False
    for_receive_only: bool = False
    # To whom of a crew alone, `lead` or `subagent`; empty: every agent. An agent's `tools` setting widens it.
    crew: tuple[str, ...] = ()

    def input_schema(self) -> Json:
        """Return the JSON Schema of the arguments."""
        if self.schema is not None:
            return self.schema
        schema: Json = {"type": "object", "properties": dict(self.properties)}
        if self.required:
            schema["required"] = list(self.required)
        schema["additionalProperties"] = False
        return schema

    def output_schema(self) -> Json:
        """Return the JSON Schema of the result; an error has another shape, so nothing is required."""
        return {"type": "object", "properties": dict(self.output)}


class Toolbox(Protocol):
    """The tools of one MCP server, and who is offered which of them."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Those that are the same for every caller, by name."""
        ...

    def own(self, scope: Scope) -> Sequence[Tool]:
        """Return those that the caller of a request alone has."""
        ...

    def find(self, scope: Scope, name: str) -> Tool | None:
        """Return the tool of that name; None where there is none for this caller."""
        ...

    @property
    def names(self) -> Mapping[str, str]:
        """What the contract's fields are called among their arguments."""
        ...

    @property
    def instructions(self) -> str:
        """What a client's model is told of the server."""
        ...

    async def listed(self, scope: Scope) -> list[t.Tool]:
        """Return the definitions of what the caller of a request is offered."""
        ...

    def check(self, scope: Scope, tool: Tool) -> None:
        """Refuse a tool that the caller is not offered."""
        ...


def with_retry_hint(error: HoplineError, request_id: str) -> HoplineError:
    """Tell how to repeat a call whose outcome is unknown without doing it twice."""
    if error.reason in {"unavailable", "deadline_exceeded"}:
        error.details.setdefault("request_id", request_id)
    return error
