"""What a client channel adds to a call, beyond what the suite over both channels shows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hopline_rpc.auth import current_principal
from hopline_rpc.channels import bearer, dial
from hopline_rpc.errors import HoplineError

from tests.rpc.conftest import Wired, within


async def test_credentials_may_have_to_be_waited_for(wired: Wired) -> None:
    asked: list[int] = []

    async def fetch() -> tuple[tuple[str, str], ...]:
        asked.append(1)
        await asyncio.sleep(0)
        return wired.auth()

    stub = wired.contract.grpc.EchoServiceStub(wired.connect(fetch))
    assert (await stub.Echo(wired.note("hi"))).text == "hi"
    call = stub.Chat()
    # Two tasks use the stream before it has started; it starts once.
    _, answer = await within(asyncio.gather(call.write(wired.note("a")), call.read()))
    assert answer.text == "a"
    call.cancel()
    assert len(asked) == 2


async def test_a_failing_credential_fails_the_call(wired: Wired) -> None:
    async def fetch() -> tuple[tuple[str, str], ...]:
        raise HoplineError("unavailable", "the registry is away")

    stub = wired.contract.grpc.EchoServiceStub(wired.connect(fetch))
    with pytest.raises(HoplineError, match="the registry is away"):
        await stub.Echo(wired.note())


async def test_a_call_cancelled_before_it_starts_is_never_made(wired: Wired) -> None:
    gate = asyncio.Event()

    async def fetch() -> tuple[tuple[str, str], ...]:
        await gate.wait()
        return wired.auth()

    served: list[Any] = []

    async def look(request: Any, context: Any) -> Any:
        served.append(request)
        return request

    wired.servicer.echo = look
    call = wired.contract.grpc.EchoServiceStub(wired.connect(fetch)).Echo(wired.note())
    assert call.cancel()
    assert call.cancelled()
    assert call.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert served == []


async def test_a_token_that_changes_is_read_at_each_call(wired: Wired) -> None:
    tokens = [wired.registry.assertion(identifier="ag_1"), wired.registry.assertion(identifier="ag_2")]
    seen: list[str] = []

    async def look(request: Any, context: Any) -> Any:
        seen.append(current_principal().id)
        return request

    wired.servicer.echo = look
    stub = wired.contract.grpc.EchoServiceStub(wired.connect(bearer(lambda: tokens[len(seen)])))
    await stub.Echo(wired.note())
    await stub.Echo(wired.note())
    assert seen == ["ag_1", "ag_2"]


async def test_metadata_given_with_a_call_wins_over_the_channels(wired: Wired) -> None:
    channel = wired.connect(bearer("not a credential"))
    stub = wired.contract.grpc.EchoServiceStub(channel)
    with pytest.raises(HoplineError):
        await stub.Echo(wired.note())
    assert (await stub.Echo(wired.note("hi"), metadata=wired.auth())).text == "hi"


async def test_callbacks_get_the_call_that_they_were_added_to(wired: Wired) -> None:
    done: list[Any] = []
    call = wired.stub().Echo(wired.note())
    call.add_done_callback(done.append)
    await call
    await asyncio.sleep(0)
    assert done == [call]


async def test_a_channel_to_nowhere_is_unavailable() -> None:

    async with dial("127.0.0.1:1") as channel:
        call = channel.unary_unary("/a.B/C", lambda _: b"", lambda _: None)
        with pytest.raises(HoplineError) as caught:
            await within(call(object(), timeout=5))
    assert caught.value.reason == "unavailable"
