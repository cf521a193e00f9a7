"""Every way to name something that may be hidden: each method and tool with a reference, at every door."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import grpc.aio
from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline.runtime.v1.tunnel_pb2_grpc import TunnelServiceStub
from hopline_gateway.tools import TOOLS as OFFERED

from tests.contract.walk import METHODS, Method
from tests.opaque.hidden import FLEETING, HIDDEN, MANIFEST, NO_ID, Asker

# What a field of this name refers to.
_AGENTS = {"actor", "agent", "agent_ref", "agent_id", "agents", "to"}
_THINGS = {
    "session_id": "session_id",
    "caller_session_id": "session_id",
    "to_session_id": "session_id",
    "peer_session_id": "session_id",
    "of_session_id": "session_id",
    "opened_by_session_id": "session_id",
    "thread_id": "thread_id",
    "message_id": "message_id",
    "turn_id": "turn_id",
    "turn_ids": "turn_id",
    "escalation_id": "escalation_id",
    "root_id": "root_id",
    "token_id": "token_id",
    "schedule_id": "schedule_id",
    "todo_id": "todo_id",
    "timer_id": "timer_id",
    "plugin": "plugin",
    "crew": "crew",
}
# Fields of a message within a request that name an agent.
_WITHIN = {"UpdateAgent": ("parent_agent_id", "reach", "connections")}
# What looks like a reference and hides nothing.
_NO_SECRET = {
    "request_id": "the caller's own",
    "user": "everyone of a workspace may know its people",
    "owner_id": "everyone of a workspace may know its people",
    "id": "is given by the mesh",
    "plugin_id": "is given by the mesh",
    "model_id": "a name of the workspace's catalogue",
    "expected_plan_id": "a digest of a plan that the caller was shown",
    "to": "a time in lists",
    "parent_agent_id": "asked for where an agent is changed",
    "reach": "asked for where an agent is changed",
}
# What else has to stand in a request, by the field's name.
_FILLING: dict[str, Any] = {
    "text": "well?",
    "task": "well?",
    "user": "alice",
    "role": 1,
    "name": "x",
    "cron": "0 5 * * *",
    "message": "well?",
    "delay_seconds": 60,
    "seconds": 60,
    "texts": ["well?"],
    "owner": "admin",
    "key": "k",
}
# How fields are called that name something.
_REFERS = re.compile(r"(^|_)(agents?|agent_ref|users?|plugins?|to|reach|ids?|threads?|sessions?|turns?)$")
_SERVED = {"registry": "registry", "relay": "relay", "quota": "quota"}


@dataclass(frozen=True)
class Question:
    """One way to name something; `ask` returns the whole answer but for the name and what differs always."""

    name: str
    references: Mapping[str, str]
    ask: Callable[[str], Awaitable[str]]

    async def answers(self) -> dict[str, str]:
        """Return the answer for each reference."""
        return {why: await self.ask(each) for why, each in self.references.items()}


def _plain(answer: str, reference: str) -> str:
    return answer.replace(reference, "REFERENCE")


def _references(asker: Asker, field: str) -> list[tuple[str, Mapping[str, str]]]:
    if field in _AGENTS:
        return [("by name", HIDDEN), ("by id", asker.ids)]
    if field in _THINGS:
        return [("by id", asker.things[_THINGS[field]])]
    return []


# -- gRPC ------------------------------------------------------------------------------------------


@asynccontextmanager
async def over_grpc(asker: Asker) -> AsyncIterator[list[Question]]:
    """Yield the questions of every public unary method, as the agent, the person and a plugin."""
    found: list[Question] = []
    channels = {
        name: grpc.aio.insecure_channel(asker.space.mesh.endpoints[name]) for name in _SERVED.values()
    }
    for method in METHODS:
        package = method.service.full_name.split(".")[1]
        if package not in _SERVED:
            continue
        callers = (("agent", asker.agent.token), ("user", asker.person), ("plugin", asker.plugin))
        for kind, token in callers:
            if kind in method.allowed:
                found.extend(_of_method(asker, method, channels[package], kind, token))
    yield found
    for channel in channels.values():
        await channel.close()


def _of_method(
    asker: Asker, method: Method, channel: grpc.aio.Channel, kind: str, token: str
) -> Iterator[Question]:
    streams = method.descriptor.server_streaming
    make: Any = channel.unary_stream if streams else channel.unary_unary
    rpc: Any = make(method.path, None, method.response.FromString)
    metadata = (("authorization", f"Bearer {token}"),)

    def asking(field: str) -> Callable[[str], Awaitable[str]]:
        async def ask(reference: str) -> str:
            request = request_of(method, field, reference)
            answer = _first_answer if streams else _rpc_answer
            return await answer(rpc, request, metadata, reference)

        return ask

    within = [f"agent.{name}" for name in _WITHIN.get(method.descriptor.name, ()) if kind == "user"]
    for place in within:
        for how, named in _references(asker, "agent"):
            yield Question(f"gRPC {kind} {method.path} {place} {how}", named, asking(place))

    for field in method.request.DESCRIPTOR.fields:
        # A person calls from no session, whatever the request says.
        if field.message_type is not None or (kind == "user" and field.name == "caller_session_id"):
            continue
        for how, references in _references(asker, field.name):
            yield Question(f"gRPC {kind} {method.path} {field.name} {how}", references, asking(field.name))


def request_of(method: Method, field: str, reference: str) -> bytes:
    """Write a request in which one field refers to something and all the rest is as it has to be."""
    request = method.request()
    described = request.DESCRIPTOR
    for each in described.fields:
        oneof = each.containing_oneof
        if oneof is not None and len(oneof.fields) > 1:
            continue  # the reference is one of the choices
        if each.name == "wait_seconds":
            request.wait_seconds = 0
        elif each.name == "manifest":
            request.manifest.MergeFrom(MANIFEST)
        elif each.name in _FILLING and each.message_type is None:
            if each.is_repeated:
                getattr(request, each.name).extend(_FILLING[each.name])
            else:
                setattr(request, each.name, _FILLING[each.name])
        elif each.name in ("agent", "agent_ref") and each.message_type is None and field != "agent":
            setattr(request, each.name, "friend")
        elif each.name == "to" and each.is_repeated and field != "to":
            request.to.append("friend")
        elif each.name == "message_id" and field != "message_id":
            request.message_id = "msg_" + NO_ID[4:]
    if "members" in described.fields_by_name:
        request.members.add(key="k")
    within, _, name = field.partition(".")
    if "update_mask" in described.fields_by_name:
        request.update_mask.paths.append(name or "description")
    _refer(getattr(request, within) if name else request, name or field, reference)
    return bytes(request.SerializeToString())


def _refer(holder: Any, field: str, reference: str) -> None:
    """Have a field refer to something."""
    if field == "connections":
        holder.connections.add(name="peer", agent=reference)
    elif holder.DESCRIPTOR.fields_by_name[field].is_repeated:
        getattr(holder, field).append(reference)
    else:
        setattr(holder, field, reference)


async def _rpc_answer(rpc: Any, raw: bytes, metadata: Any, reference: str) -> str:
    made = rpc(raw, metadata=metadata, timeout=60)
    try:
        return _plain(f"OK {await made}", reference)
    except grpc.aio.AioRpcError as error:
        told = [*(await made.initial_metadata()), *(error.trailing_metadata() or ())]
        shown = sorted((key, str(value)) for key, value in told if key.lower() not in FLEETING)
        return _plain(f"{error.code()} {error.details()} {shown}", reference)


async def _first_answer(rpc: Any, raw: bytes, metadata: Any, reference: str) -> str:
    """Return the first answer of a stream; one that says nothing is ended by its deadline."""
    made = rpc(raw, metadata=metadata, timeout=1.0)
    try:
        return _plain(f"OK {await made.read()}", reference)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return "nothing"  # whichever end noticed it first says so in words of its own
        return _plain(f"{error.code()} {error.details()}", reference)
    finally:
        made.cancel()


def unasked() -> list[str]:
    """Return what of requests, and of the arguments of tools, names something and is not asked for."""
    known = _AGENTS | _THINGS.keys() | _NO_SECRET.keys()
    found = []
    for method in METHODS:
        if method.service.full_name.split(".")[1] in _SERVED and method.allowed & {"agent", "user", "plugin"}:
            found += [
                f"{method.path} {name}" for name in _names_in(method.request.DESCRIPTOR) if name not in known
            ]
    asked = {(tool, field) for tool, field, _ in TOOLS}
    for tool, described in OFFERED.items():
        for field in described.properties:
            if _REFERS.search(field) and field not in _NO_SECRET and (tool, field) not in asked:
                found.append(f"tool {tool} {field}")
    return found


def _names_in(described: Any) -> Iterator[str]:
    for field in described.fields:
        inner = field.message_type
        if (
            inner is not None
            and inner.file.package.startswith("hopline")
            and not inner.GetOptions().map_entry
        ):
            yield from _names_in(inner)
        elif field.type == field.TYPE_STRING and _REFERS.search(field.name):
            yield field.name


# -- MCP -------------------------------------------------------------------------------------------

TOOLS: list[tuple[str, str, dict[str, Any]]] = [
    ("ask", "agent", {"text": "well?", "wait_seconds": 0}),
    ("ask", "session_id", {"agent": "friend", "text": "well?", "wait_seconds": 0}),
    ("send_message", "agent", {"text": "well?"}),
    ("send_message", "thread_id", {"agent": "friend", "text": "well?"}),
    ("check", "turn_id", {"wait_seconds": 0}),
    ("check", "session_id", {"wait_seconds": 0}),
    ("cancel", "turn_id", {}),
    ("cancel", "session_id", {}),
    ("read_thread", "thread_id", {}),
    ("reply", "message_id", {"text": "so"}),
    ("done", "message_id", {}),
    ("start_subagent", "agent", {"task": "look"}),
    ("message_agent", "agent", {"text": "well?"}),
    ("send_message_to_session", "session_id", {"text": "well?"}),
    ("list_agent_sessions", "agent", {}),
    ("read_session", "session_id", {}),
    ("close_subagent", "session_id", {}),
    ("todo_complete", "todo_id", {}),
    ("todo_remove", "todo_id", {}),
    ("todo_snooze", "todo_id", {"seconds": 60}),
    ("notify_cancel", "timer_id", {}),
]


@asynccontextmanager
async def over_http(asker: Asker) -> AsyncIterator[list[Question]]:
    """Yield the questions of every tool that takes a reference, and of the header that binds a session."""
    headers = {
        "Authorization": f"Bearer {asker.agent.token}",
        "Accept": "application/json, text/event-stream",
    }
    async with aiohttp.ClientSession(asker.space.mesh.endpoints["gateway"], headers=headers) as http:

        async def post(tool: str, arguments: dict[str, Any], reference: str, **more: str) -> str:
            params = {"name": tool, "arguments": arguments}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            async with http.post("/mcp", json=body, headers=more) as found:
                told = sorted(
                    (key, value) for key, value in found.headers.items() if key.lower() not in FLEETING
                )
                return _plain(f"{found.status} {told} {await found.text()}", reference)

        def asking(tool: str, field: str, given: dict[str, Any]) -> Callable[[str], Awaitable[str]]:
            return lambda reference: post(tool, {**given, field: reference}, reference)

        found = [
            Question(f"MCP {tool} {field} {how}", references, asking(tool, field, given))
            for tool, field, given in TOOLS
            for how, references in _references(asker, field)
        ]
        for tool, given in (
            ("whoami", {}),
            ("send_message", {"agent": "friend", "text": "so"}),
            ("read_inbox", {}),
        ):

            async def bound(reference: str, tool: str = tool, given: dict[str, Any] = given) -> str:
                return await post(tool, given, reference, **{"Hopline-Session": reference})

            found.append(Question(f"MCP {tool} Hopline-Session", asker.things["session_id"], bound))
        yield found


# Requests to agents' own endpoints in which something is named: a slug, or one of `friend`'s sessions.
_ASK = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}


def _calls(tool: str, **arguments: Any) -> dict[str, Any]:
    return {**_ASK, "params": {"name": tool, "arguments": arguments}}


SLUGS: list[tuple[str, str, Any]] = [
    ("POST", "/{}/v1/mcp", _calls("ask", message="well?", waitSeconds=0)),
    ("POST", "/{}/v1/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    ("GET", "/{}/v1/sessions", None),
    ("GET", "/{}/v1/sessions/ses_x", None),
    ("POST", "/{}/v1/sessions", {"message": "well?", "waitSeconds": 0}),
]
SESSIONS: list[tuple[str, str, Any]] = [
    ("POST", "/friend/v1/mcp", _calls("ask", message="well?", waitSeconds=0, sessionId="{}")),
    ("POST", "/friend/v1/mcp", _calls("check", waitSeconds=0, sessionId="{}")),
    ("GET", "/friend/v1/sessions/{}", None),
    ("POST", "/friend/v1/sessions", {"message": "well?", "waitSeconds": 0, "sessionId": "{}"}),
]


@asynccontextmanager
async def over_own_endpoints(asker: Asker) -> AsyncIterator[list[Question]]:
    """Yield the questions of the agents' own endpoints, as the agent, the person and a plugin."""
    async with aiohttp.ClientSession(asker.space.mesh.endpoints["gateway"]) as http:

        def asking(token: str, method: str, path: str, body: Any) -> Callable[[str], Awaitable[str]]:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

            async def ask(reference: str) -> str:
                data = json.dumps(body).replace("{}", reference) if body else None
                async with http.request(
                    method, path.replace("{}", reference), data=data, headers=headers | _TAKES
                ) as found:
                    told = sorted(
                        (key, value) for key, value in found.headers.items() if key.lower() not in FLEETING
                    )
                    return _plain(f"{found.status} {told} {await found.text()}", reference)

            return ask

        bound = {**asker.things["session_id"], "bound to another": asker.bound}
        yield [
            Question(f"{kind} {method} {path} {what}", references, asking(token, method, path, body))
            for kind, token, sessions in (
                ("agent", asker.agent.token, bound),
                # Who operates an agent sees its sessions, and is told that they may not prompt in them.
                ("user", asker.person, asker.things["session_id"]),
                ("plugin", asker.plugin, asker.things["session_id"]),
            )
            for what, references, requests in (("by slug", HIDDEN, SLUGS), ("by id", sessions, SESSIONS))
            for method, path, body in requests
        ]


_TAKES = {"Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def over_stdio(asker: Asker) -> AsyncIterator[list[Question]]:
    """Yield the questions of every tool that takes a reference, through the pipe."""
    async with asker.space.mcp_over_stdio(asker.agent) as client:

        def asking(tool: str, field: str, given: dict[str, Any]) -> Callable[[str], Awaitable[str]]:
            async def ask(reference: str) -> str:
                found = await client.call_tool(tool, {**given, field: reference})
                return _plain(found.model_dump_json(), reference)

            return ask

        yield [
            Question(f"stdio {tool} {field} {how}", references, asking(tool, field, given))
            for tool, field, given in TOOLS
            for how, references in _references(asker, field)
        ]


# -- the tunnel ------------------------------------------------------------------------------------


class Tunnel:
    """A worker's stream on which one call at a time is made."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._number = 0
        # A stream takes one write at a time.
        self._writing = asyncio.Lock()

    async def say(self, item: pb.WorkerItem) -> None:
        """Send an item."""
        async with self._writing:
            await self._stream.write(pb.AttachRequest(items=[item]))

    async def until(self, kind: str) -> Any:
        """Read until an item of this kind comes."""
        while True:
            for item in (await self._stream.read()).items:
                if item.HasField(kind):
                    return getattr(item, kind)

    async def call(self, method: str, request: bytes) -> str:
        """Make a call and return its answer, without the number it had."""
        self._number += 1
        call = pb.Call(attachment=1, call_id=self._number)
        getattr(call, method).MergeFromString(request)
        await self.say(pb.WorkerItem(call=call))
        result = await self.until("call_result")
        assert result.call_id == self._number
        result.call_id = 0
        details = json.dumps(dict(result.error.details), sort_keys=True, default=str)
        return f"{result.ByteSize()} {result.error.code} {result.error.message} {details} {result}"


@asynccontextmanager
async def over_tunnel(asker: Asker) -> AsyncIterator[list[Question]]:
    """Yield the questions of every call that a worker makes over its tunnel."""
    names = {field.message_type.name: field.name for field in pb.Call.DESCRIPTOR.fields if field.message_type}
    async with grpc.aio.insecure_channel(asker.space.mesh.endpoints["relay"]) as channel:
        stub: Any = TunnelServiceStub(channel)
        stream = stub.Attach(metadata=(("authorization", f"Bearer {asker.agent.token}"),))
        tunnel = Tunnel(stream)
        attach = pb.AttachAgent(attachment=1, credential=asker.agent.token, max_turns=1)
        await tunnel.say(pb.WorkerItem(attach=attach))
        await tunnel.until("attached")
        beating = asyncio.create_task(_beat(tunnel))
        found: list[Question] = []
        for method in METHODS:
            if (name := names.get(method.request.DESCRIPTOR.name)) is None:
                continue
            for field in method.request.DESCRIPTOR.fields:

                async def ask(
                    reference: str, method: Method = method, name: str = name, field: str = field.name
                ) -> str:
                    return _plain(await tunnel.call(name, request_of(method, field, reference)), reference)

                found.extend(
                    Question(f"tunnel {name} {field.name} {how}", references, ask)
                    for how, references in _references(asker, field.name)
                )
        yield found
        beating.cancel()
        stream.cancel()


async def _beat(tunnel: Tunnel) -> None:
    """Keep the tunnel's leases while calls are made: silence of 30 s ends it."""
    while True:
        await asyncio.sleep(5)
        await tunnel.say(pb.WorkerItem(heartbeat=pb.Heartbeat()))
