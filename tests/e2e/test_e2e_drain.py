"""A mesh that is asked to end (SIGTERM) while it works, and started again on the same data."""

from __future__ import annotations

import asyncio
from typing import Any

from hopline_client import HoplineError
from hopline_client import Mesh as Client
from mcp import Client as McpClient

from tests.support.mesh_process import Agent, Held, MeshProcess, Space, shout, until


async def ask(client: Client, agent: str, text: str) -> str:
    """Ask over gRPC; returns the reply, or how the ask came back without one."""
    try:
        found = await client.ask(agent, text)
    except HoplineError as error:
        return error.reason
    return found.reply or found.status


async def ask_over_mcp(client: McpClient, agent: str, text: str) -> str:
    """Ask over MCP; returns the same."""
    result: Any = (await client.call_tool("ask", {"agent": agent, "text": text})).structured_content
    return str(result["error"]["code"] if "error" in result else result.get("reply", result["status"]))


async def late_answers(space: Space, agent: Agent) -> list[str]:
    """Wait for the end of every ask of the mesh; returns the answers in the agent's inbox."""

    async def all_ended() -> bool:
        return not space.mesh.rows("SELECT id FROM turns WHERE cause = 'ask' AND ended_at IS NULL")

    await until(all_ended, "the end of the turns")
    return [message.body for message in (await space.client(agent).read_inbox(limit=200)).messages]


async def test_sigterm_ends_waits_not_work_and_no_answer_is_lost_or_given_twice(
    own_mesh: MeshProcess, own_space: Space
) -> None:
    mesh, space = own_mesh, own_space
    ada, eve, slow, quick = await space.agents("ada", "eve", "slow", "quick")
    await space.policy(pair_budget="0", concurrent_runs=100)
    handler = Held()
    await space.work(slow, handler)
    await space.work(quick, shout)
    async with space.mcp_over_http(ada) as over_http, space.mcp_over_stdio(ada) as over_stdio:
        held = []
        # One after the other: those that come while another is queued would join its session.
        for asking in (
            ask(space.client(ada), "slow", "over gRPC"),
            ask_over_mcp(over_http, "slow", "over HTTP"),
            ask_over_mcp(over_stdio, "slow", "over stdio"),
        ):
            held.append(asyncio.create_task(asking))
            await handler.begun(len(held))
        texts = [f"number {number}" for number in range(60)]
        asks = [asyncio.create_task(ask(space.client(eve), "quick", text)) for text in texts]
        await until(lambda: sum(task.done() for task in asks) >= 20, "the first answers")
        mesh.up.terminate()
        assert set(await asyncio.gather(*held)) <= {"running", "unavailable"}
        outcomes = dict(zip(texts, await asyncio.gather(*asks), strict=True))
    assert await mesh.up.ended() == 0
    assert not mesh.endpoints_file.exists()
    assert mesh.complaints() == []

    await mesh.restart()
    handler.go_on.set()
    late = [answer.partition(",")[0] for answer in await late_answers(space, ada)]
    assert sorted(late) == ["over HTTP", "over gRPC", "over stdio"]
    late = await late_answers(space, eve)
    accepted = {body for (body,) in mesh.rows("SELECT body FROM messages WHERE kind = 'ask'")}
    for text, outcome in outcomes.items():
        if outcome == text.upper():
            assert text.upper() not in late
        else:
            assert outcome in {"running", "queued", "unavailable"}
            assert late.count(text.upper()) == (text in accepted)
