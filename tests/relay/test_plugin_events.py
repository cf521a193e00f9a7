"""What plugins are told: of what, how often, in which order, and what happens while they do not listen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from hopline.hooks.v1 import extension_pb2 as pb
from hopline.registry.v1 import plugin_pb2
from hopline.relay.v1 import session_pb2, webhook_pb2
from hopline_relay.plugins import events as events_module
from hopline_rpc import signatures
from hopline_rpc.errors import HoplineError

from tests.support.extension_server import ExtensionServer, RefusalError, extension_server
from tests.support.plugins import Plugin, install, manifest, plugin_service, uninstall, update
from tests.support.relay_mesh import Caller, RelayMesh

pytestmark = pytest.mark.both_stores


@pytest.fixture
async def server() -> AsyncIterator[ExtensionServer]:
    async with extension_server() as found:
        yield found


async def prompt(mesh: RelayMesh, agent: Caller, text: str = "hello", **more: Any) -> Any:
    request = session_pb2.PromptRequest(agent=agent.id, text=text, wait_seconds=0, **more)
    return (await mesh.admin.sessions.Prompt(request)).turn


async def count(mesh: RelayMesh, table: str) -> int:
    """Return how many rows a table has."""
    query = f"SELECT count(*) FROM {table}"
    return int(
        await mesh.relay.journal.read(lambda connection: connection.exec_driver_sql(query).scalar_one())
    )


async def waits(mesh: RelayMesh) -> int:
    """Return how many events are still to be told."""
    return await count(mesh, "plugin_events")


async def taken(mesh: RelayMesh) -> None:
    """Wait until nothing is left to tell."""
    async with asyncio.timeout(20):
        while await waits(mesh):
            await mesh.clock.advance(0.0)
            await asyncio.sleep(0.01)  # the endpoint is a real one, and in real time


async def passes_until_told(
    mesh: RelayMesh, server: ExtensionServer, count: int
) -> list[pb.HandleEventRequest]:
    """Let time pass until so many events have come."""
    async with asyncio.timeout(20):
        while len(server.events) < count:
            await mesh.clock.advance(1.0)
            await asyncio.sleep(0.01)  # the endpoint is a real one, and in real time
    return server.events


def kinds(server: ExtensionServer) -> list[str | None]:
    return [each.WhichOneof("event") for each in server.events]


async def test_a_plugin_is_told_of_its_installation_and_of_each_version_in_force(
    mesh: RelayMesh, server: ExtensionServer
) -> None:
    plugin = await install(mesh, server=server)
    (event,) = await server.told(1)
    assert event.WhichOneof("event") == "plugin_installed"
    assert (event.plugin_id, event.plugin_installed.version, event.attempt) == (plugin.id, "1", 1)
    await taken(mesh)
    await update(mesh, manifest(server=server, version="2"))
    event = (await server.told(2))[1]
    assert event.WhichOneof("event") == "plugin_updated"
    assert (event.plugin_updated.version, event.plugin_updated.previous_version) == ("2", "1")
    assert server.events[0].event_id != event.event_id


async def test_what_waits_to_be_confirmed_is_told_of_nothing(
    mesh: RelayMesh, server: ExtensionServer
) -> None:
    service = plugin_service(mesh.admin)
    installed = await service.InstallPlugin(plugin_pb2.InstallPluginRequest(manifest=manifest(server=server)))
    server.secret = installed.endpoint_secret
    await prompt(mesh, await mesh.agent("lead"))
    assert await waits(mesh) == 0
    await service.ConfirmPlugin(plugin_pb2.ConfirmPluginRequest(plugin="shop"))
    await server.told(1)
    assert kinds(server) == ["plugin_installed"]


async def test_a_session_that_a_person_opens_is_told_with_its_agent_and_may_be_acted_on(
    mesh: RelayMesh, server: ExtensionServer
) -> None:
    plugin = await install(mesh, server=server)
    await server.told(1)
    lead = await mesh.agent("lead")
    turn = await prompt(mesh, lead)
    event = (await server.told(2))[1]
    session = event.session_started.session
    assert (session.session_id, session.agent_id, session.channel) == (turn.session_id, lead.id, "human")
    assert (session.depth, session.hook_generation, session.is_withheld) == (0, 0, False)
    # Of an agent that is not its own it learns no more than the id.
    assert (session.agent_slug, session.agent_name, session.agent_key) == ("", "", "")
    await prompt(mesh, lead, "and further", session_id=turn.session_id)
    await taken(mesh)
    assert len(server.events) == 2, "a session begins once"
    assert plugin.id == event.plugin_id


async def test_what_agents_open_is_not_told_of(mesh: RelayMesh, server: ExtensionServer) -> None:
    await install(mesh, server=server)
    await server.told(1)
    one, other = await mesh.agent("one"), await mesh.agent("other")
    await one.send(other)
    await one.ask(other)
    await one.ask(other, own_endpoint=True)
    await taken(mesh)
    assert kinds(server) == ["plugin_installed"]


async def test_a_webhook_and_a_persons_call_of_an_endpoint_open_sessions_too(
    mesh: RelayMesh, server: ExtensionServer
) -> None:
    await install(mesh, server=server)
    await server.told(1)
    lead = await mesh.agent("lead")
    await prompt(mesh, lead, own_endpoint=True)
    await server.told(2)
    assert server.events[1].session_started.session.channel == "mcp"
    made = await mesh.admin.webhooks.AddWebhook(webhook_pb2.AddWebhookRequest(agent=lead.id, name="orders"))
    for number in range(2):
        body = f'{{"order": {number}}}'
        signature = signatures.sign(made.secret, body.encode(), int(mesh.clock.now()))
        delivery = webhook_pb2.DeliverWebhookRequest(
            body=body, slug="lead", name="orders", signature=signature
        )
        await mesh.service.webhooks.DeliverWebhook(delivery)
    await server.told(3)
    await taken(mesh)
    assert server.events[2].session_started.session.channel == "webhook"
    assert len(server.events) == 3, "the session of a webhook is one"


async def test_a_plugin_without_session_permissions_learns_that_a_session_began_and_not_which(
    mesh: RelayMesh, server: ExtensionServer
) -> None:
    await install(mesh, server=server, permissions=["agents.read", "agents.write"])
    await server.told(1)
    await prompt(mesh, await mesh.agent("lead"))
    event = (await server.told(2))[1]
    assert event.WhichOneof("event") == "session_started"
    assert not event.session_started.HasField("session")


async def test_events_come_in_order_and_the_next_waits_for_the_one_before(
    mesh: RelayMesh, server: ExtensionServer
) -> None:
    refusing = True

    async def refuse(request: pb.HandleEventRequest) -> None:
        if refusing:
            raise RefusalError(grpc.StatusCode.INTERNAL)

    server.on_event = refuse
    await install(mesh, server=server)
    lead = await mesh.agent("lead")
    turns = [await prompt(mesh, lead, f"number {number}") for number in range(3)]
    await passes_until_told(mesh, server, 3)
    assert set(kinds(server)) == {"plugin_installed"}
    assert len({each.event_id for each in server.events}) == 1
    assert [each.attempt for each in server.events] == [1, 2, 3]
    refusing = False
    server.events.clear()
    await passes_until_told(mesh, server, 4)
    assert [each.session_started.session.session_id for each in server.events[1:]] == [
        turn.session_id for turn in turns
    ]


@pytest.mark.parametrize("code", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT])
async def test_one_that_takes_no_events_is_not_told_again(
    mesh: RelayMesh, server: ExtensionServer, code: grpc.StatusCode
) -> None:
    async def refuse(request: pb.HandleEventRequest) -> None:
        raise RefusalError(code)

    server.on_event = refuse
    await install(mesh, server=server)
    await server.told(1)
    await taken(mesh)
    assert len(server.events) == 1


async def test_what_was_not_taken_is_told_by_the_next_process_with_the_same_id(
    mesh: RelayMesh, server: ExtensionServer
) -> None:
    async def refuse(request: pb.HandleEventRequest) -> None:
        raise RefusalError(grpc.StatusCode.UNAVAILABLE)

    server.on_event = refuse
    await install(mesh, server=server)
    turn = await prompt(mesh, await mesh.agent("lead"))
    await server.told(1)
    first = server.events[0].event_id
    await mesh.reopen()
    server.on_event = None
    server.events.clear()
    await passes_until_told(mesh, server, 2)
    assert server.events[0].event_id == first
    assert server.events[1].session_started.session.session_id == turn.session_id
    await taken(mesh)
    await mesh.reopen()
    await mesh.clock.advance(1.0)
    assert len(server.events) == 2, "what was taken is not told again, nor the installation"


async def test_an_installation_that_no_relay_saw_is_told_when_one_is_there(
    mesh: RelayMesh, server: ExtensionServer
) -> None:
    await mesh.close_relay()
    await install(mesh, server=server)
    await mesh.open_relay()
    await server.told(1)
    assert kinds(server) == ["plugin_installed"]


async def test_after_a_day_an_event_is_given_up_and_the_log_says_so(
    mesh: RelayMesh, server: ExtensionServer
) -> None:
    async def refuse(request: pb.HandleEventRequest) -> None:
        raise RefusalError(grpc.StatusCode.INTERNAL, "never")

    server.on_event = refuse
    plugin = await install(mesh, server=server)
    await server.told(1)
    await mesh.skip(events_module.GIVE_UP_SECONDS)
    async with asyncio.timeout(20):
        while not (told := await mesh.events("plugin.event_given_up")):
            await mesh.clock.advance(31.0)
            await asyncio.sleep(0.01)  # the endpoint is a real one, and in real time
    (event,) = told
    details = dict(event.details)
    assert details["plugin_id"] == plugin.id
    assert details["event"] == "plugin_installed"
    assert await waits(mesh) == 0


async def test_more_sessions_than_may_wait_make_room_the_oldest_first(
    mesh: RelayMesh, server: ExtensionServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "MAX_WAITING", 3)

    async def refuse(request: pb.HandleEventRequest) -> None:
        raise RefusalError(grpc.StatusCode.INTERNAL)

    server.on_event = refuse
    await install(mesh, server=server)
    lead = await mesh.agent("lead")
    turns = [await prompt(mesh, lead, f"number {number}") for number in range(5)]
    async with asyncio.timeout(20):
        while await waits(mesh) > 3:
            await mesh.clock.advance(1.0)
            await asyncio.sleep(0.01)  # the endpoint is a real one, and in real time
    assert await mesh.events("plugin.events_dropped")
    server.on_event = None
    server.events.clear()
    await passes_until_told(mesh, server, 3)
    assert server.events[0].WhichOneof("event") == "plugin_installed"
    assert [each.session_started.session.session_id for each in server.events[1:]] == [
        turn.session_id for turn in turns[-2:]
    ]


async def test_an_uninstalled_plugin_is_told_nothing_more_and_nothing_is_left_of_it(
    mesh: RelayMesh, server: ExtensionServer
) -> None:
    async def refuse(request: pb.HandleEventRequest) -> None:
        raise RefusalError(grpc.StatusCode.INTERNAL)

    server.on_event = refuse
    plugin = await install(mesh, server=server)
    await prompt(mesh, await mesh.agent("lead"))
    await server.told(1)
    await uninstall(mesh)
    for table in ("plugin_events", "plugin_revisions", "plugin_handed"):
        assert await count(mesh, table) == 0, table
    await install(mesh, server=server)
    server.on_event = None
    server.events.clear()
    await passes_until_told(mesh, server, 1)
    assert server.events[0].plugin_id != plugin.id


async def test_a_send_writes_nothing_for_plugins_that_have_no_endpoint(mesh: RelayMesh) -> None:
    await install(mesh)
    await prompt(mesh, await mesh.agent("lead"))
    assert await waits(mesh) == 0


async def test_the_session_of_an_event_is_handed_when_it_is_told(
    mesh: RelayMesh, server: ExtensionServer
) -> None:
    plugin: Plugin = await install(mesh, server=server)
    await server.told(1)
    turn = await prompt(mesh, await mesh.agent("lead"))
    await server.told(2)
    principal = await mesh.relay.authenticator.principal(plugin.token)
    mesh.relay.grants.require(principal, turn.session_id)
    assert mesh.relay.grants.standing(principal).depth == 0
    await mesh.skip(600)
    with pytest.raises(HoplineError):
        mesh.relay.grants.require(principal, turn.session_id)
