"""The records of the view and how one change alters them; no rules, no I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hopline.registry.v1.identity_pb2 import RoleGrant, SigningKey, Token
from hopline.registry.v1.visibility_pb2 import Change
from hopline_rpc.clock import from_timestamp, to_timestamp
from hopline_rpc.principals import load_public_key

from hopline_directory.convert import (
    agent_message,
    agent_record,
    model_message,
    model_record,
    policy_message,
    policy_record,
    user_message,
    user_record,
    workspace_message,
    workspace_record,
)
from hopline_directory.plugins import PluginRecord, plugin_message, plugin_record
from hopline_directory.records import AgentRecord, ModelRecord, Policy, UserRecord, WorkspaceRecord

# A revoked token is remembered until no assertion made from it can still hold (60 s), with room for
# clocks that differ.
REVOKED_SECONDS: Final = 600.0
_MAX_VIEWS: Final = 128


@dataclass(frozen=True, slots=True)
class View:
    """Some agents of a workspace, to be found by id, slug or name. `ordered` is by slug."""

    ordered: tuple[AgentRecord, ...]
    ids: Mapping[str, AgentRecord]
    slugs: Mapping[str, AgentRecord]
    names: Mapping[str, Sequence[AgentRecord]]
    # By the names that they had before, with the time until which each is remembered.
    former: Mapping[str, Sequence[tuple[AgentRecord, float]]]

    def renamed(self, ref: str, now: float) -> Sequence[AgentRecord]:
        """Return the agents that had a name before and whose new one is still told."""
        return [agent for agent, until in self.former.get(ref, ()) if until > now]

    def matches(self, ref: str) -> Sequence[AgentRecord]:
        """Return what a reference means: by id, else by slug, else all that have the name."""
        found = self.ids.get(ref) or self.slugs.get(ref)
        return (found,) if found is not None else self.names.get(ref, ())


def make_view(agents: Iterable[AgentRecord]) -> View:
    """Index agents."""
    ordered = tuple(sorted(agents, key=lambda agent: agent.slug))
    names: dict[str, list[AgentRecord]] = {}
    former: dict[str, list[tuple[AgentRecord, float]]] = {}
    for agent in ordered:
        names.setdefault(agent.name, []).append(agent)
        for name, until in agent.former_names:
            former.setdefault(name, []).append((agent, until))
    return View(
        ordered,
        {agent.id: agent for agent in ordered},
        {agent.slug: agent for agent in ordered},
        names,
        former,
    )


Maker = Callable[[], Sequence[Change]]
"""Makes the changes of a snapshot that stand for one record."""


class WorkspaceState:
    """Everything known of one workspace."""

    def __init__(self) -> None:
        self.record: WorkspaceRecord | None = None
        self.policy: Policy | None = None
        self.users: dict[str, UserRecord] = {}
        self.agents: dict[str, AgentRecord] = {}
        self.models: dict[str, ModelRecord] = {}
        # (user, agent), or (user, "") for the whole workspace.
        self.roles: dict[tuple[str, str], int] = {}
        self.plugins: dict[str, PluginRecord] = {}
        # Those that are confirmed, in order of key: asked for on every send.
        self.confirmed: tuple[PluginRecord, ...] = ()
        self._views: OrderedDict[object, View] = OrderedDict()

    def view(self, key: object, select: Callable[[AgentRecord], bool]) -> View:
        """Return the view of `key`, made of the living agents that `select` accepts.

        Kept until an agent or a role changes; the oldest one makes room.
        """
        return self._kept(key, lambda agent: not agent.deleted and select(agent))

    def _kept(self, key: object, select: Callable[[AgentRecord], bool]) -> View:
        found = self._views.get(key)
        if found is None:
            found = make_view(agent for agent in self.agents.values() if select(agent))
            self._views[key] = found
            if len(self._views) > _MAX_VIEWS:
                self._views.popitem(last=False)
        else:
            self._views.move_to_end(key)
        return found

    def everyone(self) -> View:
        """Return all agents that are not deleted."""
        return self.view("everyone", lambda agent: True)

    def departed(self) -> View:
        """Return all agents that are deleted."""
        return self._kept("departed", lambda agent: agent.deleted)

    def put(self, change: Change) -> None:
        """Take over one change of this workspace."""
        kind = change.WhichOneof("entity")
        if kind == "workspace":
            self.record = workspace_record(change.workspace)
        elif kind == "policy":
            self.policy = policy_record(change.policy)
        elif kind == "user":
            self.users[change.user.id] = user_record(change.workspace_id, change.user)
        elif kind == "agent":
            self._put_agent(agent_record(change.workspace_id, change.agent))
        elif kind == "agent_deleted" and change.agent_deleted in self.agents:
            self._put_agent(replace(self.agents[change.agent_deleted], deleted=True))
        elif kind == "model":
            self.models[change.model.id] = model_record(change.workspace_id, change.model)
        elif kind == "model_deleted":
            self.models.pop(change.model_deleted, None)
        elif kind == "role_granted":
            self._put_role(_target(change.role_granted), int(change.role_granted.role))
        elif kind == "role_revoked":
            self._put_role(_target(change.role_revoked), 0)
        elif kind == "plugin":
            self.plugins[change.plugin.id] = plugin_record(change.workspace_id, change.plugin)
            self._plugins_changed()
        elif kind == "plugin_removed" and self.plugins.pop(change.plugin_removed, None) is not None:
            self._plugins_changed()

    def makers(self, workspace_id: str) -> Iterator[Maker]:
        """Yield what makes the changes of a snapshot, the workspace itself and its policy first."""
        if self.record is not None:
            yield partial(_workspace_change, self.record)
        if self.policy is not None:
            yield partial(_policy_change, workspace_id, self.policy)
        for user in self.users.values():
            yield partial(_user_change, user)
        for model in self.models.values():
            yield partial(_model_change, model)
        for agent in self.agents.values():
            yield partial(_agent_changes, agent)
        for target, role in self.roles.items():
            yield partial(_role_change, workspace_id, target, role)
        for plugin in self.plugins.values():
            yield partial(_plugin_change, plugin)

    def _put_agent(self, agent: AgentRecord) -> None:
        self.agents[agent.id] = agent
        self._views.clear()

    def _plugins_changed(self) -> None:
        confirmed = (each for each in self.plugins.values() if each.is_confirmed)
        self.confirmed = tuple(sorted(confirmed, key=lambda each: each.key))

    def _put_role(self, target: tuple[str, str], role: int) -> None:
        if role:
            self.roles[target] = role
        else:
            self.roles.pop(target, None)
        self._views.clear()


class State:
    """Everything known of all workspaces."""

    def __init__(self) -> None:
        self.workspaces: dict[str, WorkspaceState] = {}
        self.workspace_of_agent: dict[str, str] = {}
        # By kid; the raw bytes beside the key that was made of them.
        self.keys: dict[str, tuple[bytes, Ed25519PublicKey]] = {}
        self.revoked: dict[str, float] = {}

    def value(self, change: Change) -> object:
        """Return what is held now of the thing that a change is about; None for nothing."""
        kind = change.WhichOneof("entity")
        if kind == "key":
            return self.keys.get(change.key.kid, (None,))[0]
        if kind == "token_revoked":
            return self.revoked.get(change.token_revoked.id)
        workspace = self.workspaces.get(change.workspace_id) or WorkspaceState()
        held: dict[str | None, Callable[[], object]] = {
            "workspace": lambda: workspace.record,
            "policy": lambda: workspace.policy,
            "user": lambda: workspace.users.get(change.user.id),
            "agent": lambda: workspace.agents.get(change.agent.id),
            "agent_deleted": lambda: workspace.agents.get(change.agent_deleted),
            "model": lambda: workspace.models.get(change.model.id),
            "model_deleted": lambda: workspace.models.get(change.model_deleted),
            "role_granted": lambda: workspace.roles.get(_target(change.role_granted)),
            "role_revoked": lambda: workspace.roles.get(_target(change.role_revoked)),
            "plugin": lambda: workspace.plugins.get(change.plugin.id),
            "plugin_removed": lambda: workspace.plugins.get(change.plugin_removed),
        }
        return held[kind]() if kind in held else None

    def put(self, change: Change) -> None:
        """Take over one change; an entity of a newer contract is passed over."""
        kind = change.WhichOneof("entity")
        if kind == "key":
            self._put_key(change.key)
        elif kind == "token_revoked":
            self._put_revoked(change.token_revoked, from_timestamp(change.at))
        elif kind != "token_created":
            if kind == "agent":
                self.workspace_of_agent[change.agent.id] = change.workspace_id
            self.workspaces.setdefault(change.workspace_id, WorkspaceState()).put(change)

    def changes(self, seq: int) -> Iterator[Change]:
        """Yield all that is known as the changes of a snapshot at `seq`.

        The records are those of this moment, however slowly they are taken.
        """
        makers: list[Maker] = [
            *(partial(_key_change, kid, raw) for kid, (raw, _) in self.keys.items()),
            *(partial(_revoked_change, token_id, at) for token_id, at in self.revoked.items()),
        ]
        for workspace_id, workspace in self.workspaces.items():
            makers.extend(workspace.makers(workspace_id))
        for make in makers:
            for change in make():
                change.seq = seq
                yield change

    def _put_key(self, key: SigningKey) -> None:
        if key.public_key:
            self.keys[key.kid] = (key.public_key, load_public_key(key.public_key))
        else:
            self.keys.pop(key.kid, None)  # without its public half a key is withdrawn

    def _put_revoked(self, token: Token, at: float) -> None:
        self.revoked[token.id] = from_timestamp(token.revoked_at)
        for oldest, when in list(self.revoked.items()):
            if when >= at - REVOKED_SECONDS:
                break
            del self.revoked[oldest]


def _target(grant: RoleGrant) -> tuple[str, str]:
    return grant.user_id, grant.agent_id


def _key_change(kid: str, raw: bytes) -> Sequence[Change]:
    return (Change(key=SigningKey(kid=kid, public_key=raw)),)


def _revoked_change(token_id: str, at: float) -> Sequence[Change]:
    when = to_timestamp(at)
    return (Change(at=when, token_revoked=Token(id=token_id, revoked_at=when)),)


def _workspace_change(workspace: WorkspaceRecord) -> Sequence[Change]:
    return (Change(workspace_id=workspace.id, workspace=workspace_message(workspace)),)


def _policy_change(workspace_id: str, policy: Policy) -> Sequence[Change]:
    return (Change(workspace_id=workspace_id, policy=policy_message(policy)),)


def _user_change(user: UserRecord) -> Sequence[Change]:
    return (Change(workspace_id=user.workspace_id, user=user_message(user)),)


def _model_change(model: ModelRecord) -> Sequence[Change]:
    return (Change(workspace_id=model.workspace_id, model=model_message(model)),)


def _agent_changes(agent: AgentRecord) -> Sequence[Change]:
    """A deleted agent is told as the agent it was, and then its deletion."""
    there = Change(workspace_id=agent.workspace_id, agent=agent_message(agent))
    if not agent.deleted:
        return (there,)
    return there, Change(workspace_id=agent.workspace_id, agent_deleted=agent.id)


def _role_change(workspace_id: str, target: tuple[str, str], role: int) -> Sequence[Change]:
    user_id, agent_id = target
    grant = RoleGrant(user_id=user_id, agent_id=agent_id, role=role)  # type: ignore[arg-type]
    return (Change(workspace_id=workspace_id, role_granted=grant),)


def _plugin_change(plugin: PluginRecord) -> Sequence[Change]:
    return (Change(workspace_id=plugin.workspace_id, plugin=plugin_message(plugin)),)
