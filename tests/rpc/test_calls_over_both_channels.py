"""What a call does over a socket and inside the process alike."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from hopline_rpc import telemetry
from hopline_rpc.auth import current_principal, subject
from hopline_rpc.calls import current_call, remaining
from hopline_rpc.channels import DEADLINE_MARGIN
from hopline_rpc.errors import STATUS_KEY, HoplineError, from_rpc_error
from hopline_rpc.principals import Principal

from tests.rpc.conftest import Wired, within


async def each(notes: list[Any]) -> AsyncIterator[Any]:
    for note in notes:
        yield note


class Blocked:
    """A handler that waits until it is cancelled, and says when it started and ended."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def wait(self, *_: Any) -> Any:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def stream(self, request: Any, context: Any) -> AsyncIterator[Any]:
        yield request
        await self.wait()


# --- the four shapes -----------------------------------------------------------------------------


async def test_a_unary_call_returns_the_handlers_answer(wired: Wired) -> None:
    answer = await wired.stub().Echo(wired.note("hello", count=3))
    assert (answer.text, answer.count) == ("hello", 3)


async def test_a_stream_of_responses_arrives_in_order_and_ends(wired: Wired) -> None:
    notes = [note async for note in wired.stub().Watch(wired.note("x", count=5))]
    assert [note.count for note in notes] == [0, 1, 2, 3, 4]


async def test_a_stream_of_responses_can_be_read_one_by_one(wired: Wired) -> None:
    call = wired.stub().Watch(wired.note("x", count=1))
    assert (await call.read()).text == "x"
    assert await call.read() is grpc.aio.EOF


async def test_a_stream_of_requests_gets_one_answer(wired: Wired) -> None:
    answer = await wired.stub().Collect(each([wired.note("a"), wired.note("b")]))
    assert list(answer.words) == ["a", "b"]


async def test_a_stream_of_requests_can_be_written_one_by_one(wired: Wired) -> None:
    call = wired.stub().Collect()
    await call.write(wired.note("a"))
    await call.write(wired.note("b"))
    await call.done_writing()
    assert list((await within(call)).words) == ["a", "b"]


async def test_streams_both_ways_answer_each_request(wired: Wired) -> None:
    notes = [note.text async for note in wired.stub().Chat(each([wired.note(str(n)) for n in range(40)]))]
    assert notes == [str(n) for n in range(40)]


async def test_a_conversation_may_alternate_writes_and_reads(wired: Wired) -> None:
    call = wired.stub().Chat()
    for word in ("one", "two", "three"):
        await call.write(wired.note(word))
        assert (await within(call.read())).text == word
    await call.done_writing()
    assert await within(call.read()) is grpc.aio.EOF


async def test_a_client_may_write_a_few_requests_before_it_reads(wired: Wired) -> None:
    call = wired.stub().Chat()
    for word in ("one", "two", "three"):
        await within(call.write(wired.note(word)))
    await call.done_writing()
    assert [note.text async for note in call] == ["one", "two", "three"]


async def test_a_server_may_speak_first(wired: Wired) -> None:
    async def greet(requests: Any, context: Any) -> AsyncIterator[Any]:
        yield wired.note("welcome")
        async for note in requests:
            yield note

    wired.servicer.chat = greet
    call = wired.stub().Chat()
    await within(call.write(wired.note("hello")))
    assert [(await within(call.read())).text for _ in range(2)] == ["welcome", "hello"]
    call.cancel()


async def test_a_handler_may_write_its_responses_to_the_context(wired: Wired) -> None:
    notes = [note.count async for note in wired.stub().Pour(wired.note(count=5))]
    assert notes == [0, 1, 2, 3, 4]


async def test_a_handler_that_writes_and_then_refuses_has_both_arrive(wired: Wired) -> None:
    async def pour(request: Any, context: Any) -> None:
        await context.write(wired.note("first"))
        raise HoplineError("thread_full", "the thread is full")

    wired.servicer.pour = pour
    call = wired.stub().Pour(wired.note())
    assert (await call.read()).text == "first"
    with pytest.raises(HoplineError, match="the thread is full"):
        await call.read()


async def test_many_calls_at_once_do_not_mix(wired: Wired) -> None:
    stub = wired.stub()
    answers = await asyncio.gather(*[stub.Echo(wired.note(str(n))) for n in range(100)])
    assert [answer.text for answer in answers] == [str(n) for n in range(100)]


async def test_what_the_caller_does_to_its_request_afterwards_is_not_seen(wired: Wired) -> None:
    go = asyncio.Event()

    async def late(request: Any, context: Any) -> Any:
        await go.wait()
        request.words.append("handler")
        return request

    wired.servicer.echo = late
    request = wired.note("before")
    call = asyncio.ensure_future(wired.raw().Echo(request, metadata=wired.auth()))
    await asyncio.sleep(0)
    request.text = "after"
    go.set()
    answer = await within(call)
    assert (answer.text, list(answer.words)) == ("before", ["handler"])
    assert list(request.words) == []


# --- errors --------------------------------------------------------------------------------------

REFUSAL = HoplineError(
    "quota_exceeded",
    "planner has sent 200 messages today — ünïcode",
    details={"limit": 200, "agent": "planner", "open": ["a", "b"], "exact": True},
    violations=[("agent", "is over its quota")],
    quota=("agent:ag_1", "sent_per_day"),
    retry_after=12.5,
)


async def test_a_refusal_arrives_as_it_was_raised(wired: Wired) -> None:
    async def refuse(request: Any, context: Any) -> Any:
        raise REFUSAL

    wired.servicer.echo = refuse
    with pytest.raises(HoplineError) as caught:
        await wired.stub().Echo(wired.note())
    assert caught.value.to_dict() == REFUSAL.to_dict()
    assert caught.value.violations == REFUSAL.violations
    assert caught.value.quota == REFUSAL.quota


async def test_a_bare_stub_sees_grpcs_own_error_with_code_text_and_status(wired: Wired) -> None:
    async def refuse(request: Any, context: Any) -> Any:
        raise REFUSAL

    wired.servicer.echo = refuse
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await wired.raw().Echo(wired.note(), metadata=wired.auth())
    error = caught.value
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.details() == REFUSAL.message
    assert isinstance(dict(error.trailing_metadata())[STATUS_KEY], bytes)
    assert from_rpc_error(error).to_dict() == REFUSAL.to_dict()


async def test_a_refusal_in_a_stream_comes_after_what_was_sent_before_it(wired: Wired) -> None:
    async def refuse(request: Any, context: Any) -> AsyncIterator[Any]:
        yield wired.note("first")
        raise HoplineError("thread_full", "the thread is full")

    wired.servicer.watch = refuse
    call = wired.stub().Watch(wired.note())
    assert (await call.read()).text == "first"
    with pytest.raises(HoplineError, match="the thread is full"):
        await call.read()


async def test_a_refusal_ends_a_call_that_is_still_sending(wired: Wired) -> None:
    async def refuse(requests: Any, context: Any) -> Any:
        raise HoplineError("session_closed", "the session is closed")

    wired.servicer.collect = refuse

    async def forever() -> AsyncIterator[Any]:
        while True:
            yield wired.note("more")

    with pytest.raises(HoplineError, match="the session is closed"):
        await within(wired.stub().Collect(forever()))


async def test_an_unexpected_exception_shows_an_id_and_none_of_its_text(
    wired: Wired, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(request: Any, context: Any) -> Any:
        raise RuntimeError("SELECT secret FROM users")

    wired.servicer.echo = fail
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await wired.raw().Echo(wired.note(), metadata=wired.auth())
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in repr(caught.value)
    identifier = from_rpc_error(caught.value).details["id"]
    assert identifier in str(caught.value.details())
    assert any(identifier in record.getMessage() and record.exc_info for record in caplog.records)


async def test_a_method_that_does_not_exist_is_unimplemented(wired: Wired) -> None:
    channel = wired.connect(None)._channel
    call = channel.unary_unary(
        "/hopline.test.v1.EchoService/Nothing",
        request_serializer=wired.contract.pb2.Note.SerializeToString,
        response_deserializer=wired.contract.pb2.Note.FromString,
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(wired.note())
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


# --- deadlines -----------------------------------------------------------------------------------


async def test_the_callers_deadline_ends_the_call_and_cancels_the_handler(wired: Wired) -> None:
    blocked = Blocked()
    wired.servicer.echo = blocked.wait
    with pytest.raises(HoplineError) as caught:
        await wired.stub().Echo(wired.note(), timeout=0.2)
    assert caught.value.reason == "deadline_exceeded"
    await within(blocked.cancelled.wait())


async def test_a_streams_deadline_ends_it_and_cancels_the_handler(wired: Wired) -> None:
    blocked = Blocked()
    wired.servicer.watch = blocked.stream
    call = wired.stub().Watch(wired.note(), timeout=0.2)
    assert await call.read()
    with pytest.raises(HoplineError) as caught:
        await call.read()
    assert caught.value.reason == "deadline_exceeded"
    await within(blocked.cancelled.wait())


async def test_a_deadline_in_the_past_never_starts_the_handler(wired: Wired) -> None:
    blocked = Blocked()
    wired.servicer.echo = blocked.wait
    with pytest.raises(HoplineError) as caught:
        await wired.stub().Echo(wired.note(), timeout=-1.0)
    assert caught.value.reason == "deadline_exceeded"
    assert not blocked.started.is_set()


async def test_without_a_deadline_of_the_caller_a_unary_call_has_the_methods_own(wired: Wired) -> None:
    seen: list[Any] = []

    async def look(request: Any, context: Any) -> Any:
        seen.extend([context.time_remaining(), remaining()])
        return request

    wired.servicer.echo = look
    await wired.stub().Echo(wired.note())
    assert seen[0] is None
    assert 9.0 < seen[1] <= 10.0


async def test_a_stream_without_a_deadline_may_last(wired: Wired) -> None:
    seen: list[Any] = []

    async def look(request: Any, context: Any) -> AsyncIterator[Any]:
        seen.append(remaining())
        yield request

    wired.servicer.watch = look
    assert [note async for note in wired.stub().Watch(wired.note())]
    assert seen == [None]


async def test_what_is_left_of_a_deadline_is_passed_on_less_a_margin(wired: Wired) -> None:
    stub = wired.stub()
    seen: list[float] = []

    async def hop(request: Any, context: Any) -> Any:
        seen.append(context.time_remaining())
        if request.count:
            await stub.Echo(wired.note(count=request.count - 1))
        return request

    wired.servicer.echo = hop
    # gRPC sends deadlines of a second and more rounded up; below, they are exact.
    await stub.Echo(wired.note(count=2), timeout=0.99)
    first, second, third = seen
    assert first <= 0.99
    assert second <= first - DEADLINE_MARGIN + 0.01
    assert third <= second - DEADLINE_MARGIN + 0.01


async def test_a_task_left_behind_by_a_handler_is_not_bound_by_its_deadline(wired: Wired) -> None:
    stub = wired.stub()
    answered = asyncio.Event()
    left: list[asyncio.Task[Any]] = []

    async def later() -> Any:
        await answered.wait()
        return remaining()

    async def leave(request: Any, context: Any) -> Any:
        left.append(asyncio.create_task(later()))
        return request

    wired.servicer.echo = leave
    await stub.Echo(wired.note(), timeout=5.0)
    answered.set()
    assert await within(left[0]) is None


# --- cancellation --------------------------------------------------------------------------------


async def test_cancelling_a_unary_call_cancels_its_handler(wired: Wired) -> None:
    blocked = Blocked()
    wired.servicer.echo = blocked.wait
    call = wired.raw().Echo(wired.note(), metadata=wired.auth())
    await within(blocked.started.wait())
    assert call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert call.cancelled()
    assert await call.code() is grpc.StatusCode.CANCELLED
    await within(blocked.cancelled.wait())


async def test_cancelling_the_task_that_waits_cancels_the_handler(wired: Wired) -> None:
    blocked = Blocked()
    wired.servicer.echo = blocked.wait

    async def call() -> Any:
        return await wired.stub().Echo(wired.note())

    task = asyncio.create_task(call())
    await within(blocked.started.wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await within(blocked.cancelled.wait())


async def test_cancelling_a_stream_runs_the_handlers_cleanup_at_once(wired: Wired) -> None:
    blocked = Blocked()
    wired.servicer.watch = blocked.stream
    call = wired.stub().Watch(wired.note())
    await call.read()
    await within(_read_until(call, blocked.started))
    call.cancel()
    await within(blocked.cancelled.wait())


async def _read_until(call: Any, started: asyncio.Event) -> None:
    """Come back for the next response until the handler has gone on."""
    reading = asyncio.ensure_future(call.read())
    await started.wait()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


async def test_a_reader_that_is_cancelled_takes_the_stream_with_it(wired: Wired) -> None:
    blocked = Blocked()
    wired.servicer.watch = blocked.stream

    async def consume() -> None:
        async for _ in wired.stub().Watch(wired.note()):
            pass

    task = asyncio.create_task(consume())
    await within(blocked.started.wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await within(blocked.cancelled.wait())


async def test_a_stream_that_nobody_holds_any_more_is_cancelled(wired: Wired) -> None:
    blocked = Blocked()
    wired.servicer.watch = blocked.stream
    call = wired.raw().Watch(wired.note(), metadata=wired.auth())
    assert await call.read()
    reading = asyncio.ensure_future(call.read())
    await within(blocked.started.wait())
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    del call, reading
    gc.collect()
    await within(blocked.cancelled.wait())


async def test_a_cancelled_conversation_ends_the_servers_reading(wired: Wired) -> None:
    blocked = Blocked()

    async def listen(requests: Any, context: Any) -> AsyncIterator[Any]:
        # gRPC may end the iteration as if the client had said its last word: no handler can tell.
        try:
            async for note in requests:
                yield note
                blocked.started.set()
        finally:
            blocked.cancelled.set()

    wired.servicer.chat = listen
    call = wired.stub().Chat()
    await call.write(wired.note("x"))
    await call.read()
    await within(_read_until(call, blocked.started))
    call.cancel()
    await within(blocked.cancelled.wait())


async def test_a_server_can_end_one_callers_calls(wired: Wired) -> None:
    blocked = Blocked()
    wired.servicer.watch = blocked.stream
    call = wired.stub().Watch(wired.note())
    await call.read()
    reading = asyncio.ensure_future(call.read())
    await within(blocked.started.wait())
    ended = wired.server.live.end(
        lambda live: live.principal is not None and live.principal.token_id == "tok_1",
        HoplineError("unauthenticated", "a valid credential is needed"),
    )
    assert ended == 1
    with pytest.raises(HoplineError) as caught:
        await within(reading)
    assert caught.value.reason == "unauthenticated"
    assert blocked.cancelled.is_set()
    assert len(wired.server.live) == 0


# --- metadata ------------------------------------------------------------------------------------


async def test_metadata_reaches_the_handler_as_sent(wired: Wired) -> None:
    seen: dict[str, Any] = {}

    async def look(request: Any, context: Any) -> Any:
        seen.update(dict(context.invocation_metadata()))
        return request

    wired.servicer.echo = look
    metadata = (*wired.auth(), ("hopline-test", "value"), ("hopline-test-bin", b"\x00\xff"))
    await wired.raw().Echo(wired.note(), metadata=metadata)
    assert seen["hopline-test"] == "value"
    assert seen["hopline-test-bin"] == b"\x00\xff"


async def test_initial_and_trailing_metadata_reach_the_caller(wired: Wired) -> None:
    async def answer(request: Any, context: Any) -> Any:
        await context.send_initial_metadata((("before", "1"),))
        context.set_trailing_metadata((("after", "2"),))
        return request

    wired.servicer.echo = answer
    call = wired.raw().Echo(wired.note(), metadata=wired.auth())
    assert (await within(call)).text == ""
    assert (await call.initial_metadata())["before"] == "1"
    assert (await call.trailing_metadata())["after"] == "2"
    assert await call.code() is grpc.StatusCode.OK


async def test_a_stream_is_connected_when_its_initial_metadata_comes(wired: Wired) -> None:
    async def answer(request: Any, context: Any) -> AsyncIterator[Any]:
        await context.send_initial_metadata((("before", "1"),))
        await asyncio.Event().wait()
        yield request

    wired.servicer.watch = answer
    call = wired.stub().Watch(wired.note())
    await within(call.wait_for_connection())
    assert (await call.initial_metadata())["before"] == "1"
    call.cancel()


async def test_the_request_id_goes_along_to_the_next_hop(wired: Wired) -> None:
    stub = wired.stub()
    seen: list[str] = []

    async def hop(request: Any, context: Any) -> Any:
        call = current_call()
        assert call is not None
        seen.append(call.request_id)
        if request.count:
            await stub.Echo(wired.note())
        return request

    wired.servicer.echo = hop
    await stub.Echo(wired.note(count=1))
    await stub.Echo(wired.note())
    assert seen[0] == seen[1] != seen[2]
    assert seen[0].startswith("req_")


async def test_the_trace_context_goes_along_to_the_next_hop(wired: Wired) -> None:
    stub = wired.stub()
    seen: list[str] = []

    async def hop(request: Any, context: Any) -> Any:
        seen.append(telemetry.current_traceparent())
        if request.count:
            await stub.Echo(wired.note())
        return request

    wired.servicer.echo = hop
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
    with telemetry.under(parent):
        await stub.Echo(wired.note(count=1))
    await stub.Echo(wired.note())
    assert seen == [parent, parent, ""]


# --- who may call --------------------------------------------------------------------------------


async def test_the_handler_knows_who_calls(wired: Wired) -> None:
    seen: list[Principal] = []

    async def look(request: Any, context: Any) -> Any:
        seen.append(current_principal())
        return request

    wired.servicer.echo = look
    await wired.stub(wired.registry.assertion(identifier="ag_7", name="planner")).Echo(wired.note())
    assert (seen[0].kind, seen[0].id, seen[0].workspace_id, seen[0].name) == (
        "agent",
        "ag_7",
        "ws_1",
        "planner",
    )


async def test_the_callers_identity_is_not_the_handlers_that_it_calls(wired: Wired) -> None:
    other = wired.stub(wired.registry.assertion(kind="service", identifier="relay"))
    seen: list[str] = []

    async def hop(request: Any, context: Any) -> Any:
        seen.append(current_principal().id)
        if request.count:
            await other.Echo(wired.note())
            seen.append(current_principal().id)
        return request

    wired.servicer.echo = hop
    await wired.stub().Echo(wired.note(count=1))
    assert seen == ["ag_1", "relay", "ag_1"]


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic abc",
        "Bearer not-a-token",
        "Bearer a.b.c",
        "Bearer hpl_a_" + "x" * 43,
        "Bearer hpl_a_short",
    ],
)
async def test_every_bad_credential_gets_the_same_answer(wired: Wired, header: str | None) -> None:
    metadata = () if header is None else (("authorization", header),)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await wired.raw().Echo(wired.note(), metadata=metadata)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert caught.value.details() == "a valid credential is needed"


async def test_an_assertion_is_refused_once_it_has_expired(wired: Wired) -> None:
    stub = wired.stub()
    await stub.Echo(wired.note())
    await wired.registry.clock.advance(61)
    with pytest.raises(HoplineError) as caught:
        await stub.Echo(wired.note())
    assert caught.value.reason == "unauthenticated"


async def test_a_revoked_token_is_refused_at_the_next_call(wired: Wired) -> None:
    stub = wired.stub()
    await stub.Echo(wired.note())
    wired.registry.revoked.add("tok_1")
    with pytest.raises(HoplineError) as caught:
        await stub.Echo(wired.note())
    assert caught.value.reason == "unauthenticated"


async def test_a_public_method_needs_no_credential(wired: Wired) -> None:
    assert (await wired.raw().Open(wired.note("hi"))).text == "hi"


async def test_a_kind_of_caller_that_is_not_declared_is_refused(wired: Wired) -> None:
    with pytest.raises(HoplineError) as caught:
        await wired.stub().ServicesOnly(wired.note())
    assert caught.value.reason == "permission_denied"
    service = wired.registry.assertion(kind="service", identifier="relay")
    assert (await wired.stub(service).ServicesOnly(wired.note("ok"))).text == "ok"


async def test_a_method_without_rules_is_refused_to_everyone(wired: Wired) -> None:
    for kind in ("agent", "user", "plugin", "service"):
        with pytest.raises(HoplineError) as caught:
            await wired.stub(wired.registry.assertion(kind=kind)).Undeclared(wired.note())
        assert caught.value.reason == "permission_denied"


async def test_a_service_may_carry_the_agent_it_acts_for(wired: Wired) -> None:
    seen: list[Principal | None] = []

    async def look(request: Any, context: Any) -> Any:
        seen.append(subject())
        return request

    wired.servicer.echo = look
    service = wired.registry.assertion(kind="service", identifier="relay")
    agent = wired.registry.assertion(identifier="ag_9")
    await wired.raw().Echo(wired.note(), metadata=(*wired.auth(service), ("hopline-subject", agent)))
    await wired.raw().Echo(wired.note(), metadata=wired.auth(service))
    assert seen[0] is not None
    assert seen[0].id == "ag_9"
    assert seen[1] is None


async def test_a_forged_subject_is_unauthenticated_and_an_agents_is_denied(wired: Wired) -> None:
    service = wired.registry.assertion(kind="service", identifier="relay")
    for credential, carried, code in (
        (service, "forged", grpc.StatusCode.UNAUTHENTICATED),
        (wired.registry.assertion(), wired.registry.assertion(), grpc.StatusCode.PERMISSION_DENIED),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await wired.raw().Echo(
                wired.note(), metadata=(*wired.auth(credential), ("hopline-subject", carried))
            )
        assert caught.value.code() is code


# --- validation ----------------------------------------------------------------------------------


async def test_a_field_over_its_limit_is_refused_by_name_and_limit(wired: Wired) -> None:
    with pytest.raises(HoplineError) as caught:
        await wired.stub().Echo(wired.note(notes=[wired.note(), wired.note("x" * 2001)]))
    assert caught.value.reason == "invalid_argument"
    assert caught.value.violations == (("notes[1].text", "must be at most 2000 characters"),)
    assert caught.value.message == "notes[1].text: must be at most 2000 characters"


async def test_what_is_exactly_at_its_limit_passes(wired: Wired) -> None:
    assert len((await wired.stub().Echo(wired.note("x" * 2000, count=100))).text) == 2000


async def test_nothing_is_validated_for_a_caller_that_may_not_call(wired: Wired) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await wired.raw().Echo(wired.note("x" * 2001))
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"text": "a\0b"}, "text"),
        ({"words": ["ok", "\0"]}, "words"),
        ({"labels": {"k": "\0"}}, 'labels["k"]'),
        ({"labels": {"\0": "v"}}, "labels"),
        ({"notes": [{"text": ""}, {"text": "\0"}]}, "notes[1].text"),
    ],
)
async def test_nul_is_refused_in_any_text_by_the_fields_name(
    wired: Wired, fields: dict[str, Any], path: str
) -> None:
    with pytest.raises(HoplineError) as caught:
        await wired.stub().Echo(wired.contract.pb2.Note(**fields))
    assert caught.value.reason == "invalid_argument"
    assert caught.value.violations == ((path, "must not contain the NUL character (U+0000)"),)


async def test_nul_in_bytes_and_zeros_in_numbers_pass(wired: Wired) -> None:
    note = wired.note("ok", raw=b"\0\0", notes=[wired.note()], words=[""])
    assert (await wired.stub().Echo(note)).raw == b"\0\0"


async def test_every_message_of_a_stream_is_validated(wired: Wired) -> None:
    notes = [wired.note("fine"), wired.note(count=101)]
    with pytest.raises(HoplineError) as caught:
        await within(wired.stub().Collect(each(notes)))
    assert caught.value.violations[0][0] == "count"
    call = wired.stub().Chat(each(notes))
    assert (await within(call.read())).text == "fine"
    with pytest.raises(HoplineError) as caught:
        await within(call.read())
    assert caught.value.reason == "invalid_argument"


# --- counting ------------------------------------------------------------------------------------


async def test_calls_and_refusals_are_counted_by_method_and_reason(wired: Wired) -> None:
    stub = wired.stub()
    await stub.Echo(wired.note())
    for bad in (wired.note(count=-1), wired.note("\0")):
        with pytest.raises(HoplineError):
            await stub.Echo(bad)
    stats = wired.server.stats.to_dict()["/hopline.test.v1.EchoService/Echo"]
    assert stats["count"] == 3
    assert stats["errors"] == {"invalid_argument": 2}
    assert sum(stats["buckets"]) == 3


async def test_a_cancelled_call_is_counted_as_cancelled(wired: Wired) -> None:
    blocked = Blocked()
    wired.servicer.echo = blocked.wait
    call = wired.raw().Echo(wired.note(), metadata=wired.auth())
    await within(blocked.started.wait())
    call.cancel()
    await within(blocked.cancelled.wait())
    await asyncio.sleep(0)
    stats = wired.server.stats.to_dict()["/hopline.test.v1.EchoService/Echo"]
    assert stats["errors"] == {"cancelled": 1}


# --- drain ---------------------------------------------------------------------------------------


async def test_a_drain_ends_streams_and_lets_running_calls_finish(wired: Wired) -> None:
    blocked, go, entered = Blocked(), asyncio.Event(), asyncio.Event()

    async def slow(request: Any, context: Any) -> Any:
        entered.set()
        await go.wait()
        return request

    wired.servicer.watch, wired.servicer.echo = blocked.stream, slow
    stub = wired.stub()
    stream = stub.Watch(wired.note())
    await stream.read()
    reading = asyncio.ensure_future(stream.read())
    await within(blocked.started.wait())
    unary = asyncio.ensure_future(_await(stub.Echo(wired.note("kept"))))
    await within(entered.wait())
    draining = asyncio.create_task(wired.server.drain(10, probe_seconds=0))
    with pytest.raises(HoplineError) as caught:
        await within(reading)
    assert caught.value.reason == "unavailable"
    go.set()
    assert (await within(unary)).text == "kept"
    await within(draining)
    with pytest.raises(HoplineError) as caught:
        await within(stub.Echo(wired.note(), timeout=1))
    assert caught.value.reason == "unavailable"


async def _await(call: Any) -> Any:
    return await call


async def test_a_handler_that_goes_on_for_a_caller_that_is_gone_is_no_defect(
    wired: Wired, caplog: pytest.LogCaptureFixture
) -> None:
    ended = asyncio.Event()

    async def stubborn(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            yield request
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            yield request
        finally:
            ended.set()

    wired.servicer.watch = stubborn
    call = wired.stub().Watch(wired.note("x"))
    await within(call.read())
    call.cancel()
    await within(ended.wait())
    await within(wired.server.drain(10, probe_seconds=0))
    counted = wired.server.stats.to_dict()["/hopline.test.v1.EchoService/Watch"]
    assert counted["errors"] == {"cancelled": 1}
    assert "internal error" not in caplog.text
