"""What stands in another workspace of the same mesh, and pages that would show it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hopline.registry.v1 import model_pb2, plugin_pb2
from hopline.relay.v1 import schedule_pb2

from tests.support.mesh_process import Space
from tests.support.pages import Visitor, visitor


@asynccontextmanager
async def two_spaces(space: Space) -> AsyncIterator[tuple[Visitor, dict[str, str]]]:
    """Yield the admin of a space, and pages of what another one holds, by its id."""
    async with space.mesh.space() as other:
        agent = await other.agent("hidden-one")
        manifest = plugin_pb2.PluginManifest(key="hidden-shop", name="Hidden", version="1")
        request = plugin_pb2.InstallPluginRequest(manifest=manifest, confirm=True)
        plugin = (await other.admin.plugins.InstallPlugin(request)).plugin
        added = schedule_pb2.AddScheduleRequest(agent=agent.id, cron="0 5 * * *", text="wake up")
        schedule = (await other.admin.schedules.AddSchedule(added)).schedule
        wanted = model_pb2.CreateModelRequest(model=model_pb2.Model(model_identifier="hidden-model"))
        model = (await other.admin.models.CreateModel(wanted)).model
        pages = {
            agent.id: f"/agents/{agent.id}",
            agent.name: f"/agents/{agent.name}/settings",
            plugin.id: f"/plugins/{plugin.id}",
            schedule.id: f"/schedules/{schedule.id}",
            model.id: f"/models/{model.id}",
        }
        async with visitor(space) as admin:
            yield admin, pages
