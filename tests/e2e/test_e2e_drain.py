"""A mesh that is asked to end (SIGTERM), and started again on the same data."""

from __future__ import annotations

import asyncio
from typing import Any

from hopline_client import Answer, HoplineError
from hopline_client import Mesh as Client
from mcp import Client as McpClient

from tests.support.mesh_process import Held, MeshProcess, Space, shout, until


async def ask(client: Client, agent: str, text: str) -> str:
    """Ask over gRPC; returns how it came back: a status, or the code of a refusal."""
    try:
        found: Answer = await client.ask(agent, text)
    except HoplineError as error:
        return error.reason
    return found.status


async def ask_over_mcp(client: McpClient, agent: str, text: str) -> str:
    """Ask over MCP; returns the same."""
    result: Any = (await client.call_tool("ask", {"agent": agent, "text": text})).structured_content
    return str(result["error"]["code"] if "error" in result else result["status"])


async def test_sigterm_ends_waits_not_work_and_leaves_nothing_behind(
    own_mesh: MeshProcess, own_space: Space
) -> None:
    mesh, space = own_mesh, own_space
    ada, bob = await space.agents("ada", "bob")
    handler = Held()
    await space.work(bob, handler)
    async with space.mcp_over_http(ada) as over_http, space.mcp_over_stdio(ada) as over_stdio:
        waiting = []
        # One after the other: those that come while another is queued would join its session.
        for asking in (
            ask(space.client(ada), "bob", "over gRPC"),
            ask_over_mcp(over_http, "bob", "over HTTP"),
            ask_over_mcp(over_stdio, "bob", "over stdio"),
        ):
            waiting.append(asyncio.create_task(asking))
            await handler.begun(len(waiting))
        mesh.up.terminate()
        ends = await asyncio.gather(*waiting)
    assert set(ends) <= {"running", "unavailable"}, ends
    assert await mesh.up.ended() == 0
    assert not mesh.endpoints_file.exists()
    assert "Traceback" not in mesh.up.said

    await mesh.restart()
    handler.go_on.set()

    async def all_ended() -> bool:
        return not mesh.rows("SELECT id FROM turns WHERE cause = 'ask' AND ended_at IS NULL")

    await until(all_ended, "the end of the turns")
    inbox = await space.client(ada).read_inbox()
    answers = sorted(message.body.partition(",")[0] for message in inbox.messages)
    assert answers == ["over HTTP", "over gRPC", "over stdio"]


async def test_an_answer_that_comes_during_the_drain_is_not_lost(
    own_mesh: MeshProcess, own_space: Space
) -> None:
    mesh, space = own_mesh, own_space
    ada, bob = await space.agents("ada", "bob")
    await space.work(bob, shout)
    texts = [f"number {number}" for number in range(60)]
    await space.policy(pair_budget="0", concurrent_runs=100)
    client = space.client(ada)
    starts = [asyncio.create_task(start(client, text)) for text in texts]
    await until(lambda: sum(task.done() for task in starts) >= 20, "the first answers")
    mesh.up.terminate()
    outcomes = dict(zip(texts, await asyncio.gather(*starts), strict=True))
    assert await mesh.up.ended() == 0
    await mesh.restart()

    async def all_ended() -> bool:
        return not mesh.rows("SELECT id FROM turns WHERE cause = 'ask' AND ended_at IS NULL")

    await until(all_ended, "the end of the turns")
    late = [message.body for message in (await client.read_inbox(limit=200)).messages]
    accepted = {body for (body,) in mesh.rows("SELECT body FROM messages WHERE kind = 'ask'")}
    for text, reply in outcomes.items():
        if reply:
            assert reply == text.upper()
            assert text.upper() not in late
        elif text in accepted:
            assert late.count(text.upper()) == 1


async def start(client: Client, text: str) -> str:
    """Ask; returns the reply, or nothing where there was none."""
    try:
        return (await client.ask("bob", text)).reply or ""
    except HoplineError as error:
        if error.reason != "unavailable":
            raise
        return ""
