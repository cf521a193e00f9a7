"""Workers and clients on the real relay, quota and registry: delegation from end to end."""

from __future__ import annotations

import asyncio

import pytest
from hopline.registry.v1 import identity_pb2
from hopline.relay.v1 import delegation_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline_client import Answer, Escalation, Handler, HoplineError, Turn

from tests.support.owners import answer, waits
from tests.support.relay_mesh import until
from tests.support.stage import Stage


class Held:
    """A handler that stays in its turns until the test lets it go on."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.turns: list[Turn] = []
        self.cancelled: list[str] = []

    async def __call__(self, turn: Turn) -> str:
        self.turns.append(turn)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.append(turn.id)
            raise
        return f"done at attempt {turn.attempt}"


async def test_an_agent_asks_another_over_its_tunnel_and_answers_with_it(stage: Stage) -> None:
    mesh = stage.mesh
    eve, ada, bob = [await mesh.agent(name) for name in ("eve", "ada", "bob")]
    depths: list[int] = []

    async def delegate(turn: Turn) -> str:
        depths.append(turn.depth)
        answer = await turn.mesh.ask("bob", f"what of {turn.text}?")
        return f"bob says: {answer.text}"

    async def answer(turn: Turn) -> str:
        depths.append(turn.depth)
        assert turn.from_ == "ada (for admin)"
        return turn.text.upper()

    await stage.work(ada, delegate)
    await stage.work(bob, answer)
    async with stage.client(eve) as client:
        found = await client.ask("ada", "tea")
    assert (found.status, found.text) == ("completed", "bob says: WHAT OF TEA?")
    assert depths == [1, 2]


async def test_an_agent_asks_its_owner_over_its_tunnel_and_hears_the_answer(stage: Stage) -> None:
    mesh = stage.mesh
    eve, ada = await mesh.agent("eve"), await mesh.agent("ada")
    asked: list[Escalation] = []

    async def handle(turn: Turn) -> str:
        if turn.cause == "owner_answer":
            asked.append(await turn.mesh.check_escalation(turn.messages[0].escalation_id, wait_seconds=0))
            return ""
        found = await turn.mesh.ask_owner("Deploy now?", options=["yes", "no"])
        later = await turn.mesh.ask_owner("And tomorrow?", wait_seconds=0)
        asked.append(later)
        return f"{found.answered_by} says {found.text}"

    await stage.work(ada, handle)
    async with stage.client(eve) as client:
        asking = asyncio.create_task(client.ask("ada", "deploy?"))
        identifier = await waits(mesh, ada)
        await stage.cut()
        await stage.back(ada)
        await answer(mesh.admin, identifier)
        assert (await asking).text == "admin says yes"
    assert asked[0].pending
    with pytest.raises(HoplineError, match="has not answered yet"):
        assert asked[0].text
    await answer(mesh.admin, asked[0].id, "no")
    await until(lambda: len(asked) == 2, "the answer that wakes")
    assert (asked[1].id, asked[1].text) == (asked[0].id, "no")


async def test_many_asks_at_once_are_all_answered(stage: Stage) -> None:
    mesh = stage.mesh
    eve, ada = await mesh.agent("eve"), await mesh.agent("ada")
    await mesh.policy(pair_budget="0", concurrent_runs=100)

    async def echo(turn: Turn) -> str:
        return turn.text

    await stage.work(ada, echo, max_turns=4)
    async with stage.client(eve) as client:
        answers = await asyncio.gather(*(client.ask("ada", str(number)) for number in range(40)))
    assert [answer.text for answer in answers] == [str(number) for number in range(40)]


async def test_a_loop_ends_at_the_depth_rail(stage: Stage) -> None:
    mesh = stage.mesh
    eve, ada, bob = [await mesh.agent(name) for name in ("eve", "ada", "bob")]

    def loop(other: str) -> Handler:
        async def handle(turn: Turn) -> str:
            try:
                return (await turn.mesh.ask(other, turn.text)).text
            except HoplineError as error:
                return f"{turn.depth}: {error.message}"

        return handle

    await stage.work(ada, loop("bob"))
    await stage.work(bob, loop("ada"))
    async with stage.client(eve) as client:
        answer = await client.ask("ada", "round and round")
    assert answer.text.startswith("4: ")
    assert "too many agents in a row" in answer.text


async def test_a_worker_whose_line_is_cut_resumes_its_turn(stage: Stage) -> None:
    mesh = stage.mesh
    eve, ada = await mesh.agent("eve"), await mesh.agent("ada")
    handler = Held()
    worker = await stage.work(ada, handler)
    asked = await eve.ask(ada)
    await until(lambda: handler.turns, "the turn")
    await stage.cut()
    await until(lambda: not mesh.relay.dispatcher.presence(mesh.workspace_id, ada.id), "the break")
    await mesh.passes(3)
    await worker.ready()
    handler.go_on.set()
    found = await eve.check(asked.turn_id, wait=10)
    assert (found.reply, handler.cancelled) == ("done at attempt 1", [])


async def test_the_turn_of_a_killed_worker_is_run_again_by_the_next(stage: Stage) -> None:
    mesh = stage.mesh
    eve, ada = await mesh.agent("eve"), await mesh.agent("ada")
    handler = Held()
    worker = await stage.work(ada, handler)
    asked = await eve.ask(ada)
    await until(lambda: handler.turns, "the turn")
    await stage.kill(worker)
    # Over a socket the relay sees it a moment later; only from then on does its time to come back run.
    await until(lambda: not mesh.relay.dispatcher.places(mesh.workspace_id, ada.id), "the relay's notice")
    again = Held()
    again.go_on.set()
    await stage.work(ada, again)
    await mesh.passes(31)
    found = await eve.check(asked.turn_id, wait=10)
    assert (found.status, found.reply) == (pb.TURN_STATUS_COMPLETED, "done at attempt 2")


async def test_a_mesh_that_is_started_again_finds_its_workers_and_their_turns(stage: Stage) -> None:
    mesh = stage.mesh
    eve, ada = await mesh.agent("eve"), await mesh.agent("ada")
    handler = Held()
    await stage.work(ada, handler)
    asked = await eve.ask(ada)
    await until(lambda: handler.turns, "the turn")
    await mesh.reopen()
    await stage.listen()
    second = await eve.ask(ada)
    await stage.back(ada)
    handler.go_on.set()
    found = [await eve.check(turn_id, wait=10) for turn_id in (asked.turn_id, second.turn_id)]
    assert [view.reply for view in found] == ["done at attempt 1"] * 2
    assert handler.cancelled == []


async def test_a_turn_that_never_answers_fails_and_its_handler_is_stopped(stage: Stage) -> None:
    mesh = stage.mesh
    await mesh.policy(turn_seconds=60)
    eve, ada = await mesh.agent("eve"), await mesh.agent("ada")
    handler = Held()
    await stage.work(ada, handler)
    asked = await eve.ask(ada)
    await until(lambda: handler.turns, "the turn")
    for _ in range(7):
        await mesh.passes(10)
    found = await eve.check(asked.turn_id)
    assert (found.status, found.error.code) == (pb.TURN_STATUS_FAILED, "deadline_exceeded")
    await until(lambda: handler.cancelled, "the cancellation")


async def test_cancelling_reaches_the_handler_and_whoever_it_waits_for(stage: Stage) -> None:
    mesh = stage.mesh
    eve, ada, bob = [await mesh.agent(name) for name in ("eve", "ada", "bob")]
    handler, ended = Held(), asyncio.Event()

    async def delegate(turn: Turn) -> str:
        try:
            return (await turn.mesh.ask("bob", turn.text)).text
        except asyncio.CancelledError:
            ended.set()
            raise

    await stage.work(ada, delegate)
    await stage.work(bob, handler)
    asked = await eve.ask(ada)
    await until(lambda: handler.turns, "bob's turn")
    await eve.turns.Cancel(delegation_pb2.CancelRequest(turn_id=asked.turn_id))
    await until(lambda: handler.cancelled and ended.is_set(), "the cancellation")
    found = await eve.check(asked.turn_id)
    assert found.status == pb.TURN_STATUS_CANCELED


async def test_a_failing_handler_tells_the_asker_why(stage: Stage) -> None:
    mesh = stage.mesh
    eve, ada = await mesh.agent("eve"), await mesh.agent("ada")

    async def fail(turn: Turn) -> str:
        raise RuntimeError("out of tea")

    await stage.work(ada, fail)
    async with stage.client(eve) as client:
        answer = await client.ask("ada", "tea?")
    assert (answer.status, answer.code) == ("failed", "turn_failed")
    with pytest.raises(HoplineError, match="out of tea"):
        _ = answer.text


async def test_pausing_an_agent_stops_its_worker_s_turns(stage: Stage) -> None:
    mesh = stage.mesh
    eve, ada = await mesh.agent("eve"), await mesh.agent("ada")
    handler = Held()
    worker = await stage.work(ada, handler)
    asked = await eve.ask(ada)
    await until(lambda: handler.turns, "the turn")
    await mesh.pause(ada)
    await until(lambda: handler.cancelled, "the cancellation")
    assert (await eve.check(asked.turn_id)).status in {pb.TURN_STATUS_CANCELED, pb.TURN_STATUS_FAILED}
    await mesh.resume(ada)
    await mesh.passes(4)
    await worker.ready()


async def test_deleting_an_agent_ends_its_worker(stage: Stage) -> None:
    mesh = stage.mesh
    ada = await mesh.agent("ada")
    worker = await stage.work(ada, Held())
    await mesh.delete(ada)
    with pytest.raises(HoplineError) as refused:
        await stage.task(worker)
    assert refused.value.reason == "unauthenticated"


async def test_revoking_its_token_ends_a_worker_and_stops_its_turns(stage: Stage) -> None:
    mesh = stage.mesh
    eve, ada = await mesh.agent("eve"), await mesh.agent("ada")
    handler = Held()
    worker = await stage.work(ada, handler)
    await eve.ask(ada)
    await until(lambda: handler.turns, "the turn")
    tokens = (await mesh.admin.people.ListTokens(identity_pb2.ListTokensRequest(agent=ada.id))).tokens
    await mesh.admin.people.RevokeToken(identity_pb2.RevokeTokenRequest(token_id=tokens[0].id))
    assert mesh.relay.dispatcher.presence(mesh.workspace_id, ada.id) is None
    with pytest.raises(HoplineError) as refused:
        await stage.task(worker)
    assert refused.value.reason == "unauthenticated"
    assert handler.cancelled == [handler.turns[0].id]


async def test_a_chain_of_delegations_is_one_trace(stage: Stage) -> None:
    mesh = stage.mesh
    eve, ada, bob = [await mesh.agent(name) for name in ("eve", "ada", "bob")]
    seen: list[str] = []

    async def delegate(turn: Turn) -> str:
        seen.append(turn.traceparent)
        return (await turn.mesh.ask("bob", turn.text)).text

    async def answer(turn: Turn) -> str:
        seen.append(turn.traceparent)
        return "so"

    await stage.work(ada, delegate)
    await stage.work(bob, answer)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    async with stage.client(eve, traceparent=f"00-{trace}-00f067aa0ba902b7-01") as client:
        await client.ask("ada", "tea")
    assert [traceparent.split("-")[1] for traceparent in seen] == [trace, trace]
    assert len({traceparent.split("-")[2] for traceparent in seen}) == 2


async def test_a_turn_knows_where_it_stands(stage: Stage) -> None:
    mesh = stage.mesh
    eve, ada = await mesh.agent("eve"), await mesh.agent("ada")

    async def look(turn: Turn) -> str:
        me, peers = await turn.mesh.whoami(), await turn.mesh.list_agents()
        threads = await turn.mesh.threads()
        assert [one.id for one in await turn.mesh.thread(threads[0].id)] == [turn.messages[0].id]
        return f"{me.name} at depth {me.depth}, isolation {me.isolation}, sees {peers[0].name}"

    await stage.work(ada, look)
    async with stage.client(eve) as client:
        answer = await client.ask("ada", "who are you?")
    assert answer.text == "ada at depth 1, isolation none, sees eve"


async def test_a_client_does_everything_an_agent_may(stage: Stage) -> None:
    mesh = stage.mesh
    ada, bob = await mesh.agent("ada", description="makes tea"), await mesh.agent("bob")
    async with stage.client(bob) as client, stage.client(ada) as other:
        me = await client.whoami()
        assert (me.name, me.kind, me.owner, me.workspace) == ("bob", "agent", "admin", "default")
        peers = await client.list_agents()
        assert [(peer.name, peer.description, peer.relation) for peer in peers] == [
            ("ada", "makes tea", "peer")
        ]
        sent = await client.send("ada", "good morning", subject="greeting", payload={"n": [1, 2]})
        inbox = await other.read_inbox()
        assert [(one.body, one.subject, one.payload) for one in inbox.messages] == [
            ("good morning", "greeting", {"n": [1, 2]})
        ]
        await other.reply(inbox.messages[0].id, "and to you")
        threads = await client.threads()
        assert [(thread.id, thread.message_count) for thread in threads] == [(sent.thread_id, 2)]
        assert [one.body for one in await client.thread(sent.thread_id)] == ["good morning", "and to you"]
        asked = await client.ask("ada", "tea?", wait_seconds=0)
        assert asked.pending
        assert await client.cancel(turn_id=asked.turn_id) == "canceled"
        assert (await client.check(turn_id=asked.turn_id, wait_seconds=0)).status == "canceled"
        second = await client.send("ada", "never mind")
        inbox = await other.read_inbox()
        await other.done(inbox.messages[0].id)
        assert inbox.messages[0].id == second.message_id


async def test_a_refusal_reaches_a_client_with_its_reason(stage: Stage) -> None:
    bob = await stage.mesh.agent("bob")
    async with stage.client(bob) as client:
        for attempt, reason in (
            (client.send("nobody", "hello"), "not_found"),
            (client.send("bob", "hello"), "invalid_argument"),
            (client.send("ada", ""), "invalid_argument"),
            (client.ask("ada", "half \ud83d of a pair"), "invalid_argument"),
            (client.check(), "invalid_argument"),
            (client.send("ada", "x", payload=float("nan")), "invalid_argument"),
            (client.read_inbox(wait_seconds=-1), "invalid_argument"),
        ):
            with pytest.raises(HoplineError) as refused:
                await attempt
            assert refused.value.reason == reason


async def test_waiting_goes_on_until_the_answer_is_there(stage: Stage) -> None:
    mesh = stage.mesh
    eve, ada = await mesh.agent("eve"), await mesh.agent("ada")
    handler = Held()
    await stage.work(ada, handler)
    async with stage.client(eve) as client:
        asked = await client.ask("ada", "take your time", wait_seconds=0)
        with pytest.raises(HoplineError, match="no answer yet"):
            _ = asked.text
        waiting: asyncio.Task[Answer] = asyncio.create_task(client.wait(asked))
        await until(lambda: handler.turns, "the turn")
        handler.go_on.set()
        assert (await waiting).text == "done at attempt 1"
