"""Agents whose plugin waits to be confirmed: they are there, and nothing reaches them or comes from them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hopline.registry.v1 import plugin_pb2
from hopline.registry.v1.identity_pb2 import CreateTokenRequest
from hopline.relay.v1 import message_pb2 as pb
from hopline.relay.v1 import schedule_pb2, session_pb2

from tests.support.relay_mesh import Caller, RelayMesh, refusal


async def install(mesh: RelayMesh) -> Caller:
    """Install a plugin that waits; returns its agent, with a token that its owner made."""
    manifest = plugin_pb2.PluginManifest(key="omo", name="Oh My", version="1")
    manifest.agents.add(key="oracle", name="oracle")
    await mesh.admin.plugins.InstallPlugin(plugin_pb2.InstallPluginRequest(manifest=manifest))
    made = await mesh.admin.people.CreateToken(CreateTokenRequest(agent="omo-oracle"))
    return Caller(mesh, made.info.subject_id, made.token)


async def confirm(mesh: RelayMesh) -> None:
    await mesh.admin.plugins.ConfirmPlugin(plugin_pb2.ConfirmPluginRequest(plugin="omo"))


async def test_nobody_starts_anything_on_one_that_waits_and_everybody_does_once_it_is_confirmed(
    mesh: RelayMesh,
) -> None:
    ada = await mesh.agent("ada")
    oracle = await install(mesh)

    def prompt() -> Any:
        request = session_pb2.PromptRequest(agent="omo-oracle", text="well?", wait_seconds=0)
        return mesh.admin.sessions.Prompt(request)

    assert (await refusal(ada.send(oracle))).reason == "not_found"
    assert (await refusal(ada.ask(oracle))).reason == "not_found"
    never = await refusal(ada.send("never"))
    assert (await refusal(ada.send("omo-oracle"))).message == never.message.replace("never", "omo-oracle")
    assert (await refusal(prompt())).reason in ("failed_precondition", "not_found")
    await confirm(mesh)
    await ada.send(oracle)
    await prompt()
    assert len(await (await mesh.worker(oracle)).claim()) == 2


@pytest.mark.parametrize("what", ["send", "take", "read"])
async def test_one_that_waits_starts_and_takes_nothing(mesh: RelayMesh, what: str) -> None:
    ada = await mesh.agent("ada")
    oracle = await install(mesh)
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "send": lambda: oracle.send(ada),
        "take": lambda: oracle.take(),
        "read": lambda: oracle.messages.ListThreads(pb.ListThreadsRequest()),
    }
    if what == "read":
        assert (await calls[what]()).threads == []
    else:
        assert (await refusal(calls[what]())).reason == "failed_precondition"
    await confirm(mesh)
    await calls[what]()


async def test_a_schedule_of_one_that_waits_does_not_fire(mesh: RelayMesh) -> None:
    await install(mesh)
    request = schedule_pb2.AddScheduleRequest(agent="omo-oracle", cron="* * * * *", text="well?")
    await mesh.admin.schedules.AddSchedule(request)
    await mesh.skip(120)
    shown = (await mesh.admin.schedules.ListSchedules(schedule_pb2.ListSchedulesRequest())).schedules
    assert [each.fired for each in shown] == [0]
