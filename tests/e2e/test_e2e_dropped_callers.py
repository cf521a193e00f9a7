"""Callers that vanish in the middle of an ask: the work goes on, the answer is waiting for them."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from urllib.parse import urlsplit

from tests.support.mesh_process import HOPLINE, Agent, Held, Space, call, clean_environment, until

ASK = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "ask", "arguments": {"agent": "bob", "text": "tea"}},
    }
)


async def post_ask(space: Space, agent: Agent) -> asyncio.StreamWriter:
    """Send the ask over HTTP, and return the open connection."""
    gateway = urlsplit(space.mesh.endpoints["gateway"])
    _, writer = await asyncio.open_connection(gateway.hostname, gateway.port)
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: {gateway.netloc}\r\nAuthorization: Bearer {agent.token}\r\n"
        "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        f"Content-Length: {len(ASK)}\r\n\r\n"
    )
    writer.write(f"{head}{ASK}".encode())
    await writer.drain()
    return writer


async def nobody_waits(space: Space) -> None:
    """Wait until the mesh has noticed that its caller is gone."""
    await until(lambda: not space.mesh.rows("SELECT id FROM waits"), "the end of the wait")


async def the_answer_is_in_the_inbox_of(space: Space, agent: Agent) -> None:
    async with space.mcp_over_http(agent) as client:
        inbox = await call(client, "read_inbox", wait_seconds=50)
        messages = [(one["from"]["name"], one["body"]) for one in inbox["messages"]]
        assert messages == [("bob", "tea, answered at attempt 1")]
        thread = await call(client, "read_thread", thread_id=inbox["messages"][0]["thread_id"])
    assert [one["body"] for one in thread["messages"]] == ["tea", "tea, answered at attempt 1"]


async def test_the_work_for_a_broken_http_connection_goes_on_and_its_answer_waits_in_the_inbox(
    space: Space,
) -> None:
    ada, bob = await space.agents("ada", "bob")
    handler = Held()
    await space.work(bob, handler)
    connection = await post_ask(space, ada)
    await handler.begun()
    connection.transport.abort()
    await nobody_waits(space)
    assert handler.cancelled == []
    handler.go_on.set()
    await the_answer_is_in_the_inbox_of(space, ada)


async def test_an_answer_that_crosses_the_hangup_of_its_caller_waits_in_the_inbox_too(space: Space) -> None:
    ada, bob = await space.agents("ada", "bob")
    handler = Held()
    await space.work(bob, handler)
    connection = await post_ask(space, ada)
    await handler.begun()
    handler.go_on.set()
    connection.transport.abort()
    await the_answer_is_in_the_inbox_of(space, ada)


async def test_the_work_for_a_killed_stdio_client_goes_on_and_its_answer_waits_in_the_inbox(
    space: Space,
) -> None:
    ada, bob = await space.agents("ada", "bob")
    handler = Held()
    await space.work(bob, handler)
    where = {"HOPLINE_URL": space.mesh.endpoints["gateway"], "HOPLINE_TOKEN_FILE": str(ada.token_file)}
    env = clean_environment(space.mesh.processes.folder, where)
    pipe = await asyncio.create_subprocess_exec(HOPLINE, "mcp", stdin=PIPE, stdout=PIPE, env=env)
    try:
        assert pipe.stdin
        pipe.stdin.write(f"{ASK}\n".encode())
        await handler.begun()
    finally:
        pipe.kill()
        await pipe.wait()
    await nobody_waits(space)
    handler.go_on.set()
    await the_answer_is_in_the_inbox_of(space, ada)
