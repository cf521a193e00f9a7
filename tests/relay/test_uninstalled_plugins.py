"""What goes with a plugin that is uninstalled, and what stays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hopline.registry.v1 import plugin_pb2
from hopline.registry.v1.agent_pb2 import DeleteAgentRequest
from hopline.registry.v1.identity_pb2 import CreateTokenRequest
from hopline.relay.v1 import message_pb2 as pb
from hopline.relay.v1 import session_pb2
from hopline_relay.store import schema, uninstalling
from sqlalchemy import select, text

from tests.support.relay_mesh import Caller, RelayMesh, refusal


async def install(mesh: RelayMesh, *keys: str) -> dict[str, Caller]:
    """Install a plugin; returns its agents by key."""
    declared = [plugin_pb2.PluginAgent(key=key, name=key) for key in keys]
    manifest = plugin_pb2.PluginManifest(key="omo", name="Oh My", version="1", agents=declared)
    await mesh.admin.plugins.InstallPlugin(plugin_pb2.InstallPluginRequest(manifest=manifest, confirm=True))
    found = {}
    for key in keys:
        made = await mesh.admin.people.CreateToken(CreateTokenRequest(agent=f"omo-{key}"))
        found[key] = Caller(mesh, made.info.subject_id, made.token)
    return found


async def uninstall(mesh: RelayMesh) -> None:
    await mesh.admin.plugins.UninstallPlugin(plugin_pb2.UninstallPluginRequest(plugin="omo"))


async def sessions(mesh: RelayMesh, agent: Caller) -> int:
    def count(connection: Any) -> int:
        query = text("SELECT count(*) FROM sessions WHERE agent_id = :agent")
        return int(connection.execute(query, {"agent": agent.id}).scalar())

    return await mesh.relay.journal.read(count)


async def none_left(mesh: RelayMesh, *agents: Caller) -> None:
    """Wait until agents have no sessions any more."""
    async with asyncio.timeout(10):
        while sum([await sessions(mesh, agent) for agent in agents]):
            await mesh.clock.advance(0.1)
            await asyncio.sleep(0.001)


async def test_its_agents_go_with_their_sessions_and_what_was_said_stays_with_the_others(
    mesh: RelayMesh,
) -> None:
    ada = await mesh.agent("ada")
    oracle = (await install(mesh, "oracle"))["oracle"]
    worker = await mesh.worker(oracle)
    asked = await ada.ask(oracle, "well?")
    await worker.end(await worker.next(), "yes")
    assert (await ada.check(asked.turn_id)).reply == "yes"
    before = await mesh.admin.sessions.GetSession(session_pb2.GetSessionRequest(session_id=asked.session_id))
    assert before.session.agent.id == oracle.id
    own = await sessions(mesh, ada)
    await uninstall(mesh)
    await none_left(mesh, oracle)
    for reader in (mesh.admin, ada):
        get = session_pb2.GetSessionRequest(session_id=asked.session_id)
        assert (await refusal(reader.sessions.GetSession(get))).reason == "not_found"
        read = session_pb2.ReadSessionRequest(session_id=asked.session_id)
        assert (await refusal(reader.sessions.ReadSession(read))).reason == "not_found"
    assert [each.body for each in await mesh.thread(asked.thread_id, ada)] == ["well?", "yes"]
    assert await sessions(mesh, ada) == own
    assert (await refusal(ada.send("omo-oracle"))).reason == "not_found"
    listed = await mesh.admin.sessions.ListSessions(session_pb2.ListSessionsRequest())
    assert oracle.id not in {each.agent.id for each in listed.sessions}
    (gone,) = await mesh.events("sessions.deleted")
    assert (gone.agent_id, gone.details["sessions"]) == (oracle.id, 1)


async def test_what_is_asked_of_them_ends_and_whoever_asked_is_told(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    crew = await install(mesh, "oracle", "scout")
    worker = await mesh.worker(crew["oracle"])
    running = await ada.ask(crew["oracle"])
    await worker.next()
    queued = await ada.ask(crew["scout"])
    waiting = asyncio.ensure_future(ada.check(queued.turn_id, wait=50))
    await uninstall(mesh)
    for turn in (await ada.check(running.turn_id), await waiting):
        assert turn.status == pb.TURN_STATUS_CANCELED
        assert "deleted" in turn.error.message
    await none_left(mesh, *crew.values())


async def test_what_was_uninstalled_while_the_relay_was_away_goes_at_its_start(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    oracle = (await install(mesh, "oracle"))["oracle"]
    await ada.send(oracle)
    await mesh.close_relay()
    await uninstall(mesh)
    await mesh.open_relay()
    await none_left(mesh, oracle)


async def test_what_is_kept_of_a_session_goes_with_it(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    oracle = (await install(mesh, "oracle"))["oracle"]
    for agent in (ada, oracle):
        await mesh.admin.sessions.Prompt(session_pb2.PromptRequest(agent=agent.id, text="go", wait_seconds=0))
    found = await mesh.admin.sessions.ListSessions(session_pb2.ListSessionsRequest())
    session_of = {each.agent.id: each.id for each in found.sessions}

    def write(book: Any) -> None:
        for agent in (ada, oracle):
            for table in (schema.todos, schema.todo_lists, schema.timers, schema.children):
                values = {each.name: _anything(each) for each in table.c if not each.nullable}
                values |= {"workspace_id": mesh.workspace_id, "session_id": session_of[agent.id]}
                values |= {"id": f"of-{agent.id}"} if "id" in table.c else {}
                values |= {"agent_id": agent.id} if "agent_id" in table.c else {}
                values |= {"state": "ended"} if "state" in table.c else {}
                book.connection.execute(table.insert().values(values))

    await mesh.relay.journal.write(write)
    await uninstall(mesh)
    await none_left(mesh, oracle)

    def left(connection: Any) -> list[str]:
        tables = (schema.todos, schema.todo_lists, schema.timers, schema.children)
        return [each for table in tables for each in connection.execute(select(table.c.session_id)).scalars()]

    assert await mesh.relay.journal.read(left) == [session_of[ada.id]] * 4


def _anything(column: Any) -> Any:
    """Return some value of a column's type."""
    return {str: "x", bool: False}.get(column.type.python_type, 0)


async def test_many_sessions_go_a_part_at_a_time(mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uninstalling, "SESSIONS", 2)
    oracle = (await install(mesh, "oracle"))["oracle"]
    for number in range(5):
        await (await mesh.agent(f"peer-{number}")).send(oracle)
    assert await sessions(mesh, oracle) == 5
    await uninstall(mesh)
    await none_left(mesh, oracle)
    parts = [
        int(str(each.details["sessions"]).removesuffix(".0"))
        for each in await mesh.events("sessions.deleted")
    ]
    assert sorted(parts) == [1, 2, 2]


async def test_an_agent_that_is_deleted_by_itself_keeps_its_sessions_until_its_plugin_goes(
    mesh: RelayMesh,
) -> None:
    ada, own = await mesh.agent("ada"), await mesh.agent("own")
    oracle = (await install(mesh, "oracle", "scout"))["oracle"]
    for other in (own, oracle):
        await ada.send(other)
        await mesh.admin.agents.DeleteAgent(DeleteAgentRequest(agent=other.id))
    assert (await sessions(mesh, own), await sessions(mesh, oracle)) == (1, 1)
    await uninstall(mesh)
    await none_left(mesh, oracle)
    assert await sessions(mesh, own) == 1
