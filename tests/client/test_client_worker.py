"""A worker against a relay's real tunnels: turns, calls, breaks, refusals and the way out."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
import pytest
from hopline.runtime.v1.tunnel_pb2 import AttachResponse, CancelTurn, StartTurn, TurnEndedAck
from hopline.runtime.v1.tunnel_pb2_grpc import TunnelServiceServicer, add_TunnelServiceServicer_to_server
from hopline_client import Handler, HoplineError, Host, Turn, Worker
from hopline_client.discovery import Endpoints, TokenSource
from hopline_rpc.ids import seeded_ids
from hopline_rpc.serving import Server

from tests.support.fake_turns import FakeMesh, completed, fake_mesh

Running = tuple[Worker, "asyncio.Task[None]"]


class Stage:
    """A mesh, and workers that find it wherever it listens at the moment."""

    def __init__(self, mesh: FakeMesh) -> None:
        self.mesh = mesh
        self.dials = 0
        self.reachable = True
        self._running: list[Running] = []

    async def endpoints(self) -> Endpoints:
        if not self.reachable:
            raise HoplineError("unavailable", "no mesh is running")
        return Endpoints(relay="relay")

    def dial(self, target: str) -> grpc.aio.Channel:
        assert target == "relay"
        self.dials += 1
        if self.mesh.address:
            return grpc.aio.insecure_channel(self.mesh.address)
        return self.mesh.server.channel()

    def worker(self, handler: Handler, token: str | TokenSource, **options: Any) -> Worker:
        return Worker(self, handler, token=token, dial=self.dial, clock=self.mesh.clock, **options)

    async def start(self, handler: Handler, token: str | TokenSource, **options: Any) -> Worker:
        worker = self.worker(handler, token, **options)
        self._running.append((worker, asyncio.create_task(worker.run())))
        await worker.ready()
        return worker

    def task(self, worker: Worker) -> asyncio.Task[None]:
        return next(task for one, task in self._running if one is worker)

    async def ended(self, turn_id: str) -> str:
        """Wait until a turn has ended, and return its state."""
        for _ in range(2000):
            if self.mesh.state(turn_id) in {"completed", "failed", "canceled"}:
                return self.mesh.state(turn_id)
            await self.settle()
        raise AssertionError(f"the turn is still {self.mesh.state(turn_id)}")

    async def settle(self) -> None:
        await self.mesh.clock.settle()
        if self.mesh.address:
            # The other side of a socket is another thread's business: one round of the poller.
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)

    async def break_streams(self) -> None:
        """Break every stream, as a network would."""
        self.mesh.server.live.end(lambda call: call.streaming, HoplineError("unavailable", "the line is cut"))
        await self.settle()

    async def close(self) -> None:
        for _, task in self._running:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, HoplineError):
                await task


@pytest.fixture(params=["in process", "socket"])
async def anywhere(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with fake_mesh(socket=request.param == "socket") as mesh:
        stage = Stage(mesh)
        yield stage
        await stage.close()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with fake_mesh() as mesh:
        running = Stage(mesh)
        yield running
        await running.close()


async def echo(turn: Turn) -> str:
    return f"you said {turn.text}"


class Paused:
    """A handler that stays in its turns until the test lets it go on."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.entered = asyncio.Event()
        self.cancelled: list[str] = []
        self.turns: list[Turn] = []

    async def __call__(self, turn: Turn) -> str:
        self.turns.append(turn)
        self.entered.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.append(turn.id)
            raise
        return "done"


async def test_a_worker_answers_what_it_is_asked(anywhere: Stage) -> None:
    await anywhere.start(echo, anywhere.mesh.agent("b"))
    turn_id = anywhere.mesh.queue("b", "hello")
    assert await anywhere.ended(turn_id) == "completed"
    assert anywhere.mesh.turns.turns[turn_id].answer == "you said hello"


async def test_a_turn_tells_all_that_its_handler_needs(stage: Stage) -> None:
    handler = Paused()
    await stage.start(handler, stage.mesh.agent("b", soul="calm", instructions="be brief", model_id="m1"))
    turn_id = stage.mesh.queue("b", "hello")
    await handler.entered.wait()
    turn = handler.turns[0]
    assert (turn.id, turn.attempt, turn.depth, turn.cause, turn.channel) == (turn_id, 1, 1, "ask", "relay")
    assert (turn.from_, turn.session_id, turn.session_title) == ("sender (for Alice)", "ses_1", "From sender")
    assert (turn.soul, turn.instructions, turn.model_id) == ("calm", "be brief", "m1")
    assert turn.text == turn.messages[0].body == "hello"
    assert turn.messages[0].sender.display == "sender (for Alice)"
    assert "treat it as data" in turn.prompt
    assert turn.deadline == stage.mesh.clock.now() + 3600


async def test_a_handler_may_write_its_answer_in_pieces(stage: Stage) -> None:
    async def write(turn: Turn) -> AsyncIterator[str]:
        yield "one, "
        await asyncio.sleep(0)
        yield "two"

    await stage.start(write, stage.mesh.agent("b"))
    turn_id = stage.mesh.queue("b")
    assert await stage.ended(turn_id) == "completed"
    assert stage.mesh.turns.turns[turn_id].answer == "one, two"


@pytest.mark.parametrize(
    ("give", "failure"),
    [
        (lambda: "x" * (256 * 1024 + 1), "at most 262144"),
        (lambda: "half \ud83d of a pair", "not valid Unicode"),
        (lambda: 7, "returned int"),
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: "a\0b", "NUL"),
        (lambda: sys.exit("no luck"), "called sys.exit('no luck')"),
    ],
)
async def test_a_handler_that_gives_no_answer_fails_its_turn_and_says_why(
    stage: Stage, give: Callable[[], Any], failure: str
) -> None:
    async def handle(turn: Turn) -> str:
        return give()  # type: ignore[no-any-return]

    await stage.start(handle, stage.mesh.agent("b"))
    turn_id = stage.mesh.queue("b")
    assert await stage.ended(turn_id) == "failed"
    assert failure in str(stage.mesh.turns.turns[turn_id].failure)


@pytest.mark.parametrize("answer", ["x" * (256 * 1024), "🙂" * (64 * 1024), "", None])
async def test_an_answer_of_any_allowed_size_arrives_whole(stage: Stage, answer: str | None) -> None:
    async def handle(turn: Turn) -> str | None:
        return answer

    await stage.start(handle, stage.mesh.agent("b"))
    turn_id = stage.mesh.queue("b")
    assert await stage.ended(turn_id) == "completed"
    assert stage.mesh.turns.turns[turn_id].answer == (answer or "")


async def test_a_worker_runs_as_many_turns_at_once_as_it_said(stage: Stage) -> None:
    handler = Paused()
    await stage.start(handler, stage.mesh.agent("b"), max_turns=2)
    turns = [stage.mesh.queue("b") for _ in range(3)]
    await stage.settle()
    assert [stage.mesh.state(turn_id) for turn_id in turns] == ["running", "running", "queued"]
    handler.go_on.set()
    assert [await stage.ended(turn_id) for turn_id in turns] == ["completed"] * 3


async def test_calls_travel_over_the_tunnel_as_part_of_the_turn(anywhere: Stage) -> None:
    async def handle(turn: Turn) -> str:
        answer = await turn.mesh.ask("reviewer", "is it sound?")
        sent = await turn.mesh.send(["a", "c"], "by the way", payload={"n": 1})
        reply = await turn.mesh.reply("msg_1", "thanks")
        checked = await turn.mesh.check(turn_id=answer.turn_id)
        inbox = await turn.mesh.read_inbox()
        await turn.mesh.done("msg_2")
        return f"{answer.text}, {sent.message_id}, {reply.message_id}, {checked.text}, {inbox.remaining}"

    await anywhere.start(handle, anywhere.mesh.agent("b"))
    turn_id = anywhere.mesh.queue("b")
    assert await anywhere.ended(turn_id) == "completed"
    answer = anywhere.mesh.turns.turns[turn_id].answer
    assert answer == "reviewer says is it sound?, msg_sent, msg_reply, checked, 3"
    calls = anywhere.mesh.handlers.calls
    assert [call[0] for call in calls] == ["ask", "send", "reply", "check", "take_inbox", "done"]
    assert {(call[1], call[3]) for call in calls} == {("b", turn_id)}
    assert calls[1][2].payload_json == '{"n": 1}'
    assert all(call[2].request_id for call in calls[:3])


async def test_a_refusal_reaches_the_handler_with_its_reason(stage: Stage) -> None:
    refused: list[HoplineError] = []

    async def handle(turn: Turn) -> str:
        try:
            await turn.mesh.send("a", "hello")
        except HoplineError as error:
            refused.append(error)
        return "as you like"

    refusal = HoplineError("depth_exceeded", "too many agents in a row", details={"depth": 5, "max_depth": 4})
    stage.mesh.handlers.refusals["send"] = refusal
    await stage.start(handle, stage.mesh.agent("b"))
    await stage.ended(stage.mesh.queue("b"))
    assert (refused[0].reason, refused[0].message) == ("depth_exceeded", "too many agents in a row")
    assert refused[0].details == {"depth": 5, "max_depth": 4}


async def test_an_over_long_body_is_refused_without_harm_to_the_stream(stage: Stage) -> None:
    async def handle(turn: Turn) -> str:
        try:
            await turn.mesh.send("a", "x" * 65537)
        except HoplineError as error:
            return error.message
        return "it went through"

    await stage.start(handle, stage.mesh.agent("b"))
    turn_id = stage.mesh.queue("b")
    await stage.ended(turn_id)
    assert str(stage.mesh.turns.turns[turn_id].answer).startswith("text: ")
    assert stage.dials == 1


async def test_cancelling_a_turn_reaches_its_handler(anywhere: Stage) -> None:
    handler = Paused()
    await anywhere.start(handler, anywhere.mesh.agent("b"))
    turn_id = anywhere.mesh.queue("b")
    await handler.entered.wait()
    anywhere.mesh.cancel(turn_id)
    while not handler.cancelled:
        await anywhere.settle()
    assert handler.cancelled == [turn_id]
    assert anywhere.mesh.state(turn_id) == "canceled"


async def test_a_turn_that_is_cancelled_before_its_handler_began_ends_all_the_same(stage: Stage) -> None:
    handler = Paused()
    seat = Host(stage, dial=stage.dial, clock=stage.mesh.clock).add(handler, token="t")
    seat.on_start(StartTurn(turn_id="trn_1", attempt=1))
    seat.on_cancel(CancelTurn(turn_id="trn_1", attempt=1))
    await seat.finish()
    assert handler.turns == []
    seat.on_acknowledged(TurnEndedAck(turn_id="trn_1", attempt=1))
    await seat.idle()


async def test_a_handler_that_takes_its_time_to_stop_is_cancelled_once(stage: Stage) -> None:
    cancelled: list[str] = []
    stopped = asyncio.Event()

    async def handle(turn: Turn) -> str:
        while not stopped.is_set():
            try:
                await stopped.wait()
            except asyncio.CancelledError:
                cancelled.append(turn.id)
        return "stopped"

    await stage.start(handle, stage.mesh.agent("b"))
    turn_id = stage.mesh.queue("b")
    await stage.settle()
    stage.mesh.cancel(turn_id)
    await stage.settle()
    stage.reachable = False
    await stage.break_streams()
    await stage.mesh.clock.advance(30)
    assert cancelled == [turn_id]
    stopped.set()


async def test_a_handler_that_gives_up_waiting_ends_the_wait_at_the_relay(stage: Stage) -> None:
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    stage.mesh.handlers.answers["slow"] = never

    async def handle(turn: Turn) -> str:
        asking = asyncio.ensure_future(turn.mesh.ask("slow", "are you there?"))
        await stage.settle()
        asking.cancel()
        return "I went on without it"

    await stage.start(handle, stage.mesh.agent("b"))
    await stage.ended(stage.mesh.queue("b"))
    await stage.settle()
    assert never.cancelled()


async def test_a_broken_stream_does_not_disturb_the_handler(anywhere: Stage) -> None:
    handler = Paused()
    worker = await anywhere.start(handler, anywhere.mesh.agent("b"))
    turn_id = anywhere.mesh.queue("b")
    await handler.entered.wait()
    await anywhere.break_streams()
    await anywhere.mesh.turns.lost.wait()
    while anywhere.dials < 2:
        await anywhere.mesh.clock.advance(1)
        await anywhere.settle()
    await worker.ready()
    handler.go_on.set()
    assert await anywhere.ended(turn_id) == "completed"
    assert (anywhere.mesh.turns.turns[turn_id].attempt, handler.cancelled) == (1, [])


async def test_an_answer_given_while_the_stream_is_broken_is_sent_on_the_next(stage: Stage) -> None:
    handler = Paused()
    await stage.start(handler, stage.mesh.agent("b"))
    turn_id = stage.mesh.queue("b")
    await handler.entered.wait()
    stage.reachable = False
    await stage.break_streams()
    handler.go_on.set()
    await stage.mesh.clock.advance(10)
    assert stage.mesh.state(turn_id) == "lost"
    stage.reachable = True
    await stage.mesh.clock.advance(3)
    assert await stage.ended(turn_id) == "completed"


async def test_an_end_that_was_not_acknowledged_is_said_again(stage: Stage) -> None:
    gate = stage.mesh.turns.hold("end")
    await stage.start(echo, stage.mesh.agent("b"))
    turn_id = stage.mesh.queue("b")
    await stage.settle()
    stage.mesh.turns.failures["end"] = [HoplineError("unavailable", "the stream went first")]
    await stage.break_streams()
    gate.set()
    await stage.mesh.clock.advance(3)
    assert await stage.ended(turn_id) == "completed"


async def test_a_call_that_was_under_way_is_made_again_on_the_next_stream(stage: Stage) -> None:
    loop = asyncio.get_running_loop()
    stage.mesh.handlers.answers["slow"] = loop.create_future()

    async def handle(turn: Turn) -> str:
        return (await turn.mesh.ask("slow", "are you there?")).text

    await stage.start(handle, stage.mesh.agent("b"))
    turn_id = stage.mesh.queue("b")
    await stage.settle()
    await stage.break_streams()
    stage.mesh.handlers.answers["slow"] = loop.create_future()
    stage.mesh.handlers.answers["slow"].set_result(completed("here I am"))
    await stage.mesh.clock.advance(3)
    assert await stage.ended(turn_id) == "completed"
    assert stage.mesh.turns.turns[turn_id].answer == "here I am"
    first, second = (call[2].request_id for call in stage.mesh.handlers.calls)
    assert first == second


async def test_a_turn_that_went_to_another_worker_is_stopped_on_return(stage: Stage) -> None:
    handler = Paused()
    await stage.start(handler, stage.mesh.agent("b"))
    turn_id = stage.mesh.queue("b")
    await handler.entered.wait()
    await stage.break_streams()
    stage.mesh.turns.turns[turn_id].attempt = 2
    await stage.mesh.clock.advance(3)
    assert handler.cancelled == [turn_id]


async def test_a_turn_is_stopped_before_its_lease_ends_when_the_mesh_stays_away(stage: Stage) -> None:
    handler = Paused()
    await stage.start(handler, stage.mesh.agent("b"))
    turn_id = stage.mesh.queue("b")
    await handler.entered.wait()
    stage.reachable = False
    await stage.break_streams()
    await stage.mesh.clock.advance(24)
    assert handler.cancelled == []
    await stage.mesh.clock.advance(1)
    assert handler.cancelled == [turn_id]
    assert stage.mesh.state(turn_id) == "lost"


async def test_leases_are_renewed_while_a_turn_runs(stage: Stage) -> None:
    handler = Paused()
    await stage.start(handler, stage.mesh.agent("b"))
    turn_id = stage.mesh.queue("b")
    await handler.entered.wait()
    await stage.mesh.clock.advance(60)
    renewals = [entry for entry in stage.mesh.turns.log if entry == ("renew", [turn_id])]
    assert len(renewals) == 6
    assert stage.dials == 1


async def test_a_relay_that_says_nothing_is_left(stage: Stage) -> None:
    silent = Server(
        "relay",
        authenticator=stage.mesh.authenticator,
        clock=stage.mesh.clock,
        ids=seeded_ids(stage.mesh.clock, 3),
    )
    tries: list[str] = []

    def dial(target: str) -> grpc.aio.Channel:
        tries.append(target)
        return silent.channel()

    silent.add(add_TunnelServiceServicer_to_server, Silent())
    worker = Worker(stage, echo, token=stage.mesh.agent("b"), dial=dial, clock=stage.mesh.clock)
    running = asyncio.create_task(worker.run())
    await stage.mesh.clock.advance(39)
    assert len(tries) == 1
    await stage.mesh.clock.advance(5)
    assert len(tries) == 2
    running.cancel()
    await asyncio.wait({running})
    await silent.stop()


class Silent(TunnelServiceServicer):
    """Takes streams and says nothing."""

    async def Attach(self, request_iterator: Any, context: Any) -> AsyncIterator[AttachResponse]:
        await asyncio.Event().wait()
        yield AttachResponse()


async def test_a_mesh_that_is_not_up_yet_is_waited_for(stage: Stage) -> None:
    stage.reachable = False
    worker = stage.worker(echo, stage.mesh.agent("b"))
    running = asyncio.create_task(worker.run())
    await stage.mesh.clock.advance(20)
    stage.reachable = True
    await stage.mesh.clock.advance(3)
    await worker.ready()
    await worker.stop()
    await running


async def test_a_refused_credential_ends_the_worker_with_a_clear_error(anywhere: Stage) -> None:
    for bad in ("hpl_a_" + "x" * 43, "nonsense"):
        worker = anywhere.worker(echo, bad)
        with pytest.raises(HoplineError) as refused:
            await worker.run()
        assert refused.value.reason == "unauthenticated"
    assert anywhere.dials == 2


async def test_a_person_s_token_is_refused_with_what_to_do(stage: Stage) -> None:
    with pytest.raises(HoplineError) as refused:
        await stage.worker(echo, stage.mesh.token("alice", "user")).run()
    assert refused.value.reason == "permission_denied"


async def test_a_missing_token_file_ends_the_worker_at_once(stage: Stage) -> None:
    worker = Worker(stage, echo, token_file="/nowhere/me.token", dial=stage.dial, clock=stage.mesh.clock)
    with pytest.raises(HoplineError, match="does not exist"):
        await worker.run()


async def test_plain_text_over_a_network_is_refused_before_the_token_is_sent(stage: Stage) -> None:
    worker = Worker("mesh.example.com:7402", echo, token="t", clock=stage.mesh.clock)
    with pytest.raises(HoplineError, match="no TLS"):
        await worker.run()


async def test_revoking_the_token_ends_worker_and_turns(stage: Stage) -> None:
    handler = Paused()
    token = stage.mesh.agent("b")
    worker = await stage.start(handler, token)
    stage.mesh.queue("b")
    await handler.entered.wait()
    stage.mesh.revoke(token)
    with pytest.raises(HoplineError) as refused:
        await stage.task(worker)
    assert refused.value.reason == "unauthenticated"
    assert len(handler.cancelled) == 1


async def test_a_token_that_was_rotated_goes_on_with_its_turns(stage: Stage) -> None:
    tokens = [stage.mesh.agent("b")]

    async def newest() -> str:
        return tokens[-1]

    handler = Paused()
    worker = await stage.start(handler, newest)
    turn_id = stage.mesh.queue("b")
    await handler.entered.wait()
    tokens.append(stage.mesh.token("b"))
    stage.mesh.revoke(tokens[0])
    await stage.settle()
    await worker.ready()
    handler.go_on.set()
    assert await stage.ended(turn_id) == "completed"
    assert handler.cancelled == []


async def test_a_paused_agent_stops_working_and_comes_back_when_it_is_resumed(stage: Stage) -> None:
    handler = Paused()
    await stage.start(handler, stage.mesh.agent("b"))
    stage.mesh.queue("b")
    await handler.entered.wait()
    stage.mesh.pause("b")
    await stage.settle()
    assert len(handler.cancelled) == 1
    stage.mesh.resume("b")
    await stage.mesh.clock.advance(3)
    handler.go_on.set()
    assert await stage.ended(stage.mesh.queue("b")) == "completed"


async def test_a_graceful_stop_lets_turns_end_and_takes_no_new_ones(anywhere: Stage) -> None:
    handler = Paused()
    worker = await anywhere.start(handler, anywhere.mesh.agent("b"))
    first = anywhere.mesh.queue("b")
    await handler.entered.wait()
    stopping = asyncio.create_task(worker.stop())
    await anywhere.settle()
    late = anywhere.mesh.queue("b")
    await anywhere.settle()
    handler.go_on.set()
    await stopping
    await anywhere.task(worker)
    await anywhere.settle()
    assert (anywhere.mesh.state(first), anywhere.mesh.state(late)) == ("completed", "queued")
    assert anywhere.mesh.dispatcher.presence("ws_1", "agt_b") is None


async def test_what_does_not_end_within_the_grace_goes_to_another_worker(stage: Stage) -> None:
    handler = Paused()
    worker = await stage.start(handler, stage.mesh.agent("b"))
    turn_id = stage.mesh.queue("b")
    await handler.entered.wait()
    stopping = asyncio.create_task(worker.stop(grace=10))
    await stage.mesh.clock.advance(10)
    await stopping
    assert handler.cancelled == [turn_id]
    assert stage.mesh.state(turn_id) == "lost"


async def test_a_worker_leaves_a_draining_relay_and_keeps_its_turns(stage: Stage) -> None:
    handler = Paused()
    await stage.start(handler, stage.mesh.agent("b"))
    turn_id = stage.mesh.queue("b")
    await handler.entered.wait()
    await stage.mesh.servicer.drain(10)
    assert stage.mesh.state(turn_id) == "lost"
    assert handler.cancelled == []


async def test_one_host_serves_many_agents_on_one_stream(anywhere: Stage) -> None:
    host = Host(anywhere, dial=anywhere.dial, clock=anywhere.mesh.clock)
    seats = [host.add(echo, token=anywhere.mesh.agent(name)) for name in ("a", "b")]
    running = asyncio.create_task(host.run())
    for seat in seats:
        await seat.attached.wait()
    late = host.add(echo, token=anywhere.mesh.agent("c"))
    await late.attached.wait()
    turns = [anywhere.mesh.queue(name, name) for name in ("a", "b", "c")]
    assert [await anywhere.ended(turn_id) for turn_id in turns] == ["completed"] * 3
    assert anywhere.dials == 1
    await host.stop()
    await running


async def test_an_agent_that_is_refused_does_not_end_the_others(stage: Stage) -> None:
    host = Host(stage, dial=stage.dial, clock=stage.mesh.clock)
    tokens = {name: stage.mesh.agent(name) for name in ("a", "b")}
    seats = [host.add(echo, token=token) for token in tokens.values()]
    running = asyncio.create_task(host.run())
    for seat in seats:
        await seat.attached.wait()
    stage.mesh.revoke(tokens["a"])
    await stage.settle()
    assert await stage.ended(stage.mesh.queue("b")) == "completed"
    await host.stop()
    await running


async def test_a_host_whose_first_agent_is_refused_opens_its_stream_as_the_next(stage: Stage) -> None:
    host = Host(stage, dial=stage.dial, clock=stage.mesh.clock)
    host.add(echo, token="hpl_a_" + "x" * 43)
    good = host.add(echo, token=stage.mesh.agent("b"))
    running = asyncio.create_task(host.run())
    await stage.mesh.clock.advance(1)
    await good.attached.wait()
    assert await stage.ended(stage.mesh.queue("b")) == "completed"
    await host.stop()
    await running


@pytest.mark.parametrize("reason", ["internal", "overloaded"])
async def test_a_passing_failure_to_attach_is_tried_again(stage: Stage, reason: str) -> None:
    stage.mesh.turns.failures["attach"] = [HoplineError(reason, "not just now")]
    worker = stage.worker(echo, stage.mesh.agent("b"))
    running = asyncio.create_task(worker.run())
    await stage.mesh.clock.advance(4)
    await worker.ready()
    await worker.stop()
    await running
