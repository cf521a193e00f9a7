"""The port: taken, slow, unsafe."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hopline_gateway.app import SERVICE
from hopline_gateway.settings import GatewaySettings
from hopline_rpc.errors import HoplineError
from hopline_rpc.service import HttpService, Service
from hopline_web.listener import open_socket

from tests.gateway.builders import Rig, running


def test_the_service_is_what_a_runner_expects(rig: Rig) -> None:
    service: Service = SERVICE
    assert (service.name, service.default_port) == ("gateway", 7400)
    assert isinstance(rig.gateway, HttpService)
    assert rig.gateway.name == "gateway"


async def test_a_port_in_use_is_one_clear_line(rig: Rig) -> None:
    bind = rig.url.removeprefix("http://")
    async with running() as other:
        with pytest.raises(HoplineError) as caught:
            await other.gateway.start(bind)
    assert caught.value.message == f"{bind} is in use by another process; stop it or choose another port"


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", ":7400"])
async def test_an_address_that_is_none_is_named(rig: Rig, bind: str) -> None:
    with pytest.raises(HoplineError, match=r"not host:port|reachable from other machines"):
        await rig.gateway.start(bind)


def test_answers_are_not_held_back_by_nagles_algorithm() -> None:
    """Asyncio sets TCP_NODELAY only on sockets that name their protocol."""
    with open_socket("127.0.0.1:0") as opened:
        assert opened.proto == socket.IPPROTO_TCP


async def test_plain_text_over_a_network_has_to_be_asked_for(rig: Rig) -> None:
    with pytest.raises(HoplineError, match="--insecure"):
        await rig.gateway.start("0.0.0.0:0")


async def test_a_closed_gateway_can_be_closed_again(rig: Rig) -> None:
    await rig.gateway.drain()
    await rig.gateway.close()
    await rig.gateway.close()


async def closed_after(reader: asyncio.StreamReader) -> bytes:
    return await asyncio.wait_for(reader.read(), 10)


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
async def test_a_client_that_does_not_finish_its_head_is_cut_off(sent: bytes) -> None:
    async with running({"head_seconds": "0.05"}) as rig:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(rig.url.rpartition(":")[2]))
        writer.write(sent)
        assert await closed_after(reader) == b""
        writer.close()


async def test_a_further_request_on_a_connection_has_the_same_limit() -> None:
    async with running({"head_seconds": "0.2"}) as rig:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(rig.url.rpartition(":")[2]))
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /healthz HTTP/1.1\r\nHost: ")
        answered = await closed_after(reader)
        writer.close()
    assert answered.count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize(
    "url", ["mesh.example.org", "ftp://mesh.example.org", "https://", "https://m.example/mcp"]
)
def test_a_public_url_that_is_none_stops_the_start(url: str) -> None:
    with pytest.raises(HoplineError, match="HOPLINE_PUBLIC_URL"):
        GatewaySettings.load({"public_url": url})


def test_further_hosts_and_origins_are_listed_by_commas() -> None:
    settings = GatewaySettings.load({"allowed_hosts": "a:*, b", "allowed_origins": "https://a"})
    assert settings.hosts("127.0.0.1:7400")[-2:] == ["a:*", "b"]
    assert "[::1]:*" in settings.hosts("[::1]:7400")
    assert settings.origins()[-1] == "https://a"


async def test_an_ipv6_loopback_is_served_where_the_machine_has_one() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return  # nothing to serve on
    async with running(bind="[::1]:0") as rig, rig.http() as client:
        assert rig.url.startswith("http://[::1]:")
        assert (await client.get("/healthz")).text == "ok"
