"""A worker that offers tools and says exactly what a test tells it to, on the real relay."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hopline.relay.v1 import delegation_pb2, tool_pb2
from hopline.relay.v1 import message_pb2 as msg
from hopline.relay.v1.tool_pb2_grpc import ToolServiceStub
from hopline.runtime.v1 import tunnel_pb2 as pb

from tests.support.fake_turns import RawWorker
from tests.support.relay_mesh import Caller, RelayMesh

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def definition(name: str, schema: Any = None, description: str = "", output: Any = None) -> pb.ToolDefinition:
    """Describe a tool."""
    found = pb.ToolDefinition(name=name, description=description)
    if schema is not None:
        found.input_schema_json = json.dumps(schema)
    if output is not None:
        found.output_schema_json = json.dumps(output)
    return found


class ToolWorker(RawWorker):
    """A stream of one agent; `mesh` is the real one."""

    def __init__(self, agent: Caller) -> None:
        super().__init__(agent._channel("relay"))
        self.agent = agent
        self._numbers = 0

    async def offer(self, *tools: str | pb.ToolDefinition, **fields: Any) -> pb.RelayItem:
        """Attach with these tools and return the answer."""
        offered = [definition(each) if isinstance(each, str) else each for each in tools]
        return await self.attach(self.agent.token, server_tools=offered, **fields)

    async def call(self) -> pb.ToolCall:
        """Wait for the call of a tool."""
        return (await self.next("tool_call")).tool_call

    async def told_to_stop(self) -> int:
        """Wait until a call is called off, and return its number."""
        return (await self.next("tool_call_canceled")).tool_call_canceled.call_id

    async def answer(self, call: pb.ToolCall, result: Any = "ok", **outcome: Any) -> None:
        """Say how a call came out."""
        said = outcome or {"result_json": json.dumps(result)}
        item = pb.ToolResult(attachment=call.attachment, call_id=call.call_id, **said)
        await self.say(pb.WorkerItem(tool_result=item))

    async def from_within(self, turn_id: str, **method: Any) -> pb.CallResult:
        """Call the mesh from within a turn, or a call."""
        await self.calling(turn_id, **method)
        return (await self.next("call_result")).call_result

    async def calling(self, turn_id: str, **method: Any) -> int:
        """Begin a call from within a turn, and return its number."""
        self._numbers += 1
        call = pb.Call(attachment=1, call_id=self._numbers, turn_id=turn_id, **method)
        await self.say(pb.WorkerItem(call=call))
        return self._numbers


async def worker_of(agent: Caller, *tools: str | pb.ToolDefinition, **fields: Any) -> ToolWorker:
    """Attach a worker that offers tools."""
    worker = ToolWorker(agent)
    attached = await worker.offer(*tools, **fields)
    assert attached.HasField("attached"), attached
    # A stream that nobody holds is cancelled.
    vars(agent).setdefault("workers", []).append(worker)
    return worker


def request(to: Caller | str, name: str = "look", **fields: Any) -> tool_pb2.CallToolRequest:
    """Write a call."""
    arguments = fields.pop("arguments", None)
    if arguments is not None:
        fields["arguments_json"] = json.dumps(arguments)
    return tool_pb2.CallToolRequest(agent=to if isinstance(to, str) else to.id, name=name, **fields)


async def call_tool(
    caller: Caller, to: Caller | str, name: str = "look", **fields: Any
) -> tool_pb2.CallToolResponse:
    """Call a tool and wait for its result."""
    stub: Any = ToolServiceStub(caller._channel("relay"))
    answer: tool_pb2.CallToolResponse = await stub.CallTool(request(to, name, **fields))
    return answer


def calling(
    caller: Caller, to: Caller | str, name: str = "look", **fields: Any
) -> asyncio.Task[tool_pb2.CallToolResponse]:
    """Begin to call a tool."""
    return asyncio.create_task(call_tool(caller, to, name, **fields))


async def tools_of(caller: Caller, agent: Caller | str, **fields: Any) -> tool_pb2.ListServerToolsResponse:
    """List the tools of an agent."""
    stub: Any = ToolServiceStub(caller._channel("relay"))
    name = agent if isinstance(agent, str) else agent.id
    answer: tool_pb2.ListServerToolsResponse = await stub.ListServerTools(
        tool_pb2.ListServerToolsRequest(agent=name, **fields)
    )
    return answer


async def turns_of(mesh: RelayMesh, agent: Caller) -> list[delegation_pb2.Turn]:
    """Return the turns of an agent, the newest first, as its owner sees them."""
    found = await mesh.admin.turns.ListTurns(delegation_pb2.ListTurnsRequest(agent=agent.id))
    return list(found.turns)


def state(turn: delegation_pb2.Turn | msg.TurnView) -> str:
    """Return the state of a turn in a word."""
    return msg.TurnStatus.Name(turn.status).removeprefix("TURN_STATUS_").lower()
