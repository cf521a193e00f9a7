"""How the relay calls a plugin's endpoint, and how it tells apart what goes wrong."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from hopline.hooks.v1 import extension_pb2 as pb
from hopline.hooks.v1.extension_pb2_grpc import ExtensionServiceStub
from hopline_relay.plugins import calling
from hopline_relay.plugins.calling import Callee, CallFailed, PluginCalls
from hopline_rpc.clock import SystemClock
from hopline_rpc.errors import HoplineError

from tests.support.extension_server import SECRET, ExtensionServer, RefusalError, extension_server


@dataclass
class Plugin:
    """What is known of a plugin."""

    endpoint: str
    id: str = "plg_1"
    workspace_id: str = "ws_1"


class Secrets:
    """The registry, as far as it is asked."""

    def __init__(self) -> None:
        self.secret = SECRET
        self.asked = 0
        self.error: HoplineError | None = None

    async def __call__(self, plugin: Callee) -> str:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.secret


@pytest.fixture
async def server() -> AsyncIterator[ExtensionServer]:
    async with extension_server() as found:
        yield found


@pytest.fixture
def secrets() -> Secrets:
    return Secrets()


@pytest.fixture
async def calls(secrets: Secrets) -> AsyncIterator[PluginCalls]:
    made = PluginCalls(secrets, SystemClock(), loopback=True, private=False)
    yield made
    await made.close()


async def run(calls: PluginCalls, plugin: Plugin, *, seconds: float = 20.0, lane: str = "tools") -> Any:
    request = pb.CallToolRequest(call_id="c", name="stock", arguments_json="{}")
    return await calls.call(plugin, ExtensionServiceStub, "CallTool", request, seconds=seconds, lane=lane)


async def failed(calls: PluginCalls, plugin: Plugin, **more: Any) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await run(calls, plugin, **more)
    return caught.value


async def test_a_call_carries_the_secret_of_the_installation_and_the_channel_is_kept(
    calls: PluginCalls, server: ExtensionServer, secrets: Secrets
) -> None:
    for _ in range(3):
        assert (await run(calls, Plugin(server.address))).result_json == '"done"'
    assert len(server.calls) == 3
    assert secrets.asked == 1


async def test_a_secret_that_was_rotated_is_asked_for_again_once(
    calls: PluginCalls, server: ExtensionServer, secrets: Secrets
) -> None:
    await run(calls, Plugin(server.address))
    server.secret = secrets.secret = "another"
    assert (await run(calls, Plugin(server.address))).result_json == '"done"'
    assert secrets.asked == 2
    server.secret = "nobody knows"
    error = await failed(calls, Plugin(server.address))
    assert (error.kind, error.sent) == ("failed", False)
    assert secrets.asked == 3


async def test_nothing_that_listens_is_unreachable_and_was_not_sent(calls: PluginCalls) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = await failed(calls, Plugin(f"127.0.0.1:{taken.getsockname()[1]}"))
    assert (error.kind, error.sent) == ("unreachable", False)
    assert "127.0.0.1" not in error.words


@pytest.mark.parametrize(
    "endpoint", ["localhost", "127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:x", ":80", ""]
)
async def test_what_is_no_address_is_unreachable(calls: PluginCalls, endpoint: str) -> None:
    error = await failed(calls, Plugin(endpoint))
    assert (error.kind, error.sent) == ("unreachable", False)


async def test_loopback_is_called_only_where_one_process_is_the_whole_mesh(
    server: ExtensionServer, secrets: Secrets
) -> None:
    calls = PluginCalls(secrets, SystemClock(), loopback=False, private=False)
    error = await failed(calls, Plugin(server.address))
    assert (error.kind, error.words) == ("unreachable", "its address may not be called")
    assert not server.calls
    await calls.close()


async def test_a_secret_that_the_registry_does_not_give_is_no_call(
    calls: PluginCalls, server: ExtensionServer, secrets: Secrets
) -> None:
    secrets.error = HoplineError("not_found", "there is no plugin")
    error = await failed(calls, Plugin(server.address))
    assert (error.kind, error.sent) == ("unreachable", False)
    assert not server.calls
    secrets.error = None
    await run(calls, Plugin(server.address))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, "unimplemented"),
        (grpc.StatusCode.INVALID_ARGUMENT, "invalid"),
        (grpc.StatusCode.INTERNAL, "failed"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "failed"),
        (grpc.StatusCode.UNAVAILABLE, "unreachable"),
    ],
)
async def test_what_a_plugin_answers_is_told_apart(
    calls: PluginCalls, server: ExtensionServer, code: grpc.StatusCode, kind: str
) -> None:
    async def refuse(request: pb.CallToolRequest) -> pb.CallToolResponse:
        raise RefusalError(code, "no\0pe")

    server.on_call = refuse
    error = await failed(calls, Plugin(server.address))
    assert (error.kind, error.sent) == (kind, True)
    assert "\0" not in error.words


async def test_one_that_does_not_answer_is_late_and_is_told_to_stop(
    calls: PluginCalls, server: ExtensionServer
) -> None:
    async def hang(request: pb.CallToolRequest) -> pb.CallToolResponse:
        await asyncio.Event().wait()
        raise AssertionError

    server.on_call = hang
    error = await failed(calls, Plugin(server.address), seconds=0.2)
    assert (error.kind, error.sent) == ("late", True)


async def test_a_call_that_is_cancelled_here_is_cancelled_there(
    calls: PluginCalls, server: ExtensionServer
) -> None:
    begun = asyncio.Event()
    ended = asyncio.Event()

    async def hang(request: pb.CallToolRequest) -> pb.CallToolResponse:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    server.on_call = hang
    running = asyncio.create_task(run(calls, Plugin(server.address)))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with asyncio.timeout(20):
        await ended.wait()


async def test_a_lane_that_is_full_makes_its_calls_wait_within_their_time_and_no_others(
    calls: PluginCalls, server: ExtensionServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calling, "LANES", {"tools": 2, "hooks": 2})
    go = asyncio.Event()

    async def wait(request: pb.CallToolRequest) -> pb.CallToolResponse:
        await go.wait()
        return pb.CallToolResponse(result_json="1")

    server.on_call = wait
    running = [asyncio.create_task(run(calls, Plugin(server.address))) for _ in range(3)]
    await server.called(2)
    error = await failed(calls, Plugin(server.address), seconds=0.1)
    assert (error.kind, error.sent) == ("late", False)
    assert len(server.calls) == 2
    other = asyncio.create_task(run(calls, Plugin(server.address), lane="hooks"))
    await server.called(3)
    go.set()
    assert [each.result_json for each in await asyncio.gather(*running, other)] == ["1"] * 4


async def test_an_answer_beyond_its_size_is_a_failure(calls: PluginCalls, server: ExtensionServer) -> None:
    async def much(request: pb.CallToolRequest) -> pb.CallToolResponse:
        return pb.CallToolResponse(result_json="x" * (calling.MAX_BYTES + 1))

    server.on_call = much
    assert (await failed(calls, Plugin(server.address))).kind == "failed"


async def test_a_plugin_that_has_moved_is_found_at_its_new_endpoint(
    calls: PluginCalls, server: ExtensionServer
) -> None:
    await run(calls, Plugin(server.address))
    async with extension_server() as other:
        await run(calls, Plugin(other.address))
        assert (len(server.calls), len(other.calls)) == (1, 1)


async def test_one_that_is_back_is_reached_at_once_however_long_it_was_away(
    calls: PluginCalls, secrets: Secrets
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    for _ in range(5):
        assert (await failed(calls, Plugin(address))).kind == "unreachable"
    for _ in range(2):
        async with extension_server(address) as server:
            await run(calls, Plugin(address))
            assert len(server.calls) == 1
        # Whether it was sent is not known where the connection broke under it.
        assert (await failed(calls, Plugin(address))).kind == "unreachable"


async def test_one_that_is_forgotten_is_dialled_anew_and_what_runs_ends(
    calls: PluginCalls, server: ExtensionServer, secrets: Secrets
) -> None:
    go = asyncio.Event()

    async def wait(request: pb.CallToolRequest) -> pb.CallToolResponse:
        await go.wait()
        return pb.CallToolResponse(result_json="1")

    server.on_call = wait
    running = asyncio.create_task(run(calls, Plugin(server.address)))
    await server.called(1)
    calls.forget("plg_1")
    go.set()
    assert (await running).result_json == "1"
    await run(calls, Plugin(server.address))
    assert secrets.asked == 2
