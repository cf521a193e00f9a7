"""Whatever people and plugins do in whatever order: what holds of plugins and their agents at all times."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import plugin_pb2 as pb
from hopline.registry.v1.agent_pb2 import Agent, DeleteAgentRequest, UpdateAgentRequest
from hopline.registry.v1.visibility_pb2 import WatchChangesResponse
from hopline.registry.v1.workspace_pb2 import GetWorkspaceRequest, Policy, UpdatePolicyRequest
from hopline_directory import OPERATOR, Directory
from hopline_rpc.errors import HoplineError

from tests.registry.builders import Caller, Rig, copied
from tests.registry.plugin_builders import manifest

KEYS: Final = ("omo", "zoo")
MEMBERS: Final = ("a", "b", "c", "d")
GRANTS: Final = ("agents.read", "agents.write", "models.read", "session")
ROOM: Final = 5
REFUSALS: Final = {
    "failed_precondition",
    "invalid_argument",
    "limit_reached",
    "not_found",
    "permission_denied",
    "unauthenticated",
}


class Play:
    """Random acts on one registry, and what has been agreed to by people."""

    def __init__(self, rig: Rig, people: list[Caller], seed: int, workspace_id: str) -> None:
        self.rig = rig
        self.people = people
        self.chance = random.Random(seed)
        self.workspace_id = workspace_id
        self.tokens: dict[str, Caller] = {}
        self.version = 0
        # By plugin: permissions and agents that somebody has said yes to.
        self.agreed: dict[str, set[str]] = {}

    def wish(self) -> pb.PluginManifest:
        self.version += 1
        agents = [each for each in MEMBERS if self.chance.random() < 0.4]
        permissions = [each for each in GRANTS if self.chance.random() < 0.5]
        return manifest(
            *agents, key=self.chance.choice(KEYS), version=str(self.version), permissions=permissions
        )

    async def act(self) -> None:
        """Do one thing, which may be refused."""
        act = self.chance.choice([self.install, self.update, self.confirm, self.end, self.own, self.edit])
        try:
            await act()
        except HoplineError as error:
            if error.reason not in REFUSALS:
                raise

    async def install(self) -> None:
        wanted, yes = self.wish(), self.chance.random() < 0.5
        by = self.chance.choice(self.people)
        made = await by.plugins.InstallPlugin(pb.InstallPluginRequest(manifest=wanted, confirm=yes))
        self.tokens[made.plugin.manifest.key] = self.rig.caller(made.token)
        if yes:
            self._agree(made.plugin)

    async def update(self) -> None:
        wanted = self.wish()
        yes = self.chance.random() < 0.3
        by = self.chance.choice([*self.people, *self.tokens.values()])
        ref = "" if by in self.tokens.values() else wanted.key
        request = pb.UpdatePluginRequest(plugin=ref, manifest=wanted, confirm=yes)
        made = await by.plugins.UpdatePlugin(request)
        if yes:
            self._agree(made.plugin)

    async def confirm(self) -> None:
        by, key = self.chance.choice(self.people), self.chance.choice(KEYS)
        if self.chance.random() < 0.2:
            await by.plugins.DeclinePluginUpdate(pb.DeclinePluginUpdateRequest(plugin=key))
            return
        made = await by.plugins.ConfirmPlugin(pb.ConfirmPluginRequest(plugin=key))
        self._agree(made.plugin)

    async def end(self) -> None:
        if self.chance.random() < 0.5:
            by, key = self.chance.choice(self.people), self.chance.choice(KEYS)
            await by.plugins.UninstallPlugin(pb.UninstallPluginRequest(plugin=key))

    async def own(self) -> None:
        if not self.tokens:
            return
        caller = self.chance.choice(list(self.tokens.values()))
        member = self.chance.choice(MEMBERS)
        roll = self.chance.random()
        if roll < 0.5:
            agent = Agent(key=member, name=member, soul=str(self.version))
            await caller.plugins.CreatePluginAgent(pb.CreatePluginAgentRequest(agent=agent))
            return
        ref = f"{self.chance.choice(KEYS)}-{member}"
        if roll < 0.7:
            await caller.plugins.DeletePluginAgent(pb.DeletePluginAgentRequest(agent=ref))
            return
        parent = f"{self.chance.choice(KEYS)}-{self.chance.choice(MEMBERS)}"
        request = pb.UpdatePluginAgentRequest(
            agent_ref=ref,
            agent=Agent(parent_agent_id=parent),
            update_mask=FieldMask(paths=["parent_agent_id"]),
        )
        await caller.plugins.UpdatePluginAgent(request)

    async def edit(self) -> None:
        by = self.chance.choice(self.people)
        ref = f"{self.chance.choice(KEYS)}-{self.chance.choice(MEMBERS)}"
        if self.chance.random() < 0.4:
            await by.agents.DeleteAgent(DeleteAgentRequest(agent=ref))
        else:
            mask = FieldMask(paths=["name"])
            await by.agents.UpdateAgent(
                UpdateAgentRequest(agent_ref=ref, agent=Agent(name="mine"), update_mask=mask)
            )

    def _agree(self, plugin: pb.Plugin) -> None:
        asked = {*plugin.manifest.permissions, *(f"agent {each.key}" for each in plugin.manifest.agents)}
        self.agreed.setdefault(plugin.id, set()).update(asked)

    def check(self) -> None:
        """Hold the view against what must be so."""
        view = self.rig.registry.directory
        everyone = view.agents(self.workspace_id)
        assert len(everyone) <= ROOM
        seen: set[tuple[str, str]] = set()
        for agent in everyone:
            plugin = view.plugin(self.workspace_id, agent.plugin_id)
            assert plugin is not None, "an agent of no plugin"
            assert agent.slug.startswith(plugin.slug_prefix)
            assert (agent.state == "provisioning") == (not plugin.is_confirmed)
            assert (agent.plugin_id, agent.key) not in seen, "two of one key"
            seen.add((agent.plugin_id, agent.key))
            if agent.parent_agent_id:
                parent = view.agent(self.workspace_id, agent.parent_agent_id)
                assert parent is not None
                assert (parent.plugin_id, parent.deleted, parent.parent_agent_id) == (
                    agent.plugin_id,
                    False,
                    "",
                )
        for plugin in view.plugins(self.workspace_id):
            held = {*plugin.permissions, *(f"agent {each.key}" for each in plugin.agents)}
            assert held <= self.agreed.get(plugin.id, set()), "in force without anybody's yes"

    async def check_store(self) -> None:
        """Hold the view against what a restart reads."""
        before = list(self.rig.registry.directory.snapshot())
        self.rig = await self.rig.reopen()
        fresh = Directory()
        changes = list(self.rig.registry.directory.snapshot())
        head = self.rig.registry.directory.seq
        fresh.apply(WatchChangesResponse(changes=changes, head_seq=head, snapshot=True, snapshot_end=True))
        assert _plugins_in(before) == _plugins_in(list(fresh.snapshot()))


def _plugins_in(changes: list[Any]) -> dict[str, bytes]:
    found = {}
    for change in changes:
        kind = change.WhichOneof("entity")
        if kind in ("plugin", "agent"):
            entity = getattr(change, kind)
            found[entity.id] = entity.SerializeToString(deterministic=True)
        elif kind == "agent_deleted":
            found.pop(change.agent_deleted, None)
    return found


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_is_done_no_plugin_has_what_nobody_agreed_to_and_no_agent_is_left_over(
    started: Path, tmp_path: Path, seed: int
) -> None:
    rig = await Rig.open(copied(started, tmp_path / "data"))
    people = [rig.admin, await rig.user("alice", OPERATOR), await rig.user("bob", OPERATOR)]
    policy = UpdatePolicyRequest(policy=Policy(agents=ROOM), update_mask=FieldMask(paths=["agents"]))
    await rig.admin.workspaces.UpdatePolicy(policy)
    home = (await rig.admin.workspaces.GetWorkspace(GetWorkspaceRequest())).workspace.id
    play = Play(rig, people, seed, home)
    for _ in range(120):
        if play.chance.random() < 0.2:
            await asyncio.gather(*(play.act() for _ in range(3)))
        else:
            await play.act()
        play.check()
    await play.check_store()
    await play.rig.registry.close()
