"""What a plugin asks of its own agents, with its token, through their endpoints."""

from __future__ import annotations

from typing import Any

import pytest
from hopline.relay.v1 import message_pb2, session_pb2, tool_pb2
from hopline.relay.v1.tool_pb2_grpc import ToolServiceStub
from hopline_rpc.errors import HoplineError

from tests.relay.test_plugin_commands import LIBRARIAN, librarian
from tests.relay.test_plugin_sessions import hand
from tests.support.plugins import Plugin, install
from tests.support.relay_mesh import RelayMesh


async def library(mesh: RelayMesh, key: str = "shop", **fields: Any) -> Plugin:
    return await install(mesh, key, **{"agents": [LIBRARIAN], "permissions": ["session"], **fields})


async def refused(reason: str, call: Any) -> HoplineError:
    with pytest.raises(HoplineError) as caught:
        await call
    assert caught.value.reason == reason, caught.value
    return caught.value


async def test_a_plugin_asks_its_own_agent_and_gets_the_answer_in_a_session_bound_to_it(
    mesh: RelayMesh,
) -> None:
    plugin = await library(mesh)
    there = librarian(mesh, plugin)
    view = await plugin.ask(there, "what is new?")
    worker = await mesh.worker(there)
    turn = await worker.next()
    assert (turn.sender_kind, turn.channel, turn.depth) == ("plugin", "mcp", 1)
    assert await worker.end(turn, "nothing")
    found = await plugin.check(view.turn_id)
    assert (found.status, found.reply) == (message_pb2.TURN_STATUS_COMPLETED, "nothing")
    again = await plugin.ask(there, "and now?", session_id=view.session_id)
    assert again.session_id == view.session_id
    session = await plugin.sessions.GetSession(session_pb2.GetSessionRequest(session_id=view.session_id))
    assert (session.session.opened_by.kind, session.session.opened_by.id) == ("plugin", plugin.id)
    listed = await plugin.sessions.ListSessions(session_pb2.ListSessionsRequest(agent=there.id))
    assert [each.id for each in listed.sessions] == [view.session_id]
    read = await plugin.sessions.ReadSession(session_pb2.ReadSessionRequest(session_id=view.session_id))
    assert [each.text for each in read.entries] == ["what is new?", "nothing", "and now?"]


async def test_nobody_else_prompts_in_that_session_and_the_plugin_in_none_of_others(mesh: RelayMesh) -> None:
    plugin, other = await library(mesh), await library(mesh, "market")
    there = librarian(mesh, plugin)
    view = await plugin.ask(there)
    request = session_pb2.PromptRequest(agent=there.id, text="me too", session_id=view.session_id)
    await refused("permission_denied", mesh.admin.sessions.Prompt(request))
    ada = await mesh.agent("ada")
    await refused("not_found", ada.ask(there, session_id=view.session_id))
    prompted = await mesh.admin.sessions.Prompt(
        session_pb2.PromptRequest(agent=there.id, text="hello", wait_seconds=0)
    )
    await refused("not_found", plugin.ask(there, session_id=prompted.turn.session_id))
    looked_for = session_pb2.GetSessionRequest(session_id=prompted.turn.session_id)
    await refused("not_found", plugin.sessions.GetSession(looked_for))
    await refused("not_found", other.check(view.turn_id))


async def test_the_agents_of_others_are_as_if_they_had_never_been(mesh: RelayMesh) -> None:
    plugin, other = await library(mesh), await library(mesh, "market")
    ada = await mesh.agent("ada")
    told = []
    for name in (ada.id, librarian(mesh, other).id, "nobody"):
        for call in (
            plugin.ask(name),
            plugin.sessions.ListSessions(session_pb2.ListSessionsRequest(agent=name)),
            ToolServiceStub(plugin._channel("relay")).CallTool(
                tool_pb2.CallToolRequest(agent=name, name="x")
            ),
        ):
            error = await refused("not_found", call)
            told.append(error.message.replace(name, "NAME"))
    assert len(set(told)) == 1


async def test_without_the_permission_session_nothing_is_asked(mesh: RelayMesh) -> None:
    plugin = await library(mesh, permissions=["agents.read"])
    error = await refused("permission_denied", plugin.ask(librarian(mesh, plugin)))
    assert "session" in error.message


async def test_an_ask_counts_at_what_the_plugin_was_handed_and_ends_with_the_fuse(mesh: RelayMesh) -> None:
    plugin = await library(mesh)
    there = librarian(mesh, plugin)
    hand(mesh, plugin, "ses_1", depth=2, root_id="rot_1", generation=1)
    await plugin.ask(there)
    worker = await mesh.worker(there)
    turn = await worker.next()
    assert (turn.depth, turn.root_id) == (3, "rot_1")
    hand(mesh, plugin, "ses_1", depth=4, root_id="rot_1", generation=1)
    await refused("depth_exceeded", plugin.ask(there))
    await mesh.skip(600)
    hand(mesh, plugin, "ses_1", generation=4)
    error = await refused("permission_denied", plugin.ask(there))
    assert "withheld" in error.message


async def test_an_agent_that_the_plugin_lost_while_its_ask_waited_does_not_get_it(mesh: RelayMesh) -> None:
    plugin = await library(mesh)
    there = librarian(mesh, plugin)
    view = await plugin.ask(there)
    await mesh.pause(there)
    assert (await plugin.check(view.turn_id)).status == message_pb2.TURN_STATUS_CANCELED
    await refused("not_found", plugin.ask(there))


async def test_a_plugin_sends_nothing_and_has_no_inbox(mesh: RelayMesh) -> None:
    plugin = await library(mesh)
    there = librarian(mesh, plugin)
    await refused("permission_denied", plugin.send(there))
    await refused("permission_denied", plugin.take())
    request = session_pb2.PromptRequest(agent=there.id, text="hello")
    await refused("permission_denied", plugin.sessions.Prompt(request))
