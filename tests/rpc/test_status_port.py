"""The port on which a process says how it is: who may read it, and what it bears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hopline_rpc.errors import HoplineError
from hopline_rpc.serving import PortInUseError
from hopline_rpc.status_port import Answer, Asked, StatusPort, as_json, as_text
from hopline_rpc.tls import TlsSettings

from tests.rpc.conftest import within


async def _well(asked: Asked) -> Answer:
    return as_text(200, f"well, {asked.get('accept', '')}")


async def _broken(asked: Asked) -> Answer:
    raise RuntimeError("the inside")


async def _facts(asked: Asked) -> Answer:
    return as_json(200, {"ready": True})


@pytest.fixture
async def address() -> AsyncIterator[tuple[str, int]]:
    port = StatusPort({"/well": _well, "/broken": _broken, "/facts": _facts}, None, insecure=False)
    url = await port.start("127.0.0.1:0")
    yield "127.0.0.1", int(url.rpartition(":")[2])
    await port.stop()


async def talk(address: tuple[str, int], *said: bytes) -> bytes:
    """Say something on a connection, and return all that comes back until it is closed."""
    reader, writer = await asyncio.open_connection(*address)
    for each in said:
        writer.write(each)
        await writer.drain()
    writer.write_eof()
    found: bytes = await within(reader.read())
    writer.close()
    return found


def request(target: str, host: str = "127.0.0.1:1", method: str = "GET", more: str = "") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()


async def test_a_path_answers_and_a_connection_serves_one_request_after_the_other(
    address: tuple[str, int],
) -> None:
    said = await talk(
        address, request("/well?x=1", more="Accept: all\r\n"), request("/facts", host="localhost:7490")
    )
    assert said.count(b"HTTP/1.1 200") == 2
    assert b"well, all\n" in said
    assert b'"ready": true' in said


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (request("/nowhere"), b"404"),
        (request("/well", method="POST", more="Content-Length: 0\r\n"), b"405"),
        (request("/well", host="rebound.example:7490"), b"421"),
        (request("/broken"), b"500"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /well HTTP/1.1\r\n" + b"X: " + b"y" * 20_000, b"431"),
    ],
)
async def test_what_cannot_be_answered_is_refused_without_a_word_of_the_inside(
    address: tuple[str, int], asked: bytes, status: bytes
) -> None:
    said = await talk(address, asked)
    assert said.startswith(b"HTTP/1.1 " + status), said
    assert b"the inside" not in said


async def test_a_head_has_the_length_and_no_body(address: tuple[str, int]) -> None:
    said = await talk(address, request("/well", method="HEAD"))
    head, _, body = said.partition(b"\r\n\r\n")
    assert b"content-length: 7" in head
    assert body == b""


async def test_one_connection_too_many_is_closed_and_the_others_go_on(address: tuple[str, int]) -> None:
    idle = [await asyncio.open_connection(*address) for _ in range(32)]
    for _, writer in idle:
        writer.write(b"GET")  # each is being read by now
    await asyncio.sleep(0)
    reader, writer = await asyncio.open_connection(*address)
    assert await within(reader.read()) == b""
    writer.close()
    idle[0][1].close()
    for _, each in idle:
        each.close()

    async def served() -> None:
        while b"200" not in await talk(address, request("/well")):
            pass  # it has not been seen yet that they are gone

    await within(served())


async def test_an_address_that_others_reach_needs_tls_and_one_that_is_taken_is_named() -> None:
    with pytest.raises(HoplineError, match="reachable from other machines"):
        await StatusPort({}, None, insecure=False).start("0.0.0.0:0")
    with pytest.raises(HoplineError, match="not host:port"):
        await StatusPort({}, None, insecure=False).start("127.0.0.1")
    with pytest.raises(HoplineError, match="both a certificate and its key"):
        await StatusPort({}, TlsSettings(ca=Path("/ca.pem")), insecure=False).start("0.0.0.0:0")
    port = StatusPort({}, None, insecure=False)
    url = await port.start("127.0.0.1:0")
    with pytest.raises(PortInUseError):
        await StatusPort({}, None, insecure=False).start(url.removeprefix("http://"))
    await port.stop()
