"""What `hopline doctor` finds in a mesh that works: letters, roots, agents without workers, clocks."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from hopline.registry.v1 import agent_pb2
from hopline.registry.v1.agent_pb2 import Wake
from hopline.relay.v1 import session_pb2
from hopline_cli.doctor.findings import Finding
from hopline_cli.doctor.inside import of_agents, of_record
from hopline_relay.dispatch import Attachment
from hopline_rpc.principals import Principal

from tests.support.posts import Taken
from tests.support.relay_mesh import Caller, RelayMesh, attempt, until

DAY = 86_400


async def found(mesh: RelayMesh) -> dict[str, Finding]:
    """Return what is not well, by check."""
    admin = mesh.admin
    asked: Any = SimpleNamespace(
        agents=admin.agents,
        sessions=admin.sessions,
        events=admin.audit,
        letters=admin.letters,
        turns=admin.turns,
        escalations=admin.escalations,
    )
    told = [each async for each in of_record(asked)] + [each async for each in of_agents(asked)]
    return {each.check: each for each in told if each.grade != "ok"}


def attach(mesh: RelayMesh, agent: Caller, isolation: str) -> None:
    class Line:
        def ready(self) -> bool:
            return False

        def send(self, item: Any) -> None:
            """Nobody reads it."""

        def end(self, attachment: Attachment, code: str, message: str) -> None:
            """Nobody is told."""

    principal = Principal("agent", agent.id, mesh.workspace_id, "it", "tok_1")
    mesh.relay.dispatcher.add(Attachment(1, principal, 1, 1, isolation, Line()))


async def test_nothing_is_wrong_with_a_mesh_without_work(mesh: RelayMesh) -> None:
    await mesh.agent("ada")
    assert await found(mesh) == {}


async def test_an_agent_with_work_and_no_worker_is_named(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    await ada.send(bob)
    wrong = await found(mesh)
    assert wrong["workers"].text == "bob has 2 unread messages and no worker"
    assert wrong["workers"].todo.startswith("hopline attach --agent bob")
    attach(mesh, bob, "user")
    assert await found(mesh) == {}


async def test_a_worker_that_is_not_isolated_is_a_note(mesh: RelayMesh) -> None:
    attach(mesh, await mesh.agent("bob"), "none")
    wrong = await found(mesh)
    assert wrong["isolation"].grade == "note"
    assert "the worker of bob" in wrong["isolation"].text


async def test_an_agent_that_could_not_be_woken_is_named_with_the_reason(mesh: RelayMesh) -> None:
    taken = Taken(mesh)
    taken.problem = "it answered 500"
    url = Wake(
        kind=agent_pb2.WAKE_KIND_WEBHOOK,
        webhook_url="http://127.0.0.1:9/wake",
        webhook_secret="what wakes is signed",
    )
    ada, sleeper = await mesh.agent("ada"), await mesh.agent("sleeper", wake=url)
    await ada.send(sleeper)
    for _ in range(2000):
        if await mesh.events("wake.failed"):
            break
        await mesh.clock.advance(5)
    finding = (await found(mesh))["wakes"]
    assert finding.text == "sleeper has 1 unread message, and could not be woken: it answered 500"
    assert finding.todo == "start it by hand: hopline attach --agent sleeper -- COMMAND"


async def test_dead_letters_are_counted(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    await mesh.skip(DAY + 10)
    await mesh.passes(1)
    assert (await found(mesh))["dead letters"].text.startswith("1 dead letter:")


async def test_exhausted_roots_are_counted(mesh: RelayMesh) -> None:
    await mesh.policy(root_turns=2, pair_budget="0")
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(ada)
    await mesh.admin.sessions.Prompt(session_pb2.PromptRequest(agent=ada.id, text="go", wait_seconds=0))
    turn = await worker.next()
    for _ in range(2):
        await attempt(worker.send(turn, bob))
    await until(lambda: mesh.relay.journal.meters.refusals["root_exhausted"] or None, "the refusal")
    for _ in range(50):
        if "exhausted roots" in (wrong := await found(mesh)):
            break
        await mesh.relay.journal.write(lambda book: None)
    assert wrong["exhausted roots"].text.startswith("1 root started all")


async def test_a_record_that_is_ahead_of_this_machines_clock_is_told(mesh: RelayMesh) -> None:
    mesh.clock.set_wall(time.time() + 7200)
    await mesh.agent("ada")
    ada, bob = await mesh.agent("ann"), await mesh.agent("bob")
    await ada.send(bob)
    assert "ahead of this machine's clock" in (await found(mesh))["clock"].text
