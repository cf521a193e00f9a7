"""The mesh as four processes: `hopline serve` for each service, their tokens made by the command line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
from hopline.relay.v1.webhook_pb2 import AddWebhookRequest
from hopline_rpc import signatures

from tests.support.mesh_process import HOPLINE, Held, Processes, Space, shout, until
from tests.support.served_mesh import SERVICES, ServedMesh


@pytest.fixture
def served(started: Processes) -> Iterator[ServedMesh]:
    mesh = ServedMesh(started)
    mesh.start()
    yield mesh
    assert mesh.complaints() == []


@pytest.fixture
async def served_space(served: ServedMesh) -> AsyncIterator[Space]:
    async with served.space() as found:
        yield found


async def test_an_ask_goes_through_all_four_and_its_trace_is_one(
    served: ServedMesh, served_space: Space
) -> None:
    asker, worker = await served_space.agents("asker", "worker")
    await served_space.work(worker, shout)
    async with served_space.mcp_over_stdio(asker) as client:
        answer = await client.call_tool("ask", {"agent": "worker", "text": "hello"})
    found = answer.structured_content or {}
    assert found["reply"] == "HELLO"
    tree = await served.trace(found["turn_id"], "tools/call ask", "invoke_agent worker")
    assert {span["service"] for span in tree["spans"]} >= {"gateway", "relay"}


async def test_a_second_gateway_serves_one_agent_alone_by_the_same_services(
    served: ServedMesh, served_space: Space
) -> None:
    asker, worker = await served_space.agents("asker", "worker")
    await served_space.work(worker, shout)
    env = {f"HOPLINE_{name.upper()}": served.endpoints[name] for name in SERVICES[:3]}
    env["HOPLINE_SERVICE_TOKEN_FILE"] = str(served.token_of("gateway"))
    words = ("serve", "gateway", "--single", "worker", "--bind", "127.0.0.1:0")
    single = served.processes.start("single", HOPLINE, *words, env=env)

    async def address() -> str:
        assert single.is_running, single.said
        return single.said.partition("the gateway listens on ")[2].strip()

    for url in (
        f"{await until(address, 'the second gateway')}/v1",
        f"{served.endpoints['gateway']}/worker/v1",
    ):
        headers = {"Authorization": f"Bearer {asker.token}"}
        async with aiohttp.ClientSession(headers=headers) as http:

            async def answered(http: aiohttp.ClientSession = http, url: str = url) -> str:
                async with http.post(f"{url}/sessions", json={"message": "hello"}) as answer:
                    return str((await answer.json()).get("reply", ""))  # it lets nobody in before it is ready

            assert await until(answered, "an answer") == "HELLO"


async def test_a_signed_delivery_goes_through_with_the_gateways_own_credential(
    served: ServedMesh, served_space: Space
) -> None:
    (worker,) = await served_space.agents("worker")
    await served_space.work(worker, shout)
    request = AddWebhookRequest(agent="worker", name="orders")
    secret = (await served_space.admin.webhooks.AddWebhook(request)).secret
    body = b"two of them"
    headers = {signatures.HEADER: signatures.sign(secret, body, int(time.time()))}
    url = f"{served.endpoints['gateway']}/worker/v1/webhooks/orders?wait=50"
    async with aiohttp.ClientSession() as http:
        for _ in range(2):
            async with http.post(url, data=body, headers=headers) as answer:
                assert answer.status == 200
                found = await answer.json()
                assert (found["status"], found["reply"]) == ("completed", "TWO OF THEM")
    assert len(await served_space.turns()) == 1


async def test_each_service_may_die_and_come_back(served: ServedMesh, served_space: Space) -> None:
    asker, worker = await served_space.agents("asker", "worker")
    held = Held()
    await served_space.work(worker, held)
    client = served_space.client(asker)
    for count, name in enumerate(SERVICES, 1):
        asked = asyncio.create_task(client.ask("worker", f"question {count}"))
        await held.begun(count)
        served.running[name].kill()
        await asyncio.to_thread(served.serve, name)
        await asyncio.to_thread(served.wait_until_ready)
        held.go_on.set()
        answer = await asked
        assert answer.text.startswith(f"question {count}, answered")
        held.go_on.clear()


async def test_the_last_to_leave_takes_the_addresses_away(served: ServedMesh) -> None:
    assert served.endpoints["pid"] is None
    for left, name in enumerate(reversed(SERVICES), 1):
        process = served.running[name]
        process.terminate()
        assert await process.ended() == 0
        if left < len(SERVICES):
            assert served.endpoints[name] is None
        assert '"level": "warning"' not in process.said
    await until(lambda: not served.endpoints_file.exists(), "the end of endpoints.json")
