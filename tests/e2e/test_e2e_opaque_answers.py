"""What a caller may not know of answers in every respect like what never existed."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import grpc.aio
import pytest
from hopline.registry.v1.agent_pb2 import DeleteAgentRequest, PauseAgentRequest
from hopline.registry.v1.identity_pb2 import ROLE_OPERATOR, GrantRoleRequest
from hopline.relay.v1 import message_pb2 as pb
from hopline.relay.v1.message_pb2_grpc import MessageServiceStub
from hopline_client import HoplineError

from tests.support.mesh_process import Agent, Space, call

# Names by what hides them. All are of one length, so that whole answers can be compared.
HIDDEN = {
    "out_of_reach": "beyond",
    "paused": "paused",
    "group_only": "closed",
    "deleted": "gone01",
    "no_role": "theirs",
    "another workspace": "abroad",
    "never there": "nobody",
}
NO_ID = "agt_01m8p000000000000000000000"
# Different at every call, whatever is answered.
FLEETING = {"date", "hopline-request-id"}

Answers = Callable[[str], Awaitable[str]]


class Asker:
    """An agent that sees `friend`, and nobody of HIDDEN."""

    def __init__(self, space: Space, agent: Agent, ids: dict[str, str]) -> None:
        self.space = space
        self.agent = agent
        self.ids = ids

    async def all_alike(self, answers: Answers) -> str:
        """Compare the answers for everyone in HIDDEN, by name and by id; returns one, the name left out."""
        by_name = {why: (await answers(name)).replace(name, "NAME") for why, name in HIDDEN.items()}
        by_id = {why: (await answers(self.ids[why])).replace(self.ids[why], "NAME") for why in HIDDEN}
        for found in (by_name, by_id):
            assert found == dict.fromkeys(HIDDEN, found["never there"])
        return by_name["never there"]


@pytest.fixture
async def asker(space: Space) -> Asker:
    await space.person("alice")
    absent = {"abroad", "nobody"}
    agents = {"friend": await space.agent("friend")}
    for why, name in HIDDEN.items():
        if name not in absent:
            agents[name] = await space.agent(name, is_group_only_callable=why == "group_only")
    for name in agents.keys() - {"theirs"}:
        grant = GrantRoleRequest(user="alice", agent=name, role=ROLE_OPERATOR)
        await space.admin.identities.GrantRole(grant)
    reach = [agent.id for name, agent in agents.items() if name != "beyond"]
    asker = await space.agent("asker", owner_id="alice", reach=reach)
    await space.admin.agents.PauseAgent(PauseAgentRequest(agent="paused"))
    await space.admin.agents.DeleteAgent(DeleteAgentRequest(agent="gone01"))
    async with space.mesh.space() as elsewhere:
        agents["abroad"] = await elsewhere.agent("abroad")
    ids = {why: agents[name].id if name in agents else NO_ID for why, name in HIDDEN.items()}
    return Asker(space, asker, ids)


async def test_over_grpc_a_hidden_agent_answers_like_one_that_never_existed(asker: Asker) -> None:
    metadata = (("authorization", f"Bearer {asker.agent.token}"),)
    async with grpc.aio.insecure_channel(asker.space.mesh.endpoints["relay"]) as channel:
        stub: Any = MessageServiceStub(channel)

        async def answer(method: Any, request: Any) -> str:
            made = method(request, metadata=metadata)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await made
            trailers = sorted((key, value) for key, value in error.value.trailing_metadata() or ())
            leaders = sorted((key, value) for key, value in await made.initial_metadata())
            told = [(key, value) for key, value in [*leaders, *trailers] if key.lower() not in FLEETING]
            return f"{error.value.code()} {error.value.details()} {told}"

        for answers in (
            lambda name: answer(stub.Ask, pb.AskRequest(agent=name, text="well?", wait_seconds=0)),
            lambda name: answer(stub.Send, pb.SendRequest(to=[name], text="well?")),
            lambda name: answer(stub.Send, pb.SendRequest(to=["friend", name], text="well?")),
        ):
            assert "StatusCode.NOT_FOUND there is no agent 'NAME'" in await asker.all_alike(answers)


async def test_over_http_a_hidden_agent_answers_like_one_that_never_existed(asker: Asker) -> None:
    headers = {
        "Authorization": f"Bearer {asker.agent.token}",
        "Accept": "application/json, text/event-stream",
    }
    async with aiohttp.ClientSession(asker.space.mesh.endpoints["gateway"], headers=headers) as http:

        async def answer(tool: str, arguments: dict[str, Any]) -> str:
            params = {"name": tool, "arguments": arguments}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            async with http.post("/mcp", json=body) as found:
                told = sorted(
                    (key, value) for key, value in found.headers.items() if key.lower() not in FLEETING
                )
                return f"{found.status} {told} {await found.text()}"

        for answers in (
            lambda name: answer("ask", {"agent": name, "text": "well?", "wait_seconds": 0}),
            lambda name: answer("send_message", {"agent": name, "text": "well?"}),
            lambda name: answer("send_message", {"agent": ["friend", name], "text": "well?"}),
        ):
            assert '"code":"not_found"' in await asker.all_alike(answers)


async def test_over_stdio_a_hidden_agent_answers_like_one_that_never_existed(asker: Asker) -> None:
    async with asker.space.mcp_over_stdio(asker.agent) as client:

        async def answer(name: str) -> str:
            found = await client.call_tool("ask", {"agent": name, "text": "well?", "wait_seconds": 0})
            assert found.is_error
            return found.model_dump_json()

        told = json.loads(await asker.all_alike(answer))
        listed = await call(client, "list_agents")
    assert told["structured_content"]["error"] == {
        "code": "not_found",
        "message": "there is no agent 'NAME'",
        "retryable": False,
        "details": {"agent": "NAME"},
    }
    assert [each["name"] for each in listed["agents"]] == ["friend"]


async def test_the_audit_log_alone_knows_why_an_agent_was_hidden(asker: Asker) -> None:
    client = asker.space.client(asker.agent)
    for name in HIDDEN.values():
        with pytest.raises(HoplineError, match="there is no agent"):
            await client.send(name, "well?")
    events = await asker.space.events("message.refused")
    details: list[Any] = [event.details for event in events]
    reasons = {name: each["reason"] for each in details for name in each["to"]}
    known = {name: why for why, name in HIDDEN.items() if name not in ("abroad", "nobody")}
    assert reasons == {**known, "abroad": "unknown", "nobody": "unknown"}


async def test_what_others_have_between_them_answers_like_what_never_was(asker: Asker) -> None:
    space = asker.space
    one, _ = await space.agents("one", "two")
    asked = await space.client(one).ask("two", "well?", wait_seconds=0)
    never = "01m8p000000000000000000000"
    async with space.mcp_over_http(asker.agent) as client:

        async def answer(tool: str, argument: str, identifier: str) -> str:
            more = {"text": "so"} if tool == "reply" else {}
            found = await client.call_tool(tool, {argument: identifier, **more})
            assert found.is_error
            return found.model_dump_json().replace(identifier, "ID")

        for tool, argument, identifier in (
            ("read_thread", "thread_id", asked.thread_id),
            ("check", "turn_id", asked.turn_id),
            ("cancel", "turn_id", asked.turn_id),
            ("check", "session_id", asked.session_id),
            ("cancel", "session_id", asked.session_id),
            ("reply", "message_id", asked.message_id),
            ("done", "message_id", asked.message_id),
        ):
            fake = identifier[:4] + never
            assert await answer(tool, argument, identifier) == await answer(tool, argument, fake), tool
