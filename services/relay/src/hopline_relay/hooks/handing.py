"""What a plugin is told of where an item stands: it is handed the session that the item comes from."""

from __future__ import annotations

from typing import Any

from hopline.hooks.v1.hook_pb2 import HookContext
from hopline.hooks.v1.hook_pb2_grpc import HookServiceStub
from hopline_directory import Directory, PluginRecord

from hopline_relay.domain.handing import Handed
from hopline_relay.hooks.items import Item
from hopline_relay.plugins.calling import PluginCalls
from hopline_relay.plugins.grants import Grants
from hopline_relay.plugins.showing import shown_session


class Handing:
    """Hands sessions over with items."""

    def __init__(self, directory: Directory, grants: Grants) -> None:
        self._directory = directory
        self._grants = grants

    def __call__(self, plugin: PluginRecord, item: Item) -> HookContext:
        """Note that a plugin is handed an item, and return what it is told of where that stands."""
        origin = item.origin
        context = HookContext(
            workspace_id=origin.workspace_id,
            plugin_id=plugin.id,
            event_id=item.event_id,
            generation=origin.generation,
            depth=origin.depth,
            root_id=origin.root_id,
            traceparent=origin.traceparent,
        )
        handed = Handed(origin.session_id, origin.depth, origin.root_id, origin.generation)
        shown = self._grants.hand(plugin, handed)
        session = shown_session(
            self._directory, plugin, handed, shown, agent_id=origin.agent_id, channel=origin.channel
        )
        if session is not None and origin.session_id:
            context.session.CopyFrom(session)
        return context


async def ask_plugin(
    calls: PluginCalls, plugin: PluginRecord, method: str, request: Any, seconds: float
) -> Any:
    """Call a method of a plugin's HookService; raises `CallFailed`."""
    return await calls.call(plugin, HookServiceStub, method, request, seconds=seconds, lane="hooks")
