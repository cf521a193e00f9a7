"""Two of each service on one PostgreSQL: who calls one and works at the other notices nothing of it."""

from __future__ import annotations

import asyncio
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from hopline.registry.v1 import agent_pb2, identity_pb2
from hopline.relay.v1 import escalation_pb2, schedule_pb2, session_pb2
from hopline_client import Mesh as Client
from hopline_client import Turn
from hopline_directory import VIEWER
from hopline_rpc.errors import HoplineError

from tests.support import postgres
from tests.support.mesh_process import Agent, Held, Space, call, processes, shout, until
from tests.support.replicas import SecondMesh
from tests.support.served_mesh import ServedMesh


class Two(NamedTuple):
    """Both halves of a mesh, and a workspace as it is seen through each."""

    first: ServedMesh
    second: ServedMesh
    here: Space
    there: Space

    def sides(self, turned: bool) -> tuple[Space, Space]:
        """Return the half that is asked, and the one where work is done."""
        return (self.there, self.here) if turned else (self.here, self.there)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Change the relays' record behind their backs, or read it."""
        with psycopg.connect(self.first.env["HOPLINE_DATABASE_URL"], autocommit=True) as connection:
            connection.execute("SET search_path = hopline_relay")
            done = connection.execute(statement.encode())
            return done.fetchall() if done.description else []

    async def silence(self) -> None:
        """Have a relay count as dead that says nothing: the other one speaks twice a second."""
        found = await until(
            lambda: self.sql(
                "UPDATE instances SET seen_at = 0 WHERE ended_at IS NULL"
                " AND seen_at < extract(epoch from clock_timestamp()) - 2 RETURNING id"
            ),
            "a relay that is silent",
        )
        ended = f"SELECT id FROM instances WHERE id = '{found[0][0]}' AND ended_at IS NOT NULL"
        await until(lambda: self.sql(ended), "its end in the record")


@pytest.fixture(scope="module")
def meshes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedMesh, SecondMesh]]:
    with postgres.database() as url, processes(tmp_path_factory.mktemp("replicas")) as started:
        first = ServedMesh(started, env={"HOPLINE_DATABASE_URL": url})
        first.start()
        second = SecondMesh(first)
        second.start()
        yield first, second


@pytest.fixture
async def two(meshes: tuple[ServedMesh, SecondMesh]) -> AsyncIterator[Two]:
    first, second = meshes
    async with first.space() as here, Space(second, here.name) as there:
        yield Two(first, second, here, there)
    assert first.complaints() == []
    assert second.complaints() == []


async def known(space: Space, *agents: Agent) -> None:
    """Wait until the half of the mesh that a space is seen through knows agents."""

    async def all_known() -> bool:
        found = await space.admin.agents.ListAgents(agent_pb2.ListAgentsRequest())
        return {each.id for each in agents} <= {each.id for each in found.agents}

    await until(all_known, "the agents at the other registry")


@pytest.fixture
async def pair(two: Two) -> tuple[Agent, Agent]:
    """Return an agent that asks, and one that works."""
    asker, worker = await two.here.agents("asker", "worker")
    await known(two.there, asker, worker)
    return asker, worker


ENDPOINTS = "endpoints.json"

turned = pytest.mark.parametrize("turned", [False, True], ids=["from-first", "from-second"])


@turned
async def test_an_ask_at_one_is_worked_on_at_the_other_and_answered_once(
    two: Two, pair: tuple[Agent, Agent], turned: bool
) -> None:
    (asker, worker), (asked, works) = pair, two.sides(turned)
    await works.work(worker, shout)
    client = asked.client(asker)
    for n in range(3):
        answer = await client.ask("worker", f"question {n}")
        assert answer.text == f"QUESTION {n}"
        assert len(await works.thread(answer.thread_id)) == 2
    # What was given to the calls comes to nobody as a message.
    assert [turn.cause for turn in await asked.turns()] == ["ask"] * 3


@turned
async def test_a_message_at_one_wakes_whoever_pulls_at_the_other(
    two: Two, pair: tuple[Agent, Agent], turned: bool
) -> None:
    (asker, worker), (sends, pulls) = pair, two.sides(turned)
    async with pulls.mcp_over_http(worker) as puller:
        waiting = asyncio.create_task(call(puller, "read_inbox", wait_seconds=30))
        await asyncio.sleep(0)
        await sends.client(asker).send("worker", "wake up")
        found = await waiting
    assert [message["body"] for message in found["messages"]] == ["wake up"]


async def test_a_turn_that_runs_at_the_other_is_cancelled_from_here(
    two: Two, pair: tuple[Agent, Agent]
) -> None:
    asker, worker = pair
    held = Held()
    await two.there.work(worker, held)
    client = two.here.client(asker)
    asked = asyncio.create_task(client.ask("worker", "stop me"))
    turn = await held.begun()
    await client.cancel(turn_id=turn.id)
    assert (await asked).status == "canceled"
    await until(lambda: held.cancelled == [turn.id], "the end of the turn at its worker")


async def test_presence_at_one_shows_at_the_other(two: Two, pair: tuple[Agent, Agent]) -> None:
    _, worker = pair
    assert await two.here.presence(worker) == "offline"
    await two.there.work(worker, shout)

    async def is_there() -> bool:
        return await two.here.presence(worker) == "idle"

    await until(is_there, "the worker's presence")


@turned
async def test_a_tunnel_whose_relay_dies_moves_to_the_other_in_the_middle_of_a_turn(
    two: Two, pair: tuple[Agent, Agent], tmp_path: Path, turned: bool
) -> None:
    asker, worker = pair
    lives, dies = two.sides(turned)
    held = Held()
    # Where it is told that the relay is: first at the one that dies.
    for name in (ENDPOINTS, "admin.token"):
        (tmp_path / name).write_text((dies.mesh.data / name).read_text())
    await dies.work(worker, held, tmp_path)
    client = lives.client(asker)
    asked = asyncio.create_task(client.ask("worker", "question"))
    turn = await held.begun()
    dying = two.second if not turned else two.first
    dying.running["relay"].kill()
    (tmp_path / ENDPOINTS).write_text((lives.mesh.data / ENDPOINTS).read_text())

    async def has_moved() -> bool:
        attached = await lives.events("tunnel.attached")
        return len([event for event in attached if event.agent_id == worker.id]) == 2

    await until(has_moved, "its tunnel at the other relay")
    held.go_on.set()
    answer = await asked
    assert answer.text == "question, answered at attempt 1"
    assert len(held.turns) == 1
    assert [(each.id, each.attempt) for each in await lives.turns()] == [(turn.id, 1)]
    assert len(await lives.thread(answer.thread_id)) == 2
    await asyncio.to_thread(dying.serve, "relay")


async def test_a_caller_whose_relay_dies_gets_its_answer_once_it_asks_again(
    two: Two, pair: tuple[Agent, Agent]
) -> None:
    asker, worker = pair
    held = Held()
    await two.here.work(worker, held)
    client = two.there.client(asker)
    await client.whoami()
    asked = asyncio.create_task(client.ask("worker", "question"))
    await held.begun()
    two.second.running["relay"].kill()
    held.go_on.set()
    await asyncio.to_thread(two.second.serve, "relay")
    answer = await asked
    assert answer.text == "question, answered at attempt 1"
    assert len(held.turns) == 1


async def test_an_answer_for_a_call_whose_relay_is_dead_comes_as_a_message_at_the_other(
    two: Two, pair: tuple[Agent, Agent]
) -> None:
    asker, worker = pair
    held = Held()
    await two.here.work(worker, held)
    asked = asyncio.create_task(two.there.client(asker).ask("worker", "question"))
    await held.begun()
    two.second.running["relay"].kill()
    with pytest.raises(HoplineError):
        await asked
    held.go_on.set()
    await two.silence()
    inbox = await two.here.client(asker).read_inbox(wait_seconds=30)
    assert [message.body for message in inbox.messages] == ["question, answered at attempt 1"]
    await asyncio.to_thread(two.second.serve, "relay")


async def test_a_relay_that_stood_still_and_counted_as_dead_begins_anew(
    two: Two, pair: tuple[Agent, Agent]
) -> None:
    asker, worker = pair
    await two.there.work(worker, shout)
    client = two.there.client(asker)
    assert (await client.ask("worker", "before")).text == "BEFORE"
    relay = two.second.running["relay"]
    relay.popen.send_signal(signal.SIGSTOP)
    await two.silence()
    relay.popen.send_signal(signal.SIGCONT)
    await until(lambda: "begins anew" in relay.said, "the relay's own word")
    assert (await client.ask("worker", "afterwards")).text == "AFTERWARDS"
    assert relay.is_running


async def test_what_is_due_happens_once_with_two_relays(two: Two, pair: tuple[Agent, Agent]) -> None:
    asker, worker = pair
    done: list[str] = []

    async def note(turn: Turn) -> str:
        done.append(turn.text)
        return "noted"

    await two.here.work(worker, note)
    await two.there.work(worker, note)
    await two.there.client(worker).notify_in(3600, "the timer")
    daily = schedule_pb2.AddScheduleRequest(agent=worker.id, cron="0 3 * * *", text="the schedule")
    await two.here.admin.schedules.AddSchedule(daily)
    two.sql("UPDATE timers SET due_at = 1, fires_at = 1")
    two.sql("UPDATE schedules SET due_at = extract(epoch from now()) - 1")
    await until(lambda: len(done) == 2, "what was due")
    # Whoever came second has found nothing left.
    await two.here.client(asker).ask("worker", "and now?")
    causes = sorted(turn.cause for turn in await two.here.turns())
    assert causes == ["ask", "prompt", "timer"]


@turned
async def test_a_server_tool_at_one_is_called_from_the_other(
    two: Two, pair: tuple[Agent, Agent], turned: bool
) -> None:
    (asker, worker), (calls, works) = pair, two.sides(turned)

    async def look(at: str) -> str:
        if at == "nothing":
            raise ValueError("there is nothing to look at")
        return f"{at}, seen"

    await works.work(worker, shout, tools=[look])
    client = calls.client(asker)

    async def is_offered() -> bool:
        return [tool.name for tool in await client.list_tools("worker") if tool.available] == ["look"]

    await until(is_offered, "the tool at the other relay")
    assert (await client.call_tool("worker", "look", {"at": "the sky"})).result == "the sky, seen"
    with pytest.raises(HoplineError) as caught:
        await client.call_tool("worker", "look", {"at": 3})
    assert caught.value.reason == "invalid_argument"
    assert (await client.call_tool("worker", "look", {"at": "nothing"})).code == "tool_failed"
    assert [turn.cause for turn in await calls.turns()] == ["tool", "tool"]

    async def use_it(turn: Turn) -> str:
        return str((await turn.mesh.call_tool("worker", "look", {"at": turn.text})).result)

    # From within a turn it counts as one level deeper, wherever it runs.
    await calls.work(asker, use_it)
    assert (await works.client(worker).ask("asker", "the sea")).text == "the sea, seen"
    ask, tool = (await calls.turns())[2:]
    assert (ask.cause, tool.cause, tool.depth) == ("ask", "tool", ask.depth + 1)


async def test_a_question_asked_at_one_is_answered_at_the_other(two: Two, pair: tuple[Agent, Agent]) -> None:
    asker, _ = pair
    asking = asyncio.create_task(two.here.client(asker).ask_owner("May I?", options=["yes", "no"]))

    async def pending() -> list[str]:
        request = escalation_pb2.ListEscalationsRequest()
        return [each.id for each in (await two.there.admin.escalations.ListEscalations(request)).escalations]

    (escalation_id,) = await until(pending, "the question")
    answer = escalation_pb2.AnswerEscalationRequest(escalation_id=escalation_id, text="yes")
    await two.there.admin.escalations.AnswerEscalation(answer)
    assert (await asking).answer == "yes"


async def test_what_is_revoked_at_one_registry_holds_at_the_other_half(
    two: Two, pair: tuple[Agent, Agent]
) -> None:
    asker, worker = pair
    await two.there.work(worker, shout)
    client: Client = two.there.client(asker)
    assert (await client.ask("worker", "still?")).text == "STILL?"
    tokens = await two.here.admin.identities.ListTokens(identity_pb2.ListTokensRequest(agent=asker.id))
    request = identity_pb2.RevokeTokenRequest(token_id=tokens.tokens[0].id)
    await two.here.admin.identities.RevokeToken(request)

    async def is_refused() -> bool:
        try:
            await client.ask("worker", "and now?")
        except HoplineError as error:
            return error.reason == "unauthenticated"
        return False

    await until(is_refused, "the revocation at the other relay", 5.0)


async def test_a_credential_revoked_at_one_registry_is_none_at_the_other_gateway(
    two: Two, pair: tuple[Agent, Agent]
) -> None:
    asker, _ = pair

    def status() -> int:
        """Return what the gateway says to the credential."""
        request = urllib.request.Request(
            f"{two.second.endpoints['gateway']}/mcp",
            b"{}",
            {"Authorization": f"Bearer {asker.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert await asyncio.to_thread(status) != 401
    tokens = await two.here.admin.identities.ListTokens(identity_pb2.ListTokensRequest(agent=asker.id))
    request = identity_pb2.RevokeTokenRequest(token_id=tokens.tokens[0].id)
    await two.here.admin.identities.RevokeToken(request)

    async def is_refused() -> bool:
        return await asyncio.to_thread(status) == 401

    await until(is_refused, "the revocation at the other gateway", 5.0)


async def test_a_role_taken_at_one_registry_is_gone_at_the_other_relay(
    two: Two, pair: tuple[Agent, Agent]
) -> None:
    _, worker = pair
    token = await two.here.person("Vera", VIEWER)
    sees = session_pb2.GetPresenceRequest(agents=[worker.id])

    async def sees_it() -> bool:
        found = await two.there.stubs(token).sessions.GetPresence(sees)
        return worker.id in found.presence

    async def sees_nothing() -> bool:
        return not await sees_it()

    await until(sees_it, "the role at the other relay", 5.0)
    await two.here.admin.identities.RevokeRole(identity_pb2.RevokeRoleRequest(user="Vera"))
    await until(sees_nothing, "its end at the other relay", 5.0)


async def test_an_agent_paused_at_one_registry_stops_at_the_other_half(
    two: Two, pair: tuple[Agent, Agent]
) -> None:
    asker, worker = pair
    held = Held()
    await two.there.work(worker, held)
    asked = asyncio.create_task(two.there.client(asker).ask("worker", "hold"))
    turn = await held.begun()
    await two.here.admin.agents.PauseAgent(agent_pb2.PauseAgentRequest(agent=worker.id))
    assert (await asked).status == "canceled"
    await until(lambda: held.cancelled == [turn.id], "the end of its turn")
