"""What only calls inside the process promise."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from hopline_rpc.clock import ManualClock
from hopline_rpc.deadlines import Deadlines
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import seeded_ids
from hopline_rpc.inprocess import InProcessServer
from hopline_rpc.interceptors import Interceptor
from hopline_rpc.rules import Rules

from tests.rpc.conftest import Contract, EchoServicer, Registry, within

PUBLIC = Rules(public=True)


class Local:
    """A server without a socket whose methods need no credential."""

    def __init__(self, contract: Contract, rules: Rules = PUBLIC) -> None:
        self.contract = contract
        self.servicer = EchoServicer()
        clock = ManualClock()
        self.interceptor = Interceptor("echo", Registry(clock).authenticator, seeded_ids(clock, 1))
        self.server = InProcessServer(self.interceptor)
        outer = self

        class Ruled:
            def add_generic_rpc_handlers(self, handlers: Any) -> None:
                pass

            def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
                outer.server.add_service(service, handlers, dict.fromkeys(handlers, rules))

        contract.grpc.add_EchoServiceServicer_to_server(self.servicer, Ruled())
        self.stub = contract.grpc.EchoServiceStub(self.server.channel())


@pytest.fixture
def local(contract: Contract) -> Local:
    return Local(contract)


async def test_a_yield_returns_when_the_consumer_comes_back_for_more(local: Local) -> None:
    events: list[str] = []

    async def changes(request: Any, context: Any) -> AsyncIterator[Any]:
        for number in range(3):
            yield local.contract.note(count=number)
            events.append(f"{number} is consumed")

    local.servicer.watch = changes
    async for note in local.stub.Watch(local.contract.note()):
        await ManualClock.settle()
        assert events == [f"{number} is consumed" for number in range(note.count)]
        events_before = len(events)
        await ManualClock.settle()
        assert len(events) == events_before
    assert events == ["0 is consumed", "1 is consumed", "2 is consumed"]


async def test_a_consumer_that_stops_reading_holds_the_producer_until_it_leaves(local: Local) -> None:
    left = asyncio.Event()
    yielded: list[int] = []

    async def changes(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            for number in range(10):
                yielded.append(number)
                yield local.contract.note(count=number)
        finally:
            left.set()

    local.servicer.watch = changes
    call = local.stub.Watch(local.contract.note())
    await call.read()
    await ManualClock.settle()
    assert yielded == [0]
    call.cancel()
    await within(left.wait())
    assert yielded == [0]


async def test_a_client_that_writes_far_ahead_of_the_server_waits(local: Local) -> None:
    go = asyncio.Event()

    async def slow(requests: Any, context: Any) -> Any:
        await go.wait()
        return local.contract.note(words=[note.text async for note in requests])

    local.servicer.collect = slow
    call = local.stub.Collect()
    written = 0

    async def write() -> None:
        nonlocal written
        for number in range(100):
            await call.write(local.contract.note(str(number)))
            written += 1
        await call.done_writing()

    writing = asyncio.create_task(write())
    await ManualClock.settle()
    assert written == 16
    go.set()
    assert len((await within(call)).words) == 100
    await within(writing)


async def test_a_handler_sees_no_context_of_its_caller(local: Local) -> None:
    import contextvars

    variable = contextvars.ContextVar("variable", default="unset")
    seen: list[str] = []

    async def look(request: Any, context: Any) -> Any:
        seen.append(variable.get())
        variable.set("handler")
        return request

    local.servicer.echo = look
    variable.set("caller")
    await local.stub.Echo(local.contract.note())
    assert seen == ["unset"]
    assert variable.get() == "caller"


async def test_the_methods_own_deadline_holds_where_the_caller_sets_none(contract: Contract) -> None:
    local = Local(contract, Rules(public=True, deadline=0.05))

    async def forever(request: Any, context: Any) -> Any:
        await asyncio.Event().wait()

    local.servicer.echo = forever
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await within(local.stub.Echo(contract.note()))
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert caught.value.details() == "the time allowed for the call is over"


class Timed:
    def __init__(self, deadline: float | None, expired: list[Any]) -> None:
        self.deadline = deadline
        self.expired = expired
        self.done = asyncio.Event()

    def expire(self) -> None:
        self.expired.append(self)
        self.done.set()


async def test_one_timer_ends_each_member_at_its_own_deadline() -> None:
    now = asyncio.get_running_loop().time()
    expired: list[Any] = []
    late, soon, never, gone = (Timed(each, expired) for each in (now + 0.06, now + 0.02, None, now + 0.04))
    deadlines: Deadlines[Timed] = Deadlines()
    for member in (late, never, soon, gone):
        deadlines.add(member)
    deadlines.discard(gone)
    await within(soon.done.wait())
    assert expired == [soon]
    deadlines.discard(soon)
    await within(late.done.wait())
    assert expired == [soon, late]
    assert list(deadlines) == [late, never] or list(deadlines) == [never, late]


async def test_a_call_leaves_nothing_for_the_garbage_collector(local: Local) -> None:
    await local.stub.Echo(local.contract.note("x"), timeout=5)
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(100):
            await local.stub.Echo(local.contract.note("x"), timeout=5)
        await ManualClock.settle()
        assert len(gc.get_objects()) - before < 100
    finally:
        gc.enable()


async def test_two_writes_at_once_are_a_mistake_that_shows(local: Local) -> None:
    caught: list[BaseException | None] = []

    async def careless(request: Any, context: Any) -> AsyncIterator[Any]:
        results = await asyncio.gather(
            *[context.write(local.contract.note()) for _ in range(2)], return_exceptions=True
        )
        caught.extend(results)
        return
        yield

    local.servicer.watch = careless
    assert len([note async for note in local.stub.Watch(local.contract.note())]) == 1
    assert [type(each) for each in caught] == [type(None), grpc.aio.UsageError]


async def test_reading_and_iterating_one_stream_is_a_mistake_that_shows(local: Local) -> None:
    call = local.stub.Watch(local.contract.note(count=2))
    await call.read()
    with pytest.raises(grpc.aio.UsageError):
        aiter(call)
    call.cancel()


async def test_writing_to_a_finished_or_half_closed_call_is_refused(local: Local) -> None:
    call = local.stub.Chat()
    await call.done_writing()
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(local.contract.note())
    assert await within(call.read()) is grpc.aio.EOF
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(local.contract.note())


async def test_a_failing_request_iterator_cancels_the_call(local: Local) -> None:
    async def broken() -> AsyncIterator[Any]:
        yield local.contract.note("one")
        raise RuntimeError("no more")

    call = local.stub.Collect(broken())
    with pytest.raises(asyncio.CancelledError):
        await within(call)
    assert call.cancelled()


async def test_a_plain_iterable_of_requests_is_accepted(local: Local) -> None:
    answer = await within(local.stub.Collect(iter([local.contract.note("a"), local.contract.note("b")])))
    assert list(answer.words) == ["a", "b"]


async def test_done_callbacks_run_on_both_sides(local: Local) -> None:
    done: list[str] = []

    async def look(request: Any, context: Any) -> Any:
        context.add_done_callback(lambda _: done.append("server"))
        return request

    local.servicer.echo = look
    call = local.stub.Echo(local.contract.note())
    call.add_done_callback(lambda _: done.append("client"))
    await call
    await ManualClock.settle()
    assert sorted(done) == ["client", "server"]
    assert call.done()
    call.add_done_callback(lambda _: done.append("late"))
    assert done[-1] == "late"


async def test_a_handler_may_set_a_code_without_raising(local: Local) -> None:
    async def refuse(request: Any, context: Any) -> Any:
        context.set_code(grpc.StatusCode.NOT_FOUND)
        context.set_details("nothing here")
        return request

    local.servicer.echo = refuse
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await local.stub.Echo(local.contract.note())
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.NOT_FOUND, "nothing here")


async def test_a_stopped_server_refuses_and_cancels_what_outlasts_its_grace(local: Local) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def forever(request: Any, context: Any) -> Any:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    local.servicer.echo = forever
    running = asyncio.ensure_future(local.stub.Echo(local.contract.note()))
    await within(started.wait())
    await within(local.server.stop(0.01))
    assert cancelled.is_set()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running
    assert caught.value.code() is grpc.StatusCode.CANCELLED
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await local.stub.Echo(local.contract.note())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_ending_a_call_twice_keeps_the_first_reason(local: Local) -> None:
    started = asyncio.Event()

    async def forever(request: Any, context: Any) -> Any:
        started.set()
        await asyncio.Event().wait()

    local.servicer.echo = forever
    running = asyncio.ensure_future(local.stub.Echo(local.contract.note()))
    await within(started.wait())
    for reason in ("unauthenticated", "unavailable"):
        local.interceptor.live.end(lambda _: True, HoplineError(reason, reason))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await within(running)
    assert caught.value.details() == "unauthenticated"


async def test_a_thousand_waiting_calls_leave_nothing_behind(local: Local) -> None:
    go = asyncio.Event()

    async def wait(request: Any, context: Any) -> Any:
        await go.wait()
        return request

    local.servicer.echo = wait
    calls = [local.stub.Echo(local.contract.note(), timeout=60) for _ in range(1000)]
    await ManualClock.settle()
    assert len(local.interceptor.live) == 1000
    go.set()
    await within(asyncio.gather(*calls))
    await ManualClock.settle()
    assert len(local.interceptor.live) == 0
    assert not local.server._tasks
