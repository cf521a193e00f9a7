"""Two plugins whose hooks look at all that the crew does, shape it by chance, and feed each other."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any, Final

from hopline.hooks.v1 import extension_pb2, hook_pb2
from hopline.registry.v1 import plugin_pb2
from hopline.registry.v1.plugin_pb2_grpc import PluginServiceStub
from hopline.relay.v1 import plugin_session_pb2 as pb
from hopline.relay.v1.plugin_session_pb2_grpc import PluginSessionServiceStub
from hopline_relay.plugins.calling import CallFailed
from hopline_rpc.errors import HoplineError

from tests.simulation.story import Story
from tests.simulation.world import Member, World

KEYS: Final = ("abe", "zoe")
_KINDS: Final = ("inter_agent_message", "todo_added", "notify_scheduled", "notify_delivered", "system_prompt")
_LATE_SECONDS: Final = 3.0
# How often a hook says something itself.
REACTS = 0.3


async def install(world: World) -> dict[str, tuple[str, str]]:
    """Install both; returns id and token of each."""
    made = {}
    for number, key in enumerate(KEYS):
        fail_mode = "fail_open" if number else "fail_closed"
        manifest = plugin_pb2.PluginManifest(
            key=key,
            name=key,
            version="1",
            permissions=["session", "todo.write", "notify.write"],
            endpoint="127.0.0.1:1",
            hooks=[plugin_pb2.PluginHook(kind=kind, order=number, fail_mode=fail_mode) for kind in _KINDS],
        )
        service: Any = PluginServiceStub(world.admin._channel("registry"))
        request = plugin_pb2.InstallPluginRequest(manifest=manifest, confirm=True)
        installed = await service.InstallPlugin(request)
        made[key] = (installed.plugin.id, installed.token)
    return made


async def hears(*_: Any, **__: Any) -> Any:
    """Take an event, as a plugin does that has nothing to do yet."""
    return extension_pb2.HandleEventResponse()


class Plugins:
    """What they say when they are asked."""

    def __init__(
        self, rng: random.Random, story: Story, did: Counter[str], members: dict[str, Member]
    ) -> None:
        self._rng = rng
        self._story = story
        self._did = did
        self._members = members
        self.most_generations = 0

    async def call(self, plugin: Any, method: str, request: Any, seconds: float) -> Any:
        """Answer a call of the relay's."""
        if method == "HandleEvent":
            return extension_pb2.HandleEventResponse()
        chance = self._rng.random()
        if chance < 0.03:
            self._did["hooks that fail"] += 1
            raise CallFailed("unreachable", "it is gone", sent=True)
        if chance < 0.05:
            self._did["hooks that are late"] += 1
            await asyncio.sleep(min(seconds, _LATE_SECONDS))
            raise CallFailed("late", "it took too long", sent=True)
        generation = request.context.generation
        self.most_generations = max(self.most_generations, generation)
        if method == "InterAgentMessage":
            self._did[f"hooks asked at generation {generation}"] += 1
            if self._rng.random() < REACTS:
                await self._react(plugin.id, request)
        return self._verdict(method)

    def _verdict(self, method: str) -> Any:
        response: Any = getattr(hook_pb2, f"{method}Response")()
        chance = self._rng.random()
        if method == "SystemPrompt":
            if chance < 0.1:
                response.text = "be kind"
        elif chance < 0.08:
            self._did["vetoes"] += 1
            response.veto.reason = "not so"
        elif chance < 0.16:
            self._did["rewrites"] += 1
            text = self._rng.choice(("in other words", ""))
            if method == "InterAgentMessage":
                response.rewrite.text = text
                response.rewrite.SetInParent()
            else:
                response.text = text
        return response

    async def _react(self, plugin_id: str, request: Any) -> None:
        """Say something into the session that the message goes to: the other plugin is asked about that."""
        member = next(each for each in self._members.values() if each.id == plugin_id)
        sender, recipient = getattr(request, "from"), request.to
        if not (sender.session_id and recipient.session_id):
            return
        said = pb.SendPeerRequest(
            session_id=sender.session_id, to_session_id=recipient.session_id, text="a reaction"
        )
        service: Any = PluginSessionServiceStub(member._channel("relay"))
        try:
            answer = await service.SendPeer(said)
        except HoplineError as error:
            self._did[f"refused reactions: {error.reason}"] += 1
            return
        self._did[f"reactions: delivered {answer.is_delivered}, canceled {answer.is_canceled}"] += 1
