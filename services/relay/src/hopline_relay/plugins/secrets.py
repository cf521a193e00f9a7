"""The secrets by which the mesh proves itself to plugins: asked of the registry, in no view."""

from __future__ import annotations

import grpc.aio
from hopline.registry.v1.plugin_pb2 import GetPluginEndpointRequest
from hopline.registry.v1.plugin_pb2_grpc import PluginServiceStub

from hopline_relay.plugins.calling import Callee


class Secrets:
    """Asks the registry."""

    def __init__(self, registry: grpc.aio.Channel) -> None:
        self._stub = PluginServiceStub(registry)

    async def __call__(self, plugin: Callee) -> str:
        """Return the secret of an installation; raises what the registry says."""
        request = GetPluginEndpointRequest(workspace_id=plugin.workspace_id, plugin_id=plugin.id)
        found = await self._stub.GetPluginEndpoint(request)
        return str(found.secret)
