"""Every agent as an MCP server on a real mesh: who gets in, what comes out, and what stops a circle."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import grpc.aio
import pytest
from hopline.registry.v1.agent_pb2 import AGENT_KIND_RECEIVE_ONLY, PauseAgentRequest
from hopline.registry.v1.identity_pb2 import ROLE_OPERATOR, ROLE_VIEWER, AuthenticateRequest
from hopline.registry.v1.identity_pb2_grpc import IdentityServiceStub
from hopline.relay.v1.message_pb2 import AskRequest
from hopline.relay.v1.message_pb2_grpc import MessageServiceStub
from hopline_client import Turn
from mcp.shared.exceptions import MCPError

from tests.support.mesh_process import (
    Agent,
    Held,
    MeshProcess,
    Processes,
    Space,
    call,
    refused,
    shout,
    until,
)

MODES = ["legacy", "2026-07-28"]
CLAIMS = {
    "x-hopline-depth": "0",
    "hopline-depth": "0",
    "hopline-root": "rot_1",
    "hopline-agent": "agt_other",
    "hopline-caller": "agt_other",
    "baggage": "hopline.depth=0",
}
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def http(space: Space, token: str, **headers: str) -> aiohttp.ClientSession:
    """Return a plain HTTP client of the gateway."""
    given = {"Authorization": f"Bearer {token}", **headers}
    return aiohttp.ClientSession(space.mesh.endpoints["gateway"], headers=given)


@pytest.mark.parametrize("mode", MODES)
async def test_an_agent_is_asked_followed_up_and_checked_at_its_own_address(space: Space, mode: str) -> None:
    ada, bob = await space.agents("ada", "bob")
    yan = await space.person("yan", ROLE_OPERATOR)
    await space.work(bob, shout)
    for caller, depth in ((ada, 1), (yan, 0)):
        async with space.mcp_over_http(caller, mode, "/bob/v1/mcp") as client:
            assert [tool.name for tool in (await client.list_tools()).tools][:2] == ["ask", "check"]
            first = await call(client, "ask", message="tea")
            assert (first["status"], first["reply"]) == ("completed", "TEA")
            again = await call(client, "ask", message="milk", sessionId=first["sessionId"])
            assert (again["sessionId"], again["reply"]) == (first["sessionId"], "MILK")
            assert (await call(client, "ask", message="tea"))["sessionId"] != first["sessionId"]
            looked = await call(client, "check", sessionId=first["sessionId"], waitSeconds=0)
            assert looked["reply"] == "MILK"
        assert (await space.turn(first["turnId"])).depth == depth
        assert looked["provenance"]["display"] == "bob (for admin)"


async def test_the_sessions_api_lists_reads_and_prompts(space: Space) -> None:
    await space.work((await space.agents("bob"))[0], shout)
    yan = await space.person("yan", ROLE_OPERATOR)
    async with http(space, yan) as client:
        key = {"Idempotency-Key": "order 7"}
        asked = [
            await client.post("/bob/v1/sessions", json={"message": "tea"}, headers=key) for _ in range(2)
        ]
        first, again = [await each.json() for each in asked]
        assert (first["status"], first["reply"]) == ("completed", "TEA")
        assert first == again
        more = {"message": "milk", "sessionId": first["sessionId"]}
        assert (await (await client.post("/bob/v1/sessions", json=more)).json())["reply"] == "MILK"
        listed = await (await client.get("/bob/v1/sessions")).json()
        assert [(one["title"], one["channel"]) for one in listed["sessions"]] == [("tea", "mcp")]
        seen: list[str] = []
        cursor = ""
        while len(seen) < 10:
            path = f"/bob/v1/sessions/{first['sessionId']}"
            query = {"limit": "1", **({"cursor": cursor} if cursor else {})}
            page = await (await client.get(path, params=query)).json()
            seen += [line["text"] for line in page["transcript"]]
            if not (cursor := page["next_cursor"]):
                break
        assert seen == ["tea", "TEA", "milk", "MILK"]
        taken = await client.post("/bob/v1/sessions", json={"message": "x"}, headers=key)
        assert (taken.status, (await taken.json())["error"]["code"]) == (409, "request_id_conflict")


async def test_who_may_not_prompt_in_a_session_is_told_as_far_as_they_may_know_of_it(space: Space) -> None:
    ada, eve, bob = await space.agents("ada", "eve", "bob")
    await space.work(bob, shout)
    yan, vic = await space.person("yan", ROLE_OPERATOR), await space.person("vic", ROLE_VIEWER)
    async with space.mcp_over_http(ada, path="/bob/v1/mcp") as client:
        session_id = (await call(client, "ask", message="tea"))["sessionId"]
    for caller, code in ((eve, "not_found"), (yan, "permission_denied")):
        async with space.mcp_over_http(caller, path="/bob/v1/mcp") as client:
            error, _ = await refused(client, "ask", message="x", sessionId=session_id)
            assert error["code"] == code
            error, _ = await refused(client, "check", sessionId=session_id, waitSeconds=0)
            assert error["code"] == "not_found"
    async with http(space, yan) as client:
        assert (await client.get(f"/bob/v1/sessions/{session_id}")).status == 200
    async with http(space, eve.token) as client:
        assert (await client.get(f"/bob/v1/sessions/{session_id}")).status == 404
    async with http(space, vic) as client:
        assert (await client.get("/bob/v1/sessions")).status == 404
    async with space.mcp_over_http(ada) as client:
        assert (await call(client, "ask", agent="bob", text="milk", session_id=session_id))["reply"] == "MILK"


async def test_an_agent_that_may_start_nothing_is_told_so_in_a_result(space: Space) -> None:
    await space.agents("bob")
    ear = await space.agent("ear", kind=AGENT_KIND_RECEIVE_ONLY)
    ada = await space.agent("ada")
    await space.admin.agents.PauseAgent(PauseAgentRequest(agent="ada"))
    for caller, code in ((ear, "receive_only"), (ada, "agent_paused")):
        async with space.mcp_over_http(caller, path="/bob/v1/mcp") as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["ask", "check"]
            for tool, arguments in (("ask", {"message": "x"}), ("call_tool", {"name": "x"})):
                assert (await refused(client, tool, **arguments))[0]["code"] == code
        async with http(space, caller.token) as client:
            answer = await client.post("/bob/v1/sessions", json={"message": "x"})
            assert (answer.status, (await answer.json())["error"]["code"]) == (
                (403 if code == "receive_only" else 409),
                code,
            )


async def test_agents_that_delegate_to_each_other_by_their_endpoints_are_stopped_by_the_depth_rail(
    space: Space,
) -> None:
    ping, pong = await space.agents("ping", "pong")

    def passes_on(agent: Agent, path: str) -> Any:
        async def handle(turn: Turn) -> str:
            async with space.mcp_over_http(agent, path=path) as client:
                result = await client.call_tool("ask", {"message": "and you?"})
            found: Any = result.structured_content
            return str(found["error"]["code"] if result.is_error else found["reply"])

        return handle

    await space.work(ping, passes_on(ping, "/pong/v1/mcp"))
    await space.work(pong, passes_on(pong, "/ping/v1/mcp"))
    async with http(space, await space.person("yan", ROLE_OPERATOR)) as client:
        asked = await (await client.post("/ping/v1/sessions", json={"message": "go"})).json()
    assert asked["reply"] == "depth_exceeded"
    assert [turn.depth for turn in await space.turns()] == [0, 1, 2, 3, 4]


async def test_fifty_asks_at_once_get_fifty_sessions_and_their_own_answers(space: Space) -> None:
    ada, bob = await space.agents("ada", "bob")
    await space.policy(pair_budget="0", concurrent_runs=60)
    await space.work(bob, shout, max_turns=60)
    async with http(space, ada.token) as client:

        async def ask(number: int) -> Any:
            async with client.post("/bob/v1/sessions", json={"message": f"number {number}"}) as answer:
                return await answer.json()

        found = await asyncio.gather(*(ask(number) for number in range(50)))
    assert [one["reply"] for one in found] == [f"NUMBER {number}" for number in range(50)]
    assert len({one["sessionId"] for one in found}) == 50


async def test_a_client_that_hangs_up_ends_its_wait_and_nothing_else(space: Space) -> None:
    _, bob = await space.agents("ada", "bob")
    yan = await space.person("yan", ROLE_OPERATOR)
    handler = Held()
    await space.work(bob, handler)
    async with http(space, yan) as client:
        asking = asyncio.create_task(client.post("/bob/v1/sessions", json={"message": "tea"}))
        turn = await handler.begun()
        asking.cancel()
        await asyncio.wait({asking})
    await until(lambda: not space.mesh.rows("SELECT id FROM waits"), "the end of the wait")
    assert handler.cancelled == []
    handler.go_on.set()
    async with space.mcp_over_http(yan, path="/bob/v1/mcp") as client:
        assert (await call(client, "check", sessionId=turn.session_id))[
            "reply"
        ] == "tea, answered at attempt 1"


async def test_no_claim_of_a_caller_changes_anything_but_the_trace(space: Space) -> None:
    ada, bob = await space.agents("ada", "bob")
    eve = await space.agent("eve")
    theirs = (await space.client(bob).ask("eve", "well?", wait_seconds=0)).session_id
    turns: list[str] = []
    for mode in MODES:
        async with space.mcp_over_http(ada, mode, "/bob/v1/mcp", **CLAIMS, traceparent=TRACE) as client:
            claims: Any = {"depth": 0, "caller": eve.id, "root": "rot_1"}
            result = await client.call_tool("ask", {"message": "x", "waitSeconds": 0}, meta=claims)
            turns.append(str((result.structured_content or {})["turnId"]))
    async with http(space, ada.token, **CLAIMS, traceparent=TRACE) as client:
        body = {"message": "x", "waitSeconds": 0}
        turns.append((await (await client.post("/bob/v1/sessions", json=body)).json())["turnId"])
        # A session that is somebody else's binds nothing: it is not there.
        answer = await client.post("/bob/v1/sessions", json=body, headers={"Hopline-Session": theirs})
        never = await client.post("/bob/v1/sessions", json=body, headers={"Hopline-Session": "ses_never"})
        told = [(each.status, (await each.text()).replace(theirs, "ses_never")) for each in (answer, never)]
        assert told[0] == told[1]
        assert told[0][0] == 404
    async with grpc.aio.insecure_channel(space.mesh.endpoints["relay"]) as channel:
        metadata = (("authorization", f"Bearer {ada.token}"), *CLAIMS.items(), ("traceparent", TRACE))
        stub: Any = MessageServiceStub(channel)
        request = AskRequest(agent="bob", text="x", wait_seconds=0, own_endpoint=True)
        turns.append((await stub.Ask(request, metadata=metadata)).turn.turn_id)
    for turn_id in turns:
        turn = await space.turn(turn_id)
        assert (turn.depth, turn.caused_by.id, turn.agent.id) == (1, ada.id, bob.id)
        assert turn.root_id != "rot_1"
        assert turn.trace_id == TRACE[3:35]


async def test_a_principal_of_another_mesh_is_refused_at_every_door(space: Space, started: Processes) -> None:
    await space.agents("bob")
    other = MeshProcess(started, "other")
    await other.restart()
    async with other.space() as elsewhere:
        foreign = await elsewhere.agent("ada")
        await elsewhere.agents("bob")
        async with grpc.aio.insecure_channel(other.endpoints["registry"]) as channel:
            stub: Any = IdentityServiceStub(channel)
            assertion = (await stub.Authenticate(AuthenticateRequest(token=foreign.token))).assertion
        for credential in (foreign.token, assertion):
            for path in ("/mcp", "/bob/v1/mcp", "/bob/v1/sessions", "/nobody/v1/mcp"):
                async with http(space, credential) as client:
                    assert (await client.post(path, json={"message": "x"})).status == 401
            with pytest.raises(ExceptionGroup) as raised:
                async with space.mcp_over_http(credential, path="/bob/v1/mcp") as client:
                    await client.call_tool("ask", {"message": "x"})
            assert raised.group_contains(MCPError, match="error response")
            async with grpc.aio.insecure_channel(space.mesh.endpoints["relay"]) as channel:
                relay: Any = MessageServiceStub(channel)
                metadata = (("authorization", f"Bearer {credential}"),)
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await relay.Ask(AskRequest(agent="bob", text="x"), metadata=metadata)
                assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        # At home both are good.
        async with http(elsewhere, assertion) as client:
            assert (await client.get("/bob/v1/sessions")).status == 200
    assert await space.turns() == []


async def test_with_single_the_agent_is_served_without_a_slug(started: Processes) -> None:
    mesh = MeshProcess(started, options=("--single", "bob"))
    await mesh.restart()
    async with mesh.space() as space:
        ada, bob = await space.agents("ada", "bob")
        await space.work(bob, shout)
        async with space.mcp_over_http(ada, path="/v1/mcp") as client:
            assert (await call(client, "ask", message="tea"))["reply"] == "TEA"
        async with http(space, ada.token) as client:
            assert len((await (await client.get("/v1/sessions")).json())["sessions"]) == 1
            assert (await client.get("/bob/v1/sessions")).status == 404


async def test_a_single_agent_that_cannot_be_one_stops_the_start(mesh: MeshProcess) -> None:
    for words in (("up", "--any-port", "--single", "Not A Slug"), ("serve", "relay", "--single", "bob")):
        done = mesh.processes.run("hopline", *words, "--data", str(mesh.processes.folder / "never"))
        assert done.returncode == 1
        assert "single" in done.stderr.lower()


async def test_a_single_agent_and_connections_do_not_go_together(mesh: MeshProcess) -> None:
    file = mesh.processes.folder / "connected.yaml"
    file.write_text("agents:\n  one:\n    connections:\n      two: {agent: two}\n  two: {}\n")
    data = mesh.processes.folder / "unconnected"
    words = ("up", "--any-port", "--config", str(file), "--data", str(data))
    for single in ({"HOPLINE_SINGLE": "one"}, {}):
        more = () if single else ("--single", "one")
        done = mesh.processes.run("hopline", *words, *more, env=single)
        assert done.returncode == 1
        assert f"{file}:4: the connection two of one leads nowhere with --single" in done.stderr


@pytest.mark.parametrize("mode", MODES)
async def test_a_server_tool_is_called_without_a_turn_of_the_model(space: Space, mode: str) -> None:
    ada, bob = await space.agents("ada", "bob")
    yan = await space.person("yan", ROLE_OPERATOR)

    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        if b == 13:
            raise ValueError("thirteen brings bad luck")
        return a + b

    model = Held()
    await space.work(bob, model, tools=[add])
    for caller, depth in ((ada, 1), (yan, 0)):
        async with space.mcp_over_http(caller, mode, "/bob/v1/mcp") as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert 'add(a: integer, b: integer): "Add two numbers."' in str(tools["call_tool"].description)
            found = await call(client, "call_tool", name="add", arguments={"a": 2, "b": 3})
            assert (found["status"], found["result"]) == ("completed", 5)
            turn = await space.turn(found["turnId"])
            assert (turn.cause, turn.depth) == ("tool", depth)
            failed = await call(client, "call_tool", name="add", arguments={"a": 2, "b": 13})
            assert (failed["status"], failed["error"]["code"]) == ("failed", "tool_failed")
            assert "bad luck" in failed["error"]["message"]
            for arguments, named in (
                ({"name": "sub"}, "add"),
                ({"name": "add", "arguments": {"a": "x"}}, "a"),
            ):
                error, _ = await refused(client, "call_tool", **arguments)
                assert error["code"] == "invalid_argument"
                assert named in error["message"]
    assert model.turns == []


async def test_an_agent_that_is_away_and_one_without_tools_are_told_apart(space: Space) -> None:
    ada, bob = await space.agents("ada", "bob")
    async with space.mcp_over_http(ada, path="/bob/v1/mcp") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["ask", "check"]
        assert (await refused(client, "call_tool", name="add"))[0]["code"] == "unavailable"
        await space.work(bob, shout)
        assert (await refused(client, "call_tool", name="add"))[0]["code"] == "failed_precondition"


async def test_follow_ups_at_once_run_one_after_the_other_each_with_its_own_answer(space: Space) -> None:
    _, bob = await space.agents("ada", "bob")
    running: list[str] = []
    most: list[int] = []

    async def handle(turn: Turn) -> str:
        running.append(turn.id)
        most.append(len(running))
        await asyncio.sleep(0)
        running.remove(turn.id)
        return turn.text.upper()

    await space.work(bob, handle, max_turns=20)
    async with http(space, await space.person("yan", ROLE_OPERATOR)) as client:

        async def prompt(**body: str) -> Any:
            async with client.post("/bob/v1/sessions", json=body) as answer:
                return await answer.json()

        session_id = (await prompt(message="first"))["sessionId"]
        words = [f"word {number}" for number in range(10)]
        found = await asyncio.gather(*(prompt(message=word, sessionId=session_id) for word in words))
    assert [(one["sessionId"], one["reply"]) for one in found] == [
        (session_id, word.upper()) for word in words
    ]
    assert max(most) == 1


async def test_a_slug_that_was_refused_stands_in_the_audit_log_with_its_true_reason(space: Space) -> None:
    ada = await space.agent("ada")
    await space.agent("boxed", is_group_only_callable=True)
    async with http(space, ada.token) as client:
        for slug in ("boxed", "nobody"):
            assert (await client.post(f"/{slug}/v1/sessions", json={"message": "x"})).status == 404

    async def noted() -> Any:
        events: list[Any] = [event.details for event in await space.events("call.refused")]
        found = {each["message"].split("'")[1]: each["reason"] for each in events}
        return found if len(found) == 2 else None

    assert await until(noted, "both refusals") == {"boxed": "group_only", "nobody": "unknown"}
