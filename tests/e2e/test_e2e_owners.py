"""Questions to owners over the real surfaces: MCP, the command line, attached commands, and kills."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import sys
import uuid
from typing import Any

import pytest
from aiohttp import web
from hopline.registry.v1 import agent_pb2
from hopline_client import Escalation, HoplineError

from tests.support.hooks import served
from tests.support.mesh_process import SECONDS, MeshProcess, Processes, Space, call, refused, until

MODES = ("legacy", "2026-07-28")
# A command for a turn: it asks its owner through `hopline mcp` and prints what comes back.
ASKING = """
import json, subprocess
call = {"name": "ask_owner", "arguments": {"question": "May I?", "options": ["yes", "no"]}}
request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
done = subprocess.run(["hopline", "mcp"], input=json.dumps(request), capture_output=True, text=True)
print(json.loads(done.stdout)["result"]["structuredContent"]["answer"])
"""


async def pending(mesh: MeshProcess, space: Space) -> dict[str, Any]:
    """Wait for the one pending question of the workspace, as its owner sees it on the command line."""

    async def one() -> Any:
        listed = await mesh.cli("escalations", "--workspace", space.name)
        return listed["escalations"][0] if listed["escalations"] else None

    found: dict[str, Any] = await until(one, "a question")
    return found


@pytest.mark.parametrize("mode", MODES)
async def test_an_agent_asks_by_mcp_and_its_owner_answers_on_the_command_line(
    mesh: MeshProcess, space: Space, mode: str
) -> None:
    (ada,) = await space.agents("ada")
    async with space.mcp_over_http(ada, mode) as client:
        asking = asyncio.create_task(call(client, "ask_owner", question="Deploy 1.2?", options=["yes", "no"]))
        asked = await pending(mesh, space)
        assert (asked["question"], asked["options"]) == ("Deploy 1.2?", ["yes", "no"])
        assert asked["status"] == "pending"
        said = await mesh.cli("answer", asked["id"], "yes", "--workspace", space.name)
        assert said["status"] == "answered"
        found = await asking
    assert (found["escalation_id"], found["status"], found["answer"]) == (asked["id"], "answered", "yes")
    assert (await mesh.cli("escalations", "--workspace", space.name))["escalations"] == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_receive_only_agent_is_asked_asks_its_owner_and_answers(
    mesh: MeshProcess, space: Space, mode: str
) -> None:
    (ada,) = await space.agents("ada")
    box = await space.agent("box", kind=agent_pb2.AGENT_KIND_RECEIVE_ONLY)
    asked = await space.client(ada).ask("box", "May I?", wait_seconds=0)
    async with space.mcp_over_http(box, mode) as client:
        offered = [tool.name for tool in (await client.list_tools()).tools]
        assert offered == [
            "whoami",
            "read_inbox",
            "reply",
            "done",
            "list_threads",
            "read_thread",
            "ask_owner",
        ]
        error, _ = await refused(client, "ask", agent="ada", text="and you?")
        assert error["code"] == "receive_only"
        [message] = (await call(client, "read_inbox"))["messages"]
        question = await call(client, "ask_owner", question="May ada?", wait_seconds=0)
        assert question["status"] == "pending"
        assert (
            await space.client(ada).check(turn_id=asked.turn_id, wait_seconds=0)
        ).status == "waiting_for_owner"
        await mesh.cli("answer", question["escalation_id"], "she may", "--workspace", space.name)
        again = await call(client, "ask_owner", question="May ada?", wait_seconds=0)
        [told] = (await call(client, "read_inbox"))["messages"]
        assert (told["body"], told["escalation_id"]) == ("she may", question["escalation_id"])
        await call(client, "reply", message_id=message["id"], text=told["body"])
    assert again["escalation_id"] != question["escalation_id"]
    assert (await space.client(ada).check(turn_id=asked.turn_id)).text == "she may"


async def test_an_attached_command_asks_its_owner_while_its_peer_waits(
    mesh: MeshProcess, space: Space
) -> None:
    ada, bob = await space.agents("ada", "bob")
    await space.attach(bob, sys.executable, "-c", ASKING)
    asking = asyncio.create_task(space.client(ada).ask("bob", "Do it."))
    question = await pending(mesh, space)
    turn = await space.client(ada).check(turn_id=question["turn_id"], wait_seconds=0)
    assert turn.status == "waiting_for_owner"
    await mesh.cli("answer", question["id"], "yes", "--workspace", space.name)
    assert (await asking).text == "yes"


async def test_a_person_is_told_in_words_what_cannot_be(mesh: MeshProcess, space: Space) -> None:
    (ada,) = await space.agents("ada")
    asked = await space.client(ada).ask_owner("Which?", options=["a", "b"], wait_seconds=0)

    async def complaint(*words: str) -> Any:
        done = await asyncio.to_thread(mesh.hopline, *words, "--workspace", space.name, "--json")
        assert done.returncode == 1
        return json.loads(done.stderr)["error"]

    assert (await complaint("answer", asked.id, "c"))["code"] == "invalid_argument"
    assert (await complaint("answer", "esc_0", "a"))["code"] == "not_found"
    shown = await asyncio.to_thread(mesh.hopline, "escalations", "--workspace", space.name)
    assert "ada asks admin · pending" in shown.stdout
    assert "options: a | b" in shown.stdout
    await mesh.cli("withdraw", asked.id, "not now", "--workspace", space.name)
    assert (await complaint("answer", asked.id, "a"))["code"] == "failed_precondition"
    everything = await mesh.cli("escalations", "--all", "--agent", "ada", "--workspace", space.name)
    assert [each["status"] for each in everything["escalations"]] == ["withdrawn"]


@pytest.mark.parametrize("point", ["escalation.asked", "escalation.ended"])
async def test_a_kill_around_a_question_or_its_answer_loses_and_doubles_nothing(
    started: Processes, point: str
) -> None:
    file = started.folder / "faults"
    mesh = MeshProcess(started, env={"HOPLINE_FAULTS": str(file)})
    mesh.start()
    async with mesh.space() as space:
        (ada,) = await space.agents("ada")
        request_id = str(uuid.uuid4())

        async def ask() -> Escalation:
            async def asked() -> Any:
                try:
                    return await space.client(ada).ask_owner("Go?", request_id=request_id)
                except HoplineError as error:
                    if not error.retryable:
                        raise
                    return None

            found: Escalation = await until(asked, "the answer")
            return found

        async def answered() -> bool:
            listed = await asyncio.to_thread(
                mesh.hopline, "escalations", "--all", "--json", "--workspace", space.name
            )
            rows = json.loads(listed.stdout)["escalations"] if listed.returncode == 0 else []
            if not rows:
                return False
            words = ("answer", rows[0]["id"], "yes", "--workspace", space.name)
            return (await asyncio.to_thread(mesh.hopline, *words)).returncode == 0

        file.write_text(point)
        asking = asyncio.create_task(ask())
        if point == "escalation.ended":
            await until(lambda: mesh.rows("SELECT id FROM escalations"), "the question")
            await asyncio.to_thread(mesh.hopline, "answer", *_only(mesh), "yes", "--workspace", space.name)
        await until(lambda: not mesh.up.is_running, f"the death at {point}")
        file.unlink()
        await mesh.restart()
        await until(answered, "the acceptance of the answer")
        found = await asking
        assert (found.status, found.answer) == ("answered", "yes")
        assert mesh.rows("SELECT kind, body FROM messages ORDER BY ordinal") == [
            ("question", "Go?"),
            ("owner_answer", "yes"),
        ]
        assert mesh.rows("SELECT state FROM escalations") == [("answered",)]
    assert mesh.complaints() == []


def _only(mesh: MeshProcess) -> tuple[str]:
    [(identifier,)] = mesh.rows("SELECT id FROM escalations")
    return (identifier,)


async def test_an_owner_with_a_webhook_is_told_under_a_signature(mesh: MeshProcess, space: Space) -> None:
    (ada,) = await space.agents("ada")
    heard: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()

    async def hook(request: web.Request) -> web.Response:
        heard.put_nowait((request.headers["Hopline-Signature"], await request.read()))
        return web.Response(status=204)

    secret = mesh.processes.folder / "hook.secret"
    secret.write_text("a secret of sixteen\n")
    async with served(hook) as url:
        words = ("user", "set", "admin", "--webhook", url, "--webhook-secret-file", str(secret))
        changed = await mesh.cli(*words, "--workspace", space.name)
        assert changed["has_webhook"]
        asked = await space.client(ada).ask_owner("Go?", wait_seconds=0)
        signature, body = await asyncio.wait_for(heard.get(), SECONDS)
    at = signature.partition(",")[0].removeprefix("t=")
    expected = hmac.new(b"a secret of sixteen", f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    assert signature == f"t={at},v1={expected}"
    assert json.loads(body)["escalation"]["id"] == asked.id
    listed = await asyncio.to_thread(mesh.hopline, "user", "list", "--json", "--workspace", space.name)
    assert "secret of sixteen" not in listed.stdout + str(await space.events())
    assert url not in listed.stdout + str(await space.events())
