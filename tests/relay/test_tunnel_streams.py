"""What a worker sees of its stream: attaching, turns, ends, and everything that can go wrong with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hopline.registry.v1.agent_pb2 import THINKING_LEVEL_LOW as LOW
from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline_rpc.errors import HoplineError

from tests.support.fake_turns import FakeMesh, RawWorker, accepted, ended, fake_mesh


@pytest.fixture(params=["in process", "socket"])
async def mesh(request: pytest.FixtureRequest) -> AsyncIterator[FakeMesh]:
    async with fake_mesh(socket=request.param == "socket") as running:
        yield running


@pytest.fixture
async def local() -> AsyncIterator[FakeMesh]:
    async with fake_mesh() as running:
        yield running


async def test_a_turn_goes_to_the_worker_and_its_answer_is_recorded(mesh: FakeMesh) -> None:
    token = mesh.agent("b", soul="calm", instructions="be brief", model_id="m1", thinking_level=LOW)
    worker = mesh.worker(token)
    attached = (await worker.attach(token)).attached
    assert (attached.agent_id, attached.agent_name, attached.epoch) == ("agt_b", "b", 1)
    turn_id = mesh.queue("b", "what is the time?")
    start = await worker.start()
    assert (start.turn_id, start.attempt, start.depth, start.cause) == (turn_id, 1, 1, "ask")
    assert (start.soul, start.instructions) == ("calm", "be brief")
    assert (start.model_id, start.thinking_level) == ("m1", "low")
    assert getattr(start, "from") == "sender (for Alice)"
    assert "what is the time?" in start.prompt
    assert start.prompt.startswith("Message from agent sender (for Alice), depth 1")
    await worker.say(accepted(start))
    await worker.beat()
    await worker.say(ended(start, answer="noon"))
    assert (await worker.next("ended_ack")).ended_ack.recorded
    assert mesh.turns.turns[turn_id].answer == "noon"
    assert ("accepted", turn_id) in mesh.turns.log


async def test_a_worker_is_told_its_agents_model_else_the_default(local: FakeMesh) -> None:
    tokens = [local.agent(name, model_id=model) for name, model in (("a", "mdl_1"), ("b", ""))]
    workers = [local.worker(token) for token in tokens]
    for worker, token in zip(workers, tokens, strict=True):
        await worker.attach(token)

    async def told() -> list[str]:
        found = []
        for name, worker in zip("ab", workers, strict=True):
            local.queue(name, "well?")
            start = await worker.start()
            await worker.say(accepted(start), ended(start, answer="so"))
            await worker.next("ended_ack")
            found.append(start.model_id)
        return found

    local.model("mdl_1", "opus-4")
    local.model("mdl_2", "haiku-4", is_default=True)
    assert await told() == ["opus-4", "haiku-4"]
    local.model("mdl_1", "opus-5", is_default=True)
    local.model("mdl_2", "haiku-4")
    assert await told() == ["opus-5", "opus-5"]


async def test_a_person_s_prompt_is_not_fenced(local: FakeMesh) -> None:
    token = local.agent("b")
    worker = local.worker(token)
    await worker.attach(token)
    local.queue("b", "just do it", sender_kind="user")
    assert (await worker.start()).prompt == "just do it"


async def test_one_stream_carries_many_agents_each_with_its_own_credential(mesh: FakeMesh) -> None:
    tokens = {name: mesh.agent(name) for name in ("a", "b", "c")}
    worker = mesh.worker(tokens["a"])
    for number, (_, token) in enumerate(tokens.items(), 1):
        await worker.attach(token, number)
    mesh.queue("c", "for c")
    mesh.queue("a", "for a")
    starts = sorted([await worker.start(), await worker.start()], key=lambda start: start.attachment)
    assert [(start.attachment, start.messages[0].body) for start in starts] == [(1, "for a"), (3, "for c")]


async def test_every_bad_credential_answers_alike(local: FakeMesh) -> None:
    good = local.agent("a")
    expired, revoked = local.token("a", expires_in=5), local.token("a")
    unknown_agent = local.token("never-created")
    local.revoke(revoked)
    short = local.assertion(good, life=5)
    await local.clock.advance(6)
    worker = local.worker(good)
    await worker.attach(good, 1)
    bad = ["hpl_a_" + "x" * 43, "not a token", expired, revoked, unknown_agent, short]
    answers = set()
    for number, credential in enumerate(bad, 2):
        detached = (await worker.attach(credential, number)).detached
        answers.add((detached.code, detached.message))
    assert answers == {("unauthenticated", "a valid credential is needed")}


async def test_a_token_of_a_person_does_not_attach(local: FakeMesh) -> None:
    good, person = local.agent("a"), local.token("alice", "user")
    worker = local.worker(good)
    assert (await worker.attach(person)).detached.code == "permission_denied"


async def test_a_paused_agent_does_not_attach(local: FakeMesh) -> None:
    token = local.agent("a")
    local.pause("a")
    assert (await local.worker(token).attach(token)).detached.code == "agent_paused"


@pytest.mark.parametrize(("isolation", "refused"), [("none", True), ("", True), ("user", False)])
async def test_a_policy_may_require_isolation(local: FakeMesh, isolation: str, *, refused: bool) -> None:
    token = local.agent("a")
    local.policy(require_isolation=True)
    answer = await local.worker(token).attach(token, isolation=isolation)
    assert answer.detached.code == ("failed_precondition" if refused else "")


@pytest.mark.parametrize(
    ("max_turns", "code"), [(0, "invalid_argument"), (1, ""), (1000, ""), (1001, "invalid_argument")]
)
async def test_the_number_of_turns_at_once_has_limits(local: FakeMesh, max_turns: int, code: str) -> None:
    token = local.agent("a")
    assert (await local.worker(token).attach(token, max_turns=max_turns)).detached.code == code


async def test_an_attachment_number_is_used_once(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    with pytest.raises(HoplineError, match="in use on this stream"):
        await worker.attach(token)


async def test_a_worker_gets_no_more_turns_than_it_takes(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token, max_turns=2)
    turns = [local.queue("a") for _ in range(3)]
    first, second = await worker.start(), await worker.start()
    assert [first.turn_id, second.turn_id] == turns[:2]
    await worker.beat()
    assert local.state(turns[2]) == "queued"
    await worker.say(ended(first))
    assert (await worker.start()).turn_id == turns[2]


async def test_a_turn_that_ends_in_the_frame_that_accepts_it_is_written_once(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    turn_id = local.queue("a")
    start = await worker.start()
    await worker.say(accepted(start), ended(start))
    await worker.next("ended_ack")
    assert local.turns.log == [("end", turn_id)]


async def test_the_end_of_a_turn_comes_after_what_it_sent(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    turn_id = local.queue("a")
    start = await worker.start()
    gate = local.handlers.gates.setdefault("send", asyncio.Event())
    call = pb.Call(attachment=1, call_id=1, turn_id=turn_id)
    call.send.to.append("b")
    call.send.text = "by the way"
    await worker.say(pb.WorkerItem(call=call), ended(start))
    await worker.beat()
    assert ("end", turn_id) not in local.turns.log
    gate.set()
    await worker.next("ended_ack")
    assert ("end", turn_id) in local.turns.log


@pytest.mark.parametrize(
    ("answer", "state", "failure"),
    [("x" * (256 * 1024), "completed", ""), ("", "completed", ""), ("a\0b", "failed", "NUL")],
)
async def test_an_answer_is_passed_on_whole_or_fails_the_turn(
    local: FakeMesh, answer: str, state: str, failure: str
) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    turn_id = local.queue("a")
    await worker.say(ended(await worker.start(), answer=answer))
    assert (await worker.next("ended_ack")).ended_ack.recorded
    turn = local.turns.turns[turn_id]
    assert turn.state == state
    assert failure in (turn.failure or "")
    assert turn.answer == (answer if state == "completed" else None)


async def test_a_failure_and_a_cancellation_are_recorded_as_such(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    failing, stopping = local.queue("a"), local.queue("a")
    first, second = await worker.start(), await worker.start()
    await worker.say(ended(first, failure="out of\0memory"), ended(second, canceled=True))
    await worker.next("ended_ack")
    await worker.next("ended_ack")
    assert local.turns.turns[failing].failure == "out of\N{REPLACEMENT CHARACTER}memory"
    assert local.state(stopping) == "canceled"


@pytest.mark.parametrize("stale", ["attempt", "turn"])
async def test_a_stale_frame_is_refused_and_told(local: FakeMesh, stale: str) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    turn_id = local.queue("a")
    item = ended(await worker.start())
    if stale == "attempt":
        item.ended.attempt = 7
    else:
        item.ended.turn_id = "trn_other"
    await worker.say(item)
    assert not (await worker.next("ended_ack")).ended_ack.recorded
    assert local.state(turn_id) == "running"


async def test_an_end_that_the_store_cannot_take_is_written_again(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    turn_id = local.queue("a")
    local.turns.failures["end"] = [HoplineError("unavailable", "no disk")]
    await worker.say(ended(await worker.start()))
    await worker.beat()
    assert local.state(turn_id) == "running"
    await local.clock.advance(1)
    assert (await worker.next("ended_ack")).ended_ack.recorded


async def test_an_end_that_cannot_be_recorded_gives_the_turn_to_another_attempt(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    turn_id = local.queue("a")
    local.turns.failures["end"] = [RuntimeError("a defect")]
    await worker.say(ended(await worker.start()))
    assert not (await worker.next("ended_ack")).ended_ack.recorded
    assert local.state(turn_id) == "lost"


async def test_a_heartbeat_renews_all_leases_of_an_agent_at_once(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    turns = sorted([local.queue("a"), local.queue("a")])
    await worker.start()
    await worker.start()
    await worker.beat()
    await local.clock.settle()
    assert local.turns.log == [("renew", turns)]


async def test_a_turn_whose_lease_is_gone_is_stopped_once(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    turn_id = local.queue("a")
    start = await worker.start()
    local.turns.turns[turn_id].attempt = 2
    await worker.beat()
    cancel = (await worker.next("cancel")).cancel
    assert (cancel.turn_id, cancel.attempt) == (turn_id, 1)
    await worker.beat()
    await worker.say(ended(start, canceled=True))
    assert not (await worker.next("cancel", "ended_ack")).ended_ack.recorded


async def test_cancelling_reaches_the_worker_and_its_room_is_free_once_it_stopped(mesh: FakeMesh) -> None:
    token = mesh.agent("a")
    worker = mesh.worker(token)
    await worker.attach(token, max_turns=1)
    first = mesh.queue("a")
    start = await worker.start()
    second = mesh.queue("a")
    mesh.cancel(first, "the caller went away")
    assert (await worker.next("cancel")).cancel.reason == "the caller went away"
    await worker.beat()
    assert mesh.state(second) == "queued"
    await worker.say(ended(start, canceled=True))
    assert (await worker.start()).turn_id == second


async def test_a_broken_stream_loses_nothing_and_its_turns_are_resumed(mesh: FakeMesh) -> None:
    token = mesh.agent("a")
    worker = mesh.worker(token)
    await worker.attach(token)
    turn_id = mesh.queue("a")
    start = await worker.start()
    worker.stream.cancel()
    await mesh.turns.lost.wait()
    again = mesh.worker(token)
    held = [pb.HeldTurn(turn_id=turn_id, attempt=1), pb.HeldTurn(turn_id="trn_other", attempt=1)]
    attached = (await again.attach(token, held=held)).attached
    assert attached.epoch == 2
    assert [(one.turn_id, one.attempt) for one in attached.resumed] == [(turn_id, 1)]
    await again.say(ended(start))
    assert (await again.next("ended_ack")).ended_ack.recorded


async def test_a_worker_that_comes_back_replaces_the_stream_it_left(local: FakeMesh) -> None:
    token = local.agent("a")
    old, new = local.worker(token), local.worker(token)
    await old.attach(token)
    turn_id = local.queue("a")
    start = await old.start()
    await new.attach(token, held=[pb.HeldTurn(turn_id=turn_id, attempt=1)])
    assert (await old.next("detached")).detached.code == "unavailable"
    await old.say(ended(start))
    await old.beat()
    assert local.state(turn_id) == "running"
    await new.say(ended(start))
    assert (await new.next("ended_ack")).ended_ack.recorded


async def test_two_workers_of_one_agent_share_its_turns(local: FakeMesh) -> None:
    token = local.agent("a")
    first, second = local.worker(token), local.worker(token)
    await first.attach(token, max_turns=1)
    await second.attach(token, max_turns=1)
    turns = {local.queue("a"), local.queue("a")}
    assert {(await first.start()).turn_id, (await second.start()).turn_id} == turns


async def test_a_revoked_token_ends_its_attachment_and_no_other(local: FakeMesh) -> None:
    token, other, neighbour = local.agent("a"), local.token("a"), local.agent("b")
    worker = local.worker(token)
    await worker.attach(token, 1)
    await worker.attach(other, 2)
    await worker.attach(neighbour, 3)
    local.revoke(token)
    detached = (await worker.next("detached")).detached
    assert (detached.attachment, detached.code) == (1, "unauthenticated")
    local.queue("b")
    assert (await worker.start()).attachment == 3
    local.queue("a")
    assert (await worker.start()).attachment == 2


async def test_pausing_an_agent_ends_its_attachments_within_the_call(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    local.queue("a")
    await worker.start()
    assert local.dispatcher.presence("ws_1", "agt_a") == "busy"
    local.pause("a")
    assert local.dispatcher.presence("ws_1", "agt_a") is None
    assert (await worker.next("detached")).detached.code == "agent_paused"


async def test_an_agent_paused_while_it_attaches_is_refused(local: FakeMesh) -> None:
    token = local.agent("a")
    gate = local.turns.hold("attach")
    worker = local.worker(token)
    attaching = asyncio.ensure_future(worker.attach(token))
    await local.clock.settle()
    local.pause("a")
    gate.set()
    assert (await attaching).detached.code == "agent_paused"


async def test_an_assertion_that_expires_ends_its_attachment(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(local.assertion(token, life=20))
    await local.clock.advance(19)
    assert local.dispatcher.presence("ws_1", "agt_a") == "idle"
    await local.clock.advance(1)
    assert (await worker.next("detached")).detached.code == "unauthenticated"


async def test_a_token_is_good_for_as_long_as_it_lives(local: FakeMesh) -> None:
    token, brief = local.agent("a"), local.token("a", expires_in=100)
    worker = local.worker(token)
    await worker.attach(token, 1)
    await worker.attach(brief, 2)
    for _ in range(11):
        await local.clock.advance(10)
        await worker.beat()
    assert (await worker.next("detached")).detached.attachment == 2
    assert local.dispatcher.places("ws_1", "agt_a") == 4


async def test_a_registry_out_of_reach_does_not_end_tunnels_before_a_lease_would(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    local.reachable = False
    for _ in range(8):
        await local.clock.advance(10)
        await worker.beat()
    assert local.dispatcher.presence("ws_1", "agt_a") == "idle"
    await local.clock.advance(15)
    assert (await worker.next("detached")).detached.code == "unavailable"


async def test_a_worker_leaves_when_it_says_so(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    await worker.say(pb.WorkerItem(detach=pb.DetachAgent(attachment=1)))
    assert (await worker.next("detached")).detached.code == ""
    assert local.dispatcher.presence("ws_1", "agt_a") is None
    await worker.stream.done_writing()
    assert await worker.rest() == []


async def test_a_turn_that_a_leaving_worker_has_not_taken_goes_to_another_at_once(local: FakeMesh) -> None:
    token = local.agent("a")
    leaving, staying = local.worker(token), local.worker(token)
    await leaving.attach(token)
    taken, untaken = local.queue("a"), local.queue("a")
    await leaving.say(accepted(await leaving.start()))
    await leaving.start()
    await staying.attach(token)
    await leaving.say(pb.WorkerItem(detach=pb.DetachAgent(attachment=1)))
    await leaving.next("detached")
    assert ("given back", untaken) in local.turns.log
    assert local.state(taken) == "lost"
    local.turns.on_claimable({("ws_1", "agt_a")})
    start = await staying.start()
    assert (start.turn_id, start.attempt) == (untaken, 1)


async def test_what_was_said_before_the_worker_closed_is_answered(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    local.queue("a")
    gate = local.turns.hold("end")
    await worker.say(ended(await worker.start()))
    await worker.stream.done_writing()
    gate.set()
    assert [item.ended_ack.recorded for item in await worker.rest()] == [True]


async def test_a_stream_without_a_heartbeat_ends_after_a_lease(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    turn_id = local.queue("a")
    await worker.start()
    await local.clock.advance(20)
    await worker.beat()
    reading = asyncio.ensure_future(worker.next("detached"))
    await local.clock.advance(29)
    assert not reading.done()
    await local.clock.advance(1)
    with pytest.raises(HoplineError, match="no heartbeat"):
        await reading
    assert local.state(turn_id) == "lost"


async def test_a_worker_that_does_not_read_loses_its_stream(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    # An echo a heartbeat, none of them read: after a while nothing more is taken from this worker.
    flooding = asyncio.ensure_future(flood(worker))
    await local.clock.settle(20_000)
    assert not flooding.done()
    await local.clock.advance(30)
    with pytest.raises(HoplineError) as ended_by:
        await worker.next("detached")
    assert ended_by.value.reason == "overloaded"
    with pytest.raises((asyncio.CancelledError, HoplineError, asyncio.InvalidStateError)):
        await flooding


async def flood(worker: RawWorker) -> None:
    while True:
        await worker.say(*(pb.WorkerItem(heartbeat=pb.Heartbeat()) for _ in range(1000)))


async def test_a_frame_with_too_many_items_is_refused(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    await worker.say(*(pb.WorkerItem(heartbeat=pb.Heartbeat()) for _ in range(1025)))
    with pytest.raises(HoplineError, match="at most 1024"):
        await worker.next("detached")


async def test_a_drain_asks_workers_to_go_elsewhere_and_starts_nothing(mesh: FakeMesh) -> None:
    token = mesh.agent("a")
    worker = mesh.worker(token)
    await worker.attach(token)
    turn_id = mesh.queue("a")
    start = await worker.start()
    draining = asyncio.ensure_future(mesh.servicer.drain(10))
    await worker.next("draining")
    late = mesh.queue("a")
    await worker.say(ended(start))
    assert (await worker.next("ended_ack")).ended_ack.recorded
    await worker.stream.done_writing()
    await worker.rest()
    await draining
    assert (mesh.state(turn_id), mesh.state(late)) == ("completed", "queued")
    with pytest.raises(HoplineError, match="shutting down"):
        await mesh.worker(token).attach(token)


async def test_a_drain_does_not_wait_for_ever(local: FakeMesh) -> None:
    token = local.agent("a")
    worker = local.worker(token)
    await worker.attach(token)
    turn_id = local.queue("a")
    await worker.start()
    draining = asyncio.ensure_future(local.servicer.drain(10))
    await worker.next("draining")
    await local.clock.advance(9)
    assert not draining.done()
    await local.clock.advance(1)
    await draining
    with pytest.raises(HoplineError, match="shutting down"):
        await worker.next("detached")
    assert local.state(turn_id) == "lost"


async def test_a_frame_that_cannot_be_read_ends_the_stream_in_our_words() -> None:
    async with fake_mesh(socket=True) as mesh:
        token = mesh.agent("b")
        attach = mesh.channel(token).stream_stream(
            "/hopline.runtime.v1.TunnelService/Attach",
            request_serializer=None,
            response_deserializer=pb.AttachResponse.FromString,
        )
        stream = attach()
        await stream.write(b"\x0a\x7f\x00")
        with pytest.raises(HoplineError) as caught:
            await stream.read()
        assert caught.value.reason == "invalid_argument"
        assert "no message of the type" in caught.value.message


async def test_a_worker_that_hangs_up_while_it_says_something_is_no_error_of_the_relay(
    local: FakeMesh, caplog: pytest.LogCaptureFixture
) -> None:
    token = local.agent("b")
    worker = local.worker(token)
    await worker.attach(token)
    await local.clock.settle()
    await worker.say(pb.WorkerItem(heartbeat=pb.Heartbeat()))
    worker.stream.cancel()
    await local.clock.settle()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
