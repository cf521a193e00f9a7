"""A server's ports, health, TLS and standard services."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hopline_rpc.channels import bearer, dial
from hopline_rpc.errors import HoplineError
from hopline_rpc.serving import PortInUseError
from hopline_rpc.tls import TlsSettings, host_of, is_local

from tests.rpc.conftest import EchoServicer, World, within
from tests.support.certificates import Authority

SERVICE = "hopline.test.v1.EchoService"


async def status(channel: grpc.aio.Channel, service: str = "") -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    return int(answer.status)


NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVING = health_pb2.HealthCheckResponse.SERVING


# --- ports ---------------------------------------------------------------------------------------


async def test_port_zero_becomes_a_real_port(world: World) -> None:
    address = await world.server().start("127.0.0.1:0")
    assert int(address.rpartition(":")[2]) > 0
    assert await world.call(address) == "hi"


async def test_a_port_in_use_is_one_clear_line(world: World) -> None:
    address = await world.server().start("127.0.0.1:0")
    with pytest.raises(PortInUseError) as caught:
        await world.server().start(address)
    assert caught.value.message == (f"{address} is in use by another process; stop it or choose another port")


@pytest.mark.parametrize("bind", ["127.0.0.1:x", "127.0.0.1:99999", "127.0.0.1"])
async def test_a_malformed_address_is_refused(world: World, bind: str) -> None:
    with pytest.raises(HoplineError, match="cannot listen"):
        await world.server().start(bind)


async def test_a_unix_socket_is_for_its_owner_only(world: World, tmp_path: Path) -> None:
    path = tmp_path / "echo.sock"
    address = await world.server().start(f"unix:{path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert await world.call(address) == "hi"


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0"])
async def test_an_address_others_can_reach_needs_tls_or_insecure(world: World, bind: str) -> None:
    with pytest.raises(HoplineError, match="--insecure") as caught:
        await world.server().start(bind)
    assert caught.value.reason == "failed_precondition"


async def test_insecure_says_that_plain_text_is_meant(world: World) -> None:
    address = await world.server(insecure=True).start("0.0.0.0:0")
    assert await world.call(f"127.0.0.1:{address.rpartition(':')[2]}") == "hi"


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("unix:/tmp/x", True),
        ("unix-abstract:x", True),
        ("dns:///localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("localhost.example.com:1", False),
        (":1", False),
    ],
)
def test_only_loopback_and_unix_sockets_are_local(address: str, local: bool) -> None:
    assert is_local(address) is local


def test_the_host_of_an_address() -> None:
    assert [host_of(each) for each in ("a:1", "[::1]:2", "dns:///b:3", "c")] == ["a", "::1", "b", "c"]


def test_dialling_in_plain_text_over_a_network_is_refused() -> None:
    with pytest.raises(HoplineError, match="--insecure"):
        dial("10.0.0.1:7401")


# --- health --------------------------------------------------------------------------------------


async def test_health_says_serving_once_the_service_is_ready(world: World) -> None:
    world.is_ready = False
    async with dial(await world.server().start("127.0.0.1:0")) as channel:
        assert await status(channel) == NOT_SERVING
        world.is_ready = True
        await world.clock.advance(1)
        assert await status(channel) == SERVING
        assert await status(channel, SERVICE) == SERVING


async def test_health_follows_the_readiness_check(world: World) -> None:
    async with dial(await world.server().start("127.0.0.1:0")) as channel:
        await world.clock.advance(1)
        assert await status(channel) == SERVING
        world.is_ready = False
        await world.clock.advance(6)
        assert await status(channel) == NOT_SERVING


async def test_a_readiness_check_that_raises_counts_as_not_ready(world: World) -> None:
    async def broken() -> bool:
        raise RuntimeError("the store is gone")

    world.ready = broken  # type: ignore[method-assign]
    async with dial(await world.server().start("127.0.0.1:0")) as channel:
        await world.clock.advance(1)
        assert await status(channel) == NOT_SERVING


async def test_a_drain_says_not_serving_before_it_refuses_anyone(world: World) -> None:
    server = world.server()
    address = await server.start("127.0.0.1:0")
    async with dial(address) as channel:
        await world.clock.advance(1)
        draining = asyncio.create_task(server.drain(5))
        await world.clock.settle()
        assert await status(channel) == NOT_SERVING
        assert await world.call(address) == "hi"
        await world.clock.advance(3)
        await within(draining)
    with pytest.raises(HoplineError):
        await world.call(address)


async def test_a_client_that_watches_health_does_not_hold_up_a_drain(world: World) -> None:
    server = world.server()
    async with dial(await server.start("127.0.0.1:0")) as channel:
        watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert await within(watching.read())
        draining = asyncio.create_task(server.drain(3600))
        await world.clock.advance(3)
        await within(draining)


# --- standard services ---------------------------------------------------------------------------


async def test_reflection_lists_the_services_to_anyone(world: World) -> None:
    async with dial(await world.server().start("127.0.0.1:0")) as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer = await within(call.read())
        call.cancel()
    names = {service.name for service in answer.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= names


async def test_channelz_is_for_services(world: World) -> None:
    address = await world.server().start("127.0.0.1:0")
    for kind, allowed in (("agent", False), ("user", False), ("service", True)):
        credential = bearer(world.registry.assertion(kind=kind))  # type: ignore[arg-type]
        async with dial(address, credentials=credential) as channel:
            stub = channelz_pb2_grpc.ChannelzStub(channel)
            if allowed:
                assert await stub.GetServers(channelz_pb2.GetServersRequest())
            else:
                with pytest.raises(HoplineError) as caught:
                    await stub.GetServers(channelz_pb2.GetServersRequest())
                assert caught.value.reason == "permission_denied"


async def test_a_message_over_8_mib_is_refused_as_too_large(world: World) -> None:
    address = await world.server().start("127.0.0.1:0")
    async with dial(address, credentials=bearer(world.registry.assertion())) as channel:
        stub = world.contract.grpc.EchoServiceStub(channel)
        fits = await within(stub.Echo(world.contract.note(raw=b"x" * (7 * 1024 * 1024))))
        assert len(fits.raw) == 7 * 1024 * 1024
        with pytest.raises(HoplineError) as caught:
            await within(stub.Echo(world.contract.note(raw=b"x" * (9 * 1024 * 1024))))
    assert caught.value.reason == "invalid_argument"
    assert "larger" in caught.value.message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x0a\x03\xed\xa0\x80", "not valid UTF-8 (a lone surrogate, perhaps)"),
        (b"\x0a\x7f\x00", "no message of the type"),
    ],
)
@pytest.mark.parametrize("shape", ["unary_unary", "unary_stream", "stream_unary", "stream_stream"])
async def test_bytes_that_are_no_request_are_refused_in_our_words(
    world: World, shape: str, data: bytes, words: str
) -> None:
    method = {
        "unary_unary": "Echo",
        "unary_stream": "Watch",
        "stream_unary": "Collect",
        "stream_stream": "Chat",
    }[shape]
    address = await world.server().start("127.0.0.1:0")
    service = world.contract.pb2.DESCRIPTOR.services_by_name["EchoService"].full_name
    async with dial(address, credentials=bearer(world.registry.assertion())) as channel:
        call = getattr(channel, shape)(
            f"/{service}/{method}", request_serializer=None, response_deserializer=None
        )
        request = _each(data) if shape.startswith("stream") else data
        with pytest.raises(HoplineError) as caught:
            await within(_all(call(request)) if shape.endswith("stream") else call(request))
    assert caught.value.reason == "invalid_argument"
    assert words in caught.value.message


async def _each(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _all(responses: AsyncIterator[Any]) -> list[Any]:
    return [response async for response in responses]


async def test_servicers_cannot_be_added_to_a_started_server(world: World) -> None:
    server = world.server()
    await server.start("127.0.0.1:0")
    with pytest.raises(RuntimeError):
        server.add(world.contract.grpc.add_EchoServiceServicer_to_server, EchoServicer())
    with pytest.raises(RuntimeError):
        await server.start("127.0.0.1:0")


@pytest.mark.parametrize("method", ["Watch", "Pour"])
async def test_a_client_that_does_not_read_is_sent_away_once_it_reads(world: World, method: str) -> None:
    """The send window is full and a message under way when the call is ended."""
    ended = asyncio.Event()

    async def watch(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            for _ in range(1000):
                yield world.contract.note(raw=b"x" * 100_000)
        finally:
            ended.set()

    async def pour(request: Any, context: Any) -> None:
        async for note in watch(request, context):
            await context.write(note)

    servicer = EchoServicer()
    servicer.watch, servicer.pour = watch, pour
    server = world.server(servicer=servicer)
    address = await server.start("127.0.0.1:0")
    async with dial(address, credentials=bearer(world.registry.assertion())) as channel:
        stub = world.contract.grpc.EchoServiceStub(channel)
        call = getattr(stub, method)(world.contract.note())
        await call.read()
        await world.clock.settle(500)
        assert server.live.end(lambda _: True, HoplineError("unauthenticated", "revoked")) == 1
        await within(ended.wait())

        async def read_on() -> None:
            while await call.read() is not grpc.aio.EOF:
                pass

        with pytest.raises(HoplineError) as caught:
            await within(read_on())
    assert caught.value.message == "revoked"


# --- TLS -----------------------------------------------------------------------------------------


async def test_tls_protects_a_port(world: World, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    cert, key = authority.issue("server")
    address = await world.server(tls=TlsSettings(cert, key)).start("127.0.0.1:0")
    assert await world.call(address, tls=TlsSettings(ca=authority.ca)) == "hi"
    with pytest.raises(HoplineError) as caught:
        await world.call(address)
    assert caught.value.reason in {"unavailable", "deadline_exceeded"}


async def test_with_a_ca_a_server_takes_only_clients_it_has_signed(world: World, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    cert, key = authority.issue("server")
    address = await world.server(tls=TlsSettings(cert, key, authority.ca)).start("127.0.0.1:0")
    client, stranger = authority.issue("client"), other.issue("stranger")
    assert await world.call(address, tls=TlsSettings(*client, authority.ca)) == "hi"
    for tls in (TlsSettings(ca=authority.ca), TlsSettings(*stranger, authority.ca)):
        with pytest.raises(HoplineError) as caught:
            await world.call(address, tls=tls)
        assert caught.value.reason in {"unavailable", "deadline_exceeded"}


async def test_a_missing_tls_file_is_named(world: World, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    with pytest.raises(HoplineError, match=r"missing\.pem"):
        await world.server(tls=TlsSettings(missing, missing)).start("127.0.0.1:0")
    with pytest.raises(HoplineError, match="both a certificate and its key"):
        await world.server(tls=TlsSettings(ca=missing)).start("127.0.0.1:0")


async def test_tls_files_that_do_not_fit_are_named_as_the_cause(world: World, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    with pytest.raises(HoplineError, match=r"nonsense\.pem does not hold certificates in PEM"):
        await world.server(tls=TlsSettings(nonsense, nonsense)).start("127.0.0.1:0")
