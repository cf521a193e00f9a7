"""A plugin written with the client library: what it declares, whom it lets in, and what becomes of calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from hopline.hooks.v1 import extension_pb2 as pb
from hopline.hooks.v1.extension_pb2_grpc import ExtensionServiceStub
from hopline_client import ToolFailed
from hopline_client.plugin import Chat, Event, Plugin
from hopline_rpc.errors import HoplineError
from hopline_rpc.validation import check

SECRET = "a secret of the installation"
GOOD = (("authorization", f"Bearer {SECRET}"),)


def shop(**fields: Any) -> Plugin:
    return Plugin("shop", **{"endpoint": "127.0.0.1:0", "secret": SECRET, "token": "hpl_p_x", **fields})


@asynccontextmanager
async def running(plugin: Plugin) -> AsyncIterator[Any]:
    """Run a plugin, and yield what calls it."""
    task = asyncio.create_task(plugin.run())
    async with asyncio.timeout(20):
        await plugin.listening.wait()
    async with grpc.aio.insecure_channel(plugin.address) as channel:
        yield ExtensionServiceStub(channel)
    plugin.stop()
    await task


async def call(stub: Any, name: str, arguments: Any, **more: Any) -> pb.CallToolResponse:
    request = pb.CallToolRequest(call_id="c", name=name, arguments_json=json.dumps(arguments), **more)
    answer: pb.CallToolResponse = await stub.CallTool(request, metadata=GOOD)
    return answer


def started(event_id: str = "evt_1", **session: Any) -> pb.HandleEventRequest:
    request = pb.HandleEventRequest(event_id=event_id, attempt=1)
    request.session_started.SetInParent()
    if session:
        request.session_started.session.CopyFrom(pb.HandedSession(**session))
    return request


@pytest.mark.parametrize("metadata", [(), (("authorization", "Bearer wrong"),), (("authorization", SECRET),)])
async def test_nobody_without_the_secret_gets_anything_from_it(metadata: Any) -> None:
    plugin = shop()
    called: list[str] = []

    @plugin.tool
    def stock() -> int:
        called.append("stock")
        return 1

    async with running(plugin) as stub:
        for method, request in (
            (stub.CallTool, pb.CallToolRequest(name="stock")),
            (stub.HandleEvent, started()),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await method(request, metadata=metadata)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert not called


async def test_without_a_secret_it_lets_nobody_in() -> None:
    plugin = shop(secret="")
    async with running(plugin) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.HandleEvent(started(), metadata=(("authorization", "Bearer "),))
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_secret_in_a_file_may_be_rotated(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("old\n")
    plugin = shop(secret="", secret_file=file)
    async with running(plugin) as stub:
        await stub.HandleEvent(started(), metadata=(("authorization", "Bearer old"),))
        file.write_text("new\n")
        await stub.HandleEvent(started(), metadata=(("authorization", "Bearer new"),))
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.HandleEvent(started(), metadata=(("authorization", "Bearer old"),))


async def test_a_tool_gets_its_arguments_and_the_session_it_is_called_from() -> None:
    plugin = shop()

    @plugin.tool
    async def stock(item: str, chat: Chat, least: int = 1) -> dict[str, Any]:
        """Say how many there are."""
        assert plugin.host.session is chat
        return {"item": item, "least": least, "session": chat.session_id, "depth": chat.depth}

    handed = pb.HandedSession(session_id="ses_1", depth=2)
    async with running(plugin) as stub:
        answer = await call(stub, "stock", {"item": "pear"}, session=handed)
    assert json.loads(answer.result_json) == {"item": "pear", "least": 1, "session": "ses_1", "depth": 2}


async def test_a_call_without_a_session_can_do_nothing_in_one() -> None:
    plugin = shop()

    @plugin.tool
    async def act(chat: Chat) -> str:
        return await chat.post("hello")

    async with running(plugin) as stub:
        answer = await call(stub, "act", {})
    assert "no session was handed over" in answer.failure


async def test_what_goes_wrong_in_a_tool_is_told_apart() -> None:
    plugin = shop()

    @plugin.tool
    def stock(item: str) -> int:
        if item == "pear":
            raise ToolFailed("sold out")
        if item == "plum":
            raise HoplineError("quota_exceeded", "enough for today")
        return {}["nothing"]  # type: ignore[index] # fails as it should

    async with running(plugin) as stub:
        assert (await call(stub, "stock", {"item": "pear"})).failure == "sold out"
        assert (await call(stub, "stock", {"item": "plum"})).failure == "quota_exceeded: enough for today"
        assert "KeyError" in (await call(stub, "stock", {"item": "fig"})).failure
        assert "item" in (await call(stub, "stock", {"item": 3})).refusal
        assert "no tool" in (await call(stub, "sell", {})).failure


async def test_a_plain_function_runs_beside_the_loop_with_its_session() -> None:
    plugin = shop()

    @plugin.tool
    def where() -> str:
        return plugin.host.session.session_id

    async with running(plugin) as stub:
        found = await asyncio.gather(
            *(
                call(stub, "where", {}, session=pb.HandedSession(session_id=f"ses_{number}"))
                for number in range(5)
            )
        )
    assert [json.loads(each.result_json) for each in found] == [f"ses_{number}" for number in range(5)]


async def test_an_event_reaches_its_handlers_with_its_session_and_again_only_where_it_failed() -> None:
    plugin = shop()
    seen: list[tuple[str, str]] = []
    fails = True

    @plugin.on("session_started")
    async def heard(event: Event) -> None:
        seen.append((event.id, event.chat.session_id))
        if fails:
            raise ValueError("not now")

    @plugin.on("plugin_updated")
    def updated(event: Event) -> None:
        seen.append((event.version, event.previous_version))

    async with running(plugin) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.HandleEvent(started(session_id="ses_1"), metadata=GOOD)
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        assert "not now" not in (caught.value.details() or "")
        fails = False
        for _ in range(3):
            await stub.HandleEvent(started(session_id="ses_1"), metadata=GOOD)
        assert seen == [("evt_1", "ses_1")] * 2
        update = pb.HandleEventRequest(event_id="evt_2")
        update.plugin_updated.version, update.plugin_updated.previous_version = "2", "1"
        await stub.HandleEvent(update, metadata=GOOD)
        assert seen[-1] == ("2", "1")
        await stub.HandleEvent(pb.HandleEventRequest(event_id="evt_3"), metadata=GOOD)


async def test_an_event_that_is_told_again_meanwhile_is_handled_once() -> None:
    plugin = shop()
    go, count = asyncio.Event(), 0

    @plugin.on("session_started")
    async def heard(event: Event) -> None:
        nonlocal count
        count += 1
        await go.wait()

    async with running(plugin) as stub:
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.HandleEvent(started(), metadata=GOOD, timeout=0.2)
        again = asyncio.create_task(_await(lambda: stub.HandleEvent(started(), metadata=GOOD)))
        go.set()
        await again
    assert count == 1


async def _await(call: Callable[[], Any]) -> Any:
    return await call()


def test_its_manifest_holds_what_it_was_given_and_its_tools() -> None:
    plugin = shop(
        name="Shop",
        version="3",
        permissions=["session"],
        agents=[{"key": "librarian", "name": "Librarian"}],
        skills=[{"name": "selling", "description": "Before you sell.", "text": "Smile."}],
        commands=[{"name": "research", "description": "Look it up.", "agent_key": "librarian"}],
        endpoint="127.0.0.1:7500",
    )

    @plugin.tool
    def stock(item: str, chat: Chat) -> int:
        """Say how many there are."""
        return 1

    manifest = plugin.manifest()
    check(manifest)
    assert (manifest.key, manifest.name, manifest.version) == ("shop", "Shop", "3")
    assert manifest.endpoint == "127.0.0.1:7500"
    (tool,) = manifest.tools
    schema = json.loads(tool.input_schema_json)
    assert (tool.name, tool.description) == ("stock", "Say how many there are.")
    assert list(schema["properties"]) == ["item"]


def test_one_that_serves_nothing_has_no_endpoint() -> None:
    assert shop().manifest().endpoint == ""


async def test_plain_text_over_a_network_is_refused() -> None:
    plugin = shop(endpoint="0.0.0.0:0")
    with pytest.raises(HoplineError) as caught:
        await plugin.run()
    assert caught.value.reason == "failed_precondition"


def test_what_cannot_be_is_said_when_it_is_declared() -> None:
    plugin = shop()
    plugin.tool(lambda: 1, name="stock")
    with pytest.raises(ValueError, match="two tools"):
        plugin.tool(lambda: 2, name="stock")
    with pytest.raises(ValueError, match="no event"):
        plugin.on("sunrise")  # type: ignore[arg-type] # as a newcomer might
