"""Plugins of a mesh in tests: installed as people do it, served by a real endpoint."""

from __future__ import annotations

from typing import Any

from hopline.registry.v1 import plugin_pb2 as pb
from hopline.registry.v1.plugin_pb2_grpc import PluginServiceStub
from hopline.relay.v1.plugin_session_pb2_grpc import PluginSessionServiceStub
from hopline.relay.v1.plugin_tool_pb2_grpc import PluginToolServiceStub

from tests.support.extension_server import ExtensionServer
from tests.support.relay_mesh import Caller, RelayMesh

ALL = ("session", "todo.read", "todo.write", "notify.write")


class Plugin(Caller):
    """An installed plugin, as whoever holds its token."""

    @property
    def chat(self) -> Any:
        """PluginSessionService."""
        return PluginSessionServiceStub(self._channel("relay"))


def plugin_service(caller: Caller) -> Any:
    """Return PluginService as a caller sees it."""
    return PluginServiceStub(caller._channel("registry"))


def tool_service(caller: Caller) -> Any:
    """Return PluginToolService as a caller sees it."""
    return PluginToolServiceStub(caller._channel("relay"))


def manifest(key: str = "shop", server: ExtensionServer | None = None, **fields: Any) -> pb.PluginManifest:
    """Return a manifest: that of a plugin which may do everything in sessions, unless told otherwise."""
    given: dict[str, Any] = {
        "name": key.title(),
        "version": "1",
        "permissions": ALL,
        "endpoint": server.address if server is not None else "",
    }
    return pb.PluginManifest(key=key, **{**given, **fields})


async def install(
    mesh: RelayMesh, key: str = "shop", server: ExtensionServer | None = None, **fields: Any
) -> Plugin:
    """Install a plugin, agreed to at once; its server learns the secret."""
    request = pb.InstallPluginRequest(manifest=manifest(key, server, **fields), confirm=True)
    installed = await plugin_service(mesh.admin).InstallPlugin(request)
    if server is not None:
        server.secret = installed.endpoint_secret
    return Plugin(mesh, installed.plugin.id, installed.token)


async def update(mesh: RelayMesh, changed: pb.PluginManifest) -> None:
    """Bring another version into force."""
    request = pb.UpdatePluginRequest(plugin=changed.key, manifest=changed, confirm=True)
    await plugin_service(mesh.admin).UpdatePlugin(request)


async def uninstall(mesh: RelayMesh, key: str = "shop") -> None:
    """Take a plugin away."""
    await plugin_service(mesh.admin).UninstallPlugin(pb.UninstallPluginRequest(plugin=key))
