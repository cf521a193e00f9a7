"""Calls over a tunnel: what the unary methods promise holds here too, and nobody waits for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hopline.relay.v1 import message_pb2 as msg
from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline_relay import tunnel_calls
from hopline_rpc.errors import HoplineError

from tests.support.fake_turns import FakeMesh, RawWorker, completed, ended, fake_mesh


@pytest.fixture
async def mesh() -> AsyncIterator[FakeMesh]:
    async with fake_mesh() as running:
        yield running


def call(number: int = 1, turn_id: str = "", attachment: int = 1, **method: Any) -> pb.WorkerItem:
    if not method:
        method = {"ask": msg.AskRequest(agent="b", text="well?")}
    return pb.WorkerItem(call=pb.Call(attachment=attachment, call_id=number, turn_id=turn_id, **method))


def cancel(number: int = 1) -> pb.WorkerItem:
    return pb.WorkerItem(call_canceled=pb.CallCanceled(attachment=1, call_id=number))


async def attached(mesh: FakeMesh, **fields: Any) -> RawWorker:
    token = mesh.agent("a")
    worker = mesh.worker(token)
    await worker.attach(token, **fields)
    return worker


async def result(worker: RawWorker) -> pb.CallResult:
    return (await worker.next("call_result")).call_result


def waits(mesh: FakeMesh, agent: str = "b") -> asyncio.Future[msg.TurnView]:
    """Let asks of an agent wait for the returned future."""
    future: asyncio.Future[msg.TurnView] = asyncio.get_running_loop().create_future()
    mesh.handlers.answers[agent] = future
    return future


async def test_a_call_is_made_as_the_attached_agent(mesh: FakeMesh) -> None:
    token, other = mesh.agent("a"), mesh.agent("c")
    worker = mesh.worker(token)
    await worker.attach(token, 1)
    await worker.attach(other, 2)
    await worker.say(call(attachment=2))
    answer = await result(worker)
    assert (answer.attachment, answer.call_id, answer.ask.turn.reply) == (2, 1, "b says well?")
    assert [(made[0], made[1]) for made in mesh.handlers.calls] == [("ask", "c")]


async def test_a_call_names_the_turn_it_is_made_from(mesh: FakeMesh) -> None:
    worker = await attached(mesh)
    turn_id = mesh.queue("a")
    start = await worker.start()
    await worker.say(call(turn_id=turn_id))
    assert (await result(worker)).HasField("ask")
    assert mesh.handlers.calls[0][3] == turn_id
    await worker.say(ended(start))
    await worker.next("ended_ack")
    await worker.say(call(2, turn_id=turn_id))
    assert (await result(worker)).error.code == "failed_precondition"


async def test_a_call_from_a_turn_of_another_agent_is_refused(mesh: FakeMesh) -> None:
    token, other = mesh.agent("a"), mesh.agent("c")
    worker = mesh.worker(token)
    await worker.attach(token, 1)
    await worker.attach(other, 2)
    turn_id = mesh.queue("c")
    await worker.start()
    await worker.say(call(turn_id=turn_id))
    assert (await result(worker)).error.code == "failed_precondition"
    assert mesh.handlers.calls == []


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (call(ask=msg.AskRequest(agent="b", text="")), "text: "),
        (call(ask=msg.AskRequest(agent="b", text="x" * 65537)), "text: "),
        (call(ask=msg.AskRequest(agent="b", text="x" * 65536)), ""),
        (call(ask=msg.AskRequest(agent="b", text="🙂" * 16384)), ""),
        (call(ask=msg.AskRequest(agent="b", text="🙂" * 16384 + "x")), "text: "),
        (call(ask=msg.AskRequest(agent="b", text="a\0b")), "text: must not contain the NUL"),
        (call(ask=msg.AskRequest(agent="b", text="x", request_id="not a uuid")), "request_id: "),
        (pb.WorkerItem(call=pb.Call(attachment=1, call_id=1)), "method: "),
    ],
)
async def test_the_limits_of_the_contract_hold_and_the_stream_goes_on(
    mesh: FakeMesh, item: pb.WorkerItem, message: str
) -> None:
    worker = await attached(mesh)
    await worker.say(item)
    error = (await result(worker)).error
    assert error.code == ("invalid_argument" if message else "")
    assert error.message.startswith(message)
    await worker.beat()


async def test_a_refusal_carries_its_reason_and_details(mesh: FakeMesh) -> None:
    worker = await attached(mesh)
    mesh.handlers.refusals["ask"] = HoplineError(
        "pair_budget_exceeded", "too often", details={"count": 30, "agent": "b"}, retry_after=12.5
    )
    await worker.say(call())
    error = (await result(worker)).error
    assert (error.code, error.message, error.retryable) == ("pair_budget_exceeded", "too often", True)
    assert MessageToDict(error.details) == {"count": 30, "agent": "b", "retry_after_seconds": 12.5}


async def test_a_defect_says_an_id_and_nothing_else(mesh: FakeMesh) -> None:
    worker = await attached(mesh)
    mesh.handlers.refusals["ask"] = RuntimeError("secret")  # type: ignore[assignment]
    await worker.say(call())
    error = (await result(worker)).error
    assert error.code == "internal"
    assert "secret" not in error.message


async def test_a_call_of_an_agent_that_is_not_attached_is_refused(mesh: FakeMesh) -> None:
    worker = await attached(mesh)
    await worker.say(call(attachment=7))
    answer = await result(worker)
    assert (answer.attachment, answer.error.code) == (7, "unavailable")


async def test_a_call_that_is_repeated_while_it_is_served_is_served_once(mesh: FakeMesh) -> None:
    worker = await attached(mesh)
    answer = waits(mesh)
    await worker.say(call(), call())
    await worker.beat()
    answer.set_result(completed("so"))
    await result(worker)
    assert (len(mesh.handlers.calls), mesh.handlers.repeats) == (1, 1)


@pytest.mark.parametrize(("more", "refused"), [(-1, 0), (0, 0), (1, 1)])
async def test_the_number_of_outstanding_calls_is_bounded(mesh: FakeMesh, more: int, refused: int) -> None:
    worker = await attached(mesh, max_turns=1)
    answer = waits(mesh)
    count = 258 + more
    await worker.say(*(call(number) for number in range(count)))
    await worker.beat()
    answer.set_result(completed("so"))
    codes = [(await result(worker)).error.code for _ in range(count)]
    assert codes.count("overloaded") == refused


async def test_calling_a_wait_off_ends_only_the_wait(mesh: FakeMesh) -> None:
    worker = await attached(mesh)
    answer = waits(mesh)
    await worker.say(call())
    await worker.beat()
    await worker.say(cancel())
    await worker.beat()
    await mesh.clock.settle()
    assert answer.cancelled()
    await worker.say(call(2, ask=msg.AskRequest(agent="c", text="and you?")))
    assert (await result(worker)).call_id == 2


async def test_calls_that_are_called_off_before_they_begin_leave_nothing_behind(mesh: FakeMesh) -> None:
    worker = await attached(mesh, max_turns=1)
    for number in range(300):
        await worker.say(call(number), cancel(number))
    await worker.say(call(1000))
    while (answer := await result(worker)).call_id != 1000:
        pass
    assert answer.HasField("ask")


async def test_a_send_that_is_called_off_is_made_all_the_same(mesh: FakeMesh) -> None:
    worker = await attached(mesh)
    gate = mesh.handlers.gates.setdefault("send", asyncio.Event())
    await worker.say(call(send=msg.SendRequest(to=["b"], text="hello")), cancel())
    await worker.beat()
    gate.set()
    assert (await result(worker)).send.message_id == "msg_sent"


async def test_an_answer_that_crosses_the_calling_off_is_delivered_again(mesh: FakeMesh) -> None:
    worker = await attached(mesh)
    await worker.say(call())
    await result(worker)
    await worker.say(cancel())
    await worker.beat()
    await mesh.clock.settle()
    assert mesh.handlers.handed_back == ["trn_asked"]


async def test_messages_that_cross_the_calling_off_are_unread_again(mesh: FakeMesh) -> None:
    worker = await attached(mesh)
    await worker.say(call(take_inbox=msg.TakeInboxRequest()))
    await result(worker)
    await worker.say(cancel())
    await worker.beat()
    assert mesh.handlers.handed_back == ["msg_taken"]


async def test_an_answer_that_was_never_written_is_delivered_again(mesh: FakeMesh) -> None:
    worker = await attached(mesh)
    answer = waits(mesh)
    await worker.say(call())
    await worker.beat()
    # The worker has read all there was and does not come back for more: what follows stays unread.
    answer.set_result(completed("too late"))
    await mesh.clock.settle()
    worker.stream.cancel()
    await mesh.clock.settle()
    assert mesh.handlers.handed_back == ["trn_asked"]


async def test_a_stream_that_breaks_ends_the_waits_on_it(mesh: FakeMesh) -> None:
    worker = await attached(mesh)
    answer = waits(mesh)
    await worker.say(call())
    await worker.beat()
    worker.stream.cancel()
    await mesh.clock.settle()
    assert answer.cancelled()


async def test_losing_the_credential_ends_the_waits_made_with_it(mesh: FakeMesh) -> None:
    token = mesh.agent("a")
    worker = mesh.worker(token)
    await worker.attach(token)
    answer = waits(mesh)
    await worker.say(call())
    await worker.beat()
    mesh.revoke(token)
    await worker.next("detached")
    await mesh.clock.settle()
    assert answer.cancelled()


async def test_results_that_are_ready_together_leave_in_one_frame(mesh: FakeMesh) -> None:
    worker = await attached(mesh)
    answer = waits(mesh)
    await worker.say(*(call(number) for number in range(50)))
    await worker.beat()
    before = worker.frames
    answer.set_result(completed("so"))
    for _ in range(50):
        await result(worker)
    assert worker.frames - before <= 2


async def test_a_call_without_a_fresh_credential_is_refused(mesh: FakeMesh) -> None:
    worker = await attached(mesh)
    mesh.reachable = False
    for _ in range(3):
        await mesh.clock.advance(21)
        await worker.beat()
    await worker.say(call())
    assert (await result(worker)).error.code == "unavailable"


def send(text: str = "hello") -> msg.SendRequest:
    return msg.SendRequest(to=["b"], text=text)


async def test_a_frame_of_sends_starts_no_task_and_is_answered_in_one(mesh: FakeMesh) -> None:
    worker = await attached(mesh, max_turns=1)
    gate = mesh.handlers.gates.setdefault("send", asyncio.Event())
    await worker.beat()
    before = len(asyncio.all_tasks())
    await worker.say(*(call(number, send=send()) for number in range(50)))
    await worker.beat()
    made = len(asyncio.all_tasks()) - before
    frames = worker.frames
    gate.set()
    assert {(await result(worker)).call_id for _ in range(50)} == set(range(50))
    assert worker.frames - frames <= 2
    assert made == 50  # those of the fake itself


@pytest.mark.parametrize("first", ["ask", "send"])
async def test_calls_of_one_frame_begin_in_its_order(mesh: FakeMesh, first: str) -> None:
    worker = await attached(mesh)
    items = [call(1), call(2, send=send())]
    await worker.say(*(items if first == "ask" else reversed(items)))
    await result(worker)
    await result(worker)
    made = [each[0] for each in mesh.handlers.calls]
    assert made == ([first, "send"] if first == "ask" else [first, "ask"])


@pytest.mark.parametrize("method", ["send", "reply"])
@pytest.mark.parametrize("failure", [HoplineError("thread_full", "full"), RuntimeError("secret")])
async def test_what_a_queued_call_comes_to_is_told_as_to_any_other(
    mesh: FakeMesh, method: str, failure: HoplineError
) -> None:
    worker = await attached(mesh)
    request: Any = send() if method == "send" else msg.ReplyRequest(message_id="msg_1", text="so")
    await worker.say(call(1, **{method: request}))
    assert getattr(await result(worker), method).message_id == (
        "msg_sent" if method == "send" else "msg_reply"
    )
    mesh.handlers.refusals[method] = failure
    await worker.say(call(2, **{method: request}))
    error = (await result(worker)).error
    assert error.code == ("thread_full" if isinstance(failure, HoplineError) else "internal")
    assert "secret" not in error.message


async def test_a_send_that_breaks_a_limit_or_comes_from_no_turn_is_refused(mesh: FakeMesh) -> None:
    worker = await attached(mesh)
    await worker.say(call(1, send=send("")), call(2, turn_id="trn_none", send=send()), call(3, send=send()))
    codes = {answer.call_id: answer.error.code for answer in [await result(worker) for _ in range(3)]}
    assert codes == {1: "invalid_argument", 2: "failed_precondition", 3: ""}
    assert len(mesh.handlers.calls) == 1


async def test_a_send_with_a_credential_that_was_taken_away_is_not_made(mesh: FakeMesh) -> None:
    worker = await attached(mesh)
    mesh.revoked.update(principal.token_id for principal in mesh.principals.values())
    await worker.say(call(send=send()))
    assert (await result(worker)).error.code == "unauthenticated"
    assert mesh.handlers.calls == []


async def test_a_send_that_takes_too_long_is_answered_and_made_all_the_same(
    mesh: FakeMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {**tunnel_calls._RULES, "send": replace(tunnel_calls._RULES["send"], deadline=0.02)}
    monkeypatch.setattr(tunnel_calls, "_RULES", short)
    worker = await attached(mesh)
    gate = mesh.handlers.gates.setdefault("send", asyncio.Event())
    await worker.say(call(send=send()))
    assert (await result(worker)).error.code == "deadline_exceeded"
    gate.set()
    await worker.say(call(2, done=msg.DoneRequest(message_id="msg_1")))
    assert (await result(worker)).call_id == 2
    assert [each[0] for each in mesh.handlers.calls] == ["send", "done"]
