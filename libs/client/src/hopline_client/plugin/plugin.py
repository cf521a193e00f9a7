"""A plugin: what it declares, what it serves, and the mesh it acts in."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, overload

import grpc.aio
from google.protobuf import json_format
from hopline.hooks.v1 import extension_pb2
from hopline.hooks.v1.extension_pb2_grpc import add_ExtensionServiceServicer_to_server
from hopline.hooks.v1.hook_pb2_grpc import add_HookServiceServicer_to_server
from hopline.registry.v1 import plugin_pb2 as pb
from hopline_rpc.errors import HoplineError
from hopline_rpc.tls import TlsSettings

from hopline_client.discovery import Source, TokenSource
from hopline_client.plugin.chat import Chat
from hopline_client.plugin.endpoint import Add, Endpoint
from hopline_client.plugin.events import KINDS, EventKind, Handler
from hopline_client.plugin.hooks import HOOK_KINDS, FailMode, HookHandler, HookKind
from hopline_client.plugin.host import PluginHost, current_chat
from hopline_client.plugin.servicers.extension import Extension
from hopline_client.plugin.servicers.hooks import Hooks
from hopline_client.tools import Function, ServerTool

_SECRET_FILE: Final = "HOPLINE_PLUGIN_SECRET_FILE"  # noqa: S105  a name, not a secret
_DEFAULT_ENDPOINT: Final = "127.0.0.1:7500"


class Plugin:
    """A plugin of a workspace; what it is given here is its manifest.

    `agents` and `skills`, `commands`: mappings as in the manifest, `{"key": …, "name": …}`, `{"name": …,
    "description": …, "text": …}`, `{"name": …, "description": …, "agent_key": …}`. `token` and `secret`, or
    files with them, are what installing it has shown; without them the environment says (HOPLINE_URL,
    HOPLINE_TOKEN_FILE, HOPLINE_PLUGIN_SECRET_FILE).
    """

    def __init__(
        self,
        key: str,
        *,
        name: str = "",
        version: str = "1",
        description: str = "",
        endpoint: str = _DEFAULT_ENDPOINT,
        permissions: Iterable[str] = (),
        agents: Iterable[Mapping[str, str]] = (),
        skills: Iterable[Mapping[str, str]] = (),
        commands: Iterable[Mapping[str, str]] = (),
        where: str | Path | Source | None = None,
        token: str | TokenSource | None = None,
        token_file: str | Path | None = None,
        secret: str = "",
        secret_file: str | Path | None = None,
        tls: TlsSettings | None = None,
        endpoint_tls: TlsSettings | None = None,
    ) -> None:
        self.key = key
        self._name = name or key
        self._version = version
        self._description = description
        self._endpoint = endpoint
        self._permissions = tuple(permissions)
        self._agents = tuple(agents)
        self._skills = tuple(skills)
        self._commands = tuple(commands)
        self._where = where
        self._token = token
        self._token_file = token_file
        self._secret_given = secret
        self._secret_file = secret_file
        self._tls = tls
        self._endpoint_tls = endpoint_tls
        self._tools: dict[str, ServerTool] = {}
        self._handlers: dict[EventKind, list[Handler]] = {kind: [] for kind in KINDS}
        self._hooks: dict[HookKind, HookHandler] = {}
        self._hooked: list[pb.PluginHook] = []
        self._services: list[Add] = []
        self._host: PluginHost | None = None
        self._stopping = asyncio.Event()
        # Where it listens, once it does.
        self.address = ""
        self.listening = asyncio.Event()

    # -- what it declares --------------------------------------------------------------------------

    @overload
    def tool(self, function: Function, *, name: str = "", description: str = "") -> Function: ...

    @overload
    def tool(
        self, function: None = None, *, name: str = "", description: str = ""
    ) -> Callable[[Function], Function]: ...

    def tool(
        self, function: Function | None = None, *, name: str = "", description: str = ""
    ) -> Function | Callable[[Function], Function]:
        """Offer a function to the agents of the workspace, as `KEY__NAME`.

        Its schema comes from its annotations, its description from its text; a parameter of type `Chat` is
        filled in with the session that the call comes from. Plain functions run in a thread.
        """
        if function is None:
            return lambda each: self.tool(each, name=name, description=description)
        made = ServerTool(function, name=name, description=description, context=Chat)
        if made.name in self._tools:
            raise ValueError(f"there are two tools {made.name!r}")
        self._tools[made.name] = made
        return function

    def on(self, kind: EventKind) -> Callable[[Handler], Handler]:
        """Have a function called with events of a kind; what it raises has the event told again later."""
        if kind not in self._handlers:
            raise ValueError(f"there is no event {kind!r}; there are: {', '.join(KINDS)}")

        def add(handler: Handler) -> Handler:
            self._handlers[kind].append(handler)
            return handler

        return add

    def hook(
        self, kind: HookKind, *, order: int = 0, fail_mode: FailMode = "fail_open"
    ) -> Callable[[HookHandler], HookHandler]:
        """Have a function asked about what is on its way through the mesh, before it goes on.

        It returns other words, a `Veto`, or nothing: it passes. What it raises, or has not said after 2 s, is
        its failure, and `fail_mode` says what becomes of the item then. Lower `order` is asked first.
        """
        if kind not in HOOK_KINDS:
            raise ValueError(f"there is no hook {kind!r}; there are: {', '.join(HOOK_KINDS)}")
        if kind in self._hooks:
            raise ValueError(f"there are two hooks {kind!r}")

        def add(handler: HookHandler) -> HookHandler:
            self._hooks[kind] = handler
            self._hooked.append(pb.PluginHook(kind=kind, order=order, fail_mode=fail_mode))
            return handler

        return add

    def serve(self, add: Add) -> None:
        """Serve a further gRPC service at the endpoint."""
        self._services.append(add)

    def manifest(self) -> pb.PluginManifest:
        """Return the manifest, for `hopline plugin install`."""
        manifest = pb.PluginManifest(
            key=self.key,
            name=self._name,
            version=self._version,
            description=self._description,
            permissions=self._permissions,
            agents=[pb.PluginAgent(**each) for each in self._agents],
            skills=[pb.PluginSkill(**each) for each in self._skills],
            commands=[pb.PluginCommand(**each) for each in self._commands],
            hooks=self._hooked,
        )
        for each in self._tools.values():
            defined = each.definition()
            manifest.tools.add(
                name=defined.name,
                description=defined.description,
                input_schema_json=defined.input_schema_json,
            )
        if self._serves:
            manifest.endpoint = self._endpoint
        return manifest

    @property
    def _serves(self) -> bool:
        return bool(self._tools or self._hooks or self._services or any(self._handlers.values()))

    # -- the mesh ----------------------------------------------------------------------------------

    @property
    def host(self) -> PluginHost:
        """The mesh as this plugin sees it."""
        if self._host is None:
            self._host = PluginHost(
                self._where, token=self._token, token_file=self._token_file, tls=self._tls
            )
        return self._host

    def handed(self, session: extension_pb2.HandedSession | None, turn_id: str = "") -> Chat:
        """Return a session that was handed over with a call, and make it `host.session` for what it runs."""
        chat = Chat(self._to_relay, session, turn_id=turn_id)
        current_chat.set(chat)
        return chat

    async def _to_relay(self, stub: Any, method: str, request: Any) -> Any:
        return await self.host._to_relay(stub, method, request)

    # -- running -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until `stop`."""
        extension = Extension(self._tools, self._handlers, self.handed)

        hooks = Hooks(self._hooks, self.handed)

        def add(server: grpc.aio.Server) -> None:
            add_ExtensionServiceServicer_to_server(extension, server)
            add_HookServiceServicer_to_server(hooks, server)

        endpoint = Endpoint([add, *self._services], self._secret, self._endpoint_tls)
        self.address = await endpoint.start(self._endpoint)
        self.listening.set()
        try:
            await self._stopping.wait()
        finally:
            await endpoint.stop()
            if self._host is not None:
                await self._host.close()
                self._host = None

    def stop(self) -> None:
        """Let what runs end, and stop."""
        self._stopping.set()

    def run_forever(self) -> None:
        """Serve until SIGINT or SIGTERM."""

        async def serve() -> None:
            loop = asyncio.get_running_loop()
            for each in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(each, self.stop)
            await self.run()

        asyncio.run(serve())

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Do what the command line says: `manifest` prints the manifest, `serve` (or nothing) serves."""
        given = list(sys.argv[1:] if arguments is None else arguments)
        if given == ["manifest"]:
            print(json.dumps(self._as_file(), ensure_ascii=False, indent=2))
        elif given in ([], ["serve"]):
            self.run_forever()
        else:
            raise SystemExit(f"usage: {sys.argv[0]} [serve | manifest]")

    def _as_file(self) -> dict[str, Any]:
        """Return the manifest as `hopline plugin install` reads it; JSON is YAML."""
        found: dict[str, Any] = json_format.MessageToDict(self.manifest(), preserving_proto_field_name=True)
        for tool in found.get("tools", ()):
            tool["input_schema"] = json.loads(tool.pop("input_schema_json", "{}"))
        return found

    def _secret(self) -> str:
        """Return the secret of the installation: read anew each time, since it may be rotated."""
        file = self._secret_file or os.environ.get(_SECRET_FILE, "")
        if self._secret_given or not file:
            return self._secret_given
        try:
            return Path(file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise HoplineError(
                "failed_precondition", f"the secret in {file} cannot be read: {error.strerror}"
            ) from None
