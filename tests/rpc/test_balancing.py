"""Targets with several addresses: whose turn it is, and which of them count as this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from hopline_client.dialing import dialer
from hopline_rpc.channels import dial
from hopline_rpc.errors import HoplineError
from hopline_rpc.tls import is_local

_METHOD = "/test.Named/Name"
_Dial = Callable[[str], Any]


async def _serve(name: bytes) -> tuple[grpc.aio.Server, int]:
    async def answer(request: bytes, context: Any) -> bytes:
        return name

    handlers: dict[str, Any] = {"Name": grpc.unary_unary_rpc_method_handler(answer)}
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Named", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


@pytest.mark.parametrize("opening", [dial, dialer()], ids=["service", "client"])
async def test_calls_go_to_each_address_in_turn_and_past_one_that_has_left(opening: _Dial) -> None:
    one, first = await _serve(b"one")
    two, second = await _serve(b"two")
    channel = opening(f"ipv4:127.0.0.1:{first},127.0.0.1:{second}")
    try:
        name = channel.unary_unary(_METHOD)
        heard: Counter[bytes] = Counter()
        for _ in range(1_000):  # until both are connected
            heard[await name(b"", timeout=10, wait_for_ready=True)] += 1
            if len(heard) == 2:
                break
        shares = Counter([await name(b"", timeout=10) for _ in range(20)])
        assert shares == {b"one": 10, b"two": 10}

        await one.stop(None)
        left = [await name(b"", timeout=10, wait_for_ready=True) for _ in range(10)]
        assert left == [b"two"] * 10
    finally:
        await channel.close()
        await one.stop(None)
        await two.stop(None)


@pytest.mark.parametrize(
    ("target", "local"),
    [
        ("ipv4:127.0.0.1:1,127.0.0.1:2", True),
        ("ipv6:[::1]:1,[::1]:2", True),
        ("ipv4:127.0.0.1:1,10.0.0.1:2", False),
        ("ipv4:10.0.0.1:1,127.0.0.1:2", False),
        ("ipv6:[::1]:1,[fd00::1]:2", False),
        ("ipv4:127.0.0.1:1,", False),
        ("dns:///localhost:1", True),
        ("dns:///relay.example:1", False),
    ],
)
def test_several_addresses_are_local_when_each_of_them_is(target: str, local: bool) -> None:
    assert is_local(target) is local


@pytest.mark.parametrize("opening", [dial, dialer()], ids=["service", "client"])
def test_plain_text_is_refused_when_one_of_the_addresses_is_elsewhere(opening: _Dial) -> None:
    with pytest.raises(HoplineError, match="no TLS"):
        opening("ipv4:127.0.0.1:1,10.0.0.1:2")
