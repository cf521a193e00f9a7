"""The view of who exists, and what it says of who may see, name and start something on whom."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hopline.registry.v1.identity_pb2 import RoleGrant
from hopline.registry.v1.visibility_pb2 import Change, WatchChangesResponse
from hopline_rpc.errors import HoplineError, invalid, unauthenticated
from hopline_rpc.principals import Principal

from hopline_directory import rules
from hopline_directory.plugins import PluginRecord
from hopline_directory.records import (
    ADMIN,
    NO_ROLE,
    OPERATOR,
    VIEWER,
    AgentRecord,
    ConnectionRecord,
    ModelRecord,
    Policy,
    Relation,
    UserRecord,
    WorkspaceRecord,
)
from hopline_directory.state import State, View, WorkspaceState

_EMPTY: Final = View((), {}, {}, {}, {})
_MAX_LISTED: Final = 20
_ROLES: Final = {VIEWER: "viewer", OPERATOR: "operator", ADMIN: "admin"}


class Gap(Exception):  # noqa: N818 - what it is, not an error of anyone's
    """A change is missing before the one that was to be applied: read on from `Directory.seq`."""


class Directory:
    """All workspaces in memory. Pure: no I/O; whoever owns it feeds it by `apply`.

    `now` is asked for the time alone, since former names are told for a while only. For one thread, the
    event loop's.
    """

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self._now = now
        self._state = State()
        self._seq = 0
        self._partial: list[Change] = []

    # -- feeding it --------------------------------------------------------------------------------

    @property
    def seq(self) -> int:
        """The sequence number of the newest change in the view; 0 before the first snapshot."""
        return self._seq

    def restart(self) -> None:
        """Forget a snapshot of which only a part has come: the stream that brought it is gone."""
        self._partial.clear()

    def apply(self, response: WatchChangesResponse) -> list[Change]:
        """Take over what a stream of changes brought, and return what of it was new, in order.

        Repeated changes are passed over; a missing one raises `Gap`. A snapshot takes effect as a whole
        with its last part, and then returns only what differs from the view as it was, with
        `role_revoked` and `plugin_removed` for what is gone.
        """
        if response.snapshot:
            self._partial.extend(response.changes)
            return self._finish_snapshot(response.head_seq) if response.snapshot_end else []
        news = []
        for change in response.changes:
            if change.seq <= self._seq:
                continue
            if change.seq != self._seq + 1:
                raise Gap(f"change {change.seq} follows {self._seq}")
            self._state.put(change)
            self._seq = change.seq
            news.append(change)
        return news

    def _finish_snapshot(self, seq: int) -> list[Change]:
        old, fresh = self._state, State()
        for change in self._partial:
            fresh.put(change)
        news = [change for change in self._partial if old.value(change) != fresh.value(change)]
        news.extend(_lost_roles(old, fresh, seq))
        news.extend(_lost_plugins(old, fresh, seq))
        self._state, self._seq = fresh, seq
        self._partial.clear()
        return news

    def snapshot(self) -> Iterator[Change]:
        """Yield the view as it is now, as the changes of a snapshot at `seq`; it may be taken slowly."""
        return self._state.changes(self._seq)

    # -- what is there -----------------------------------------------------------------------------

    def workspaces(self) -> list[WorkspaceRecord]:
        """Return all workspaces, in no particular order."""
        return [each.record for each in self._state.workspaces.values() if each.record is not None]

    def workspace(self, workspace_id: str) -> WorkspaceRecord | None:
        """Return a workspace by id."""
        return self._workspace(workspace_id).record

    def policy(self, workspace_id: str) -> Policy:
        """Return the limits of a workspace; `unavailable` when the view does not hold it."""
        policy = self._workspace(workspace_id).policy
        if policy is None:
            raise HoplineError("unavailable", "the workspace's policy is not known here yet; try again")
        return policy

    def user(self, workspace_id: str, user_id: str) -> UserRecord | None:
        """Return a person by id."""
        return self._workspace(workspace_id).users.get(user_id)

    def person(self, workspace_id: str, ref: str) -> UserRecord | None:
        """Return the person that an id, else a name, means."""
        users = self._workspace(workspace_id).users
        return users.get(ref) or next((each for each in users.values() if each.name == ref), None)

    def agent(self, workspace_id: str, agent_id: str) -> AgentRecord | None:
        """Return an agent by id, a deleted one too (`deleted` is set)."""
        return self._workspace(workspace_id).agents.get(agent_id)

    def agents(self, workspace_id: str) -> tuple[AgentRecord, ...]:
        """Return the agents of a workspace that are not deleted, in order of slug."""
        return self._workspace(workspace_id).everyone().ordered

    def called(self, slug: str) -> list[AgentRecord]:
        """Return the agents of this slug, of any workspace and state, that are not deleted."""
        views = (workspace.everyone() for workspace in self._state.workspaces.values())
        return [agent for view in views if (agent := view.slugs.get(slug)) is not None]

    def agent_ids(self, workspace_id: str) -> list[str]:
        """Return the ids of all agents that a workspace has or had."""
        return list(self._workspace(workspace_id).agents)

    def models(self, workspace_id: str) -> list[ModelRecord]:
        """Return the workspace's catalogue, in order of identifier."""
        found = self._workspace(workspace_id).models.values()
        return sorted(found, key=lambda model: model.model_identifier)

    def model_of(self, agent: AgentRecord) -> str:
        """Return the identifier of what an agent's worker should run: its own model, else the default.

        Empty for neither. What stands there from before there was a catalogue is told as it is.
        """
        models = self._workspace(agent.workspace_id).models
        if agent.model_id:
            own = models.get(agent.model_id)
            return agent.model_id if own is None else own.model_identifier
        return next((each.model_identifier for each in models.values() if each.is_default), "")

    def plugins(self, workspace_id: str) -> tuple[PluginRecord, ...]:
        """Return the plugins of a workspace that are in force, in order of key; not those that wait."""
        return self._workspace(workspace_id).confirmed

    def plugin(self, workspace_id: str, plugin_id: str) -> PluginRecord | None:
        """Return a plugin by id, also one that waits to be confirmed; None once it is uninstalled."""
        return self._workspace(workspace_id).plugins.get(plugin_id)

    def plugin_for(self, caller: Principal, permission: str) -> PluginRecord:
        """Return the calling plugin; `permission_denied` without a permission, which it names."""
        plugin = self.plugin(caller.workspace_id, caller.id)
        if plugin is None:
            raise HoplineError("unavailable", "the calling plugin is not known here yet; try again")
        plugin.require(permission)
        return plugin

    def plugin_name(self, agent: AgentRecord) -> str:
        """Return the name of the plugin that an agent comes from; empty for one that a person made."""
        found = self.plugin(agent.workspace_id, agent.plugin_id) if agent.plugin_id else None
        return "" if found is None else found.name

    def public_key(self, kid: str) -> Ed25519PublicKey | None:
        """Return a key that assertions are signed with, while it is published."""
        known = self._state.keys.get(kid)
        return None if known is None else known[1]

    def display(self, agent: AgentRecord) -> str:
        """Return how an agent is shown to others: `planner (for Alice)`."""
        owner = self.user(agent.workspace_id, agent.owner_id)
        return f"{agent.name} (for {owner.name})" if owner is not None else agent.name

    # -- roles -------------------------------------------------------------------------------------

    def workspace_role(self, workspace_id: str, user_id: str) -> int:
        """Return a person's role on the whole workspace; 0 for none."""
        return self._workspace(workspace_id).roles.get((user_id, ""), NO_ROLE)

    def role_on_agent(self, user_id: str, agent: AgentRecord) -> int:
        """Return a person's role on an agent: the higher of the workspace's and the agent's own.

        Its owner is its admin.
        """
        return _role(self._workspace(agent.workspace_id), user_id, agent)

    # -- reach -------------------------------------------------------------------------------------

    def peers_after(self, caller: Principal, slug: str, count: int) -> tuple[list[AgentRecord], bool]:
        """Return at most `count` of the agents on which the caller may start something, in order of slug.

        Those behind `slug`, and whether more follow: a plugin's are its own agents. None for an agent that
        is paused or receive-only, and for services. Costs the page, not the workspace.
        """
        ordered = self._startable(caller).ordered
        start = bisect_right(ordered, slug, key=lambda agent: agent.slug)
        # One more tells that more follow, another one may be the caller.
        found = [agent for agent in ordered[start : start + count + 2] if agent.id != caller.id]
        return found[:count], len(found) > count

    def resolve(self, caller: Principal, ref: str) -> AgentRecord:
        """Return the agent that `ref` (id, else slug, else name) means among the caller's peers.

        `not_found` for every miss, in the same words; `ambiguous` for a name that several share;
        `invalid_argument` for the caller itself; `agent_paused` or `receive_only` when the caller may
        start nothing at all, whatever the name.
        """
        if caller.kind == "agent":
            self.check_may_start(caller)
        found = self._one(self._visible(caller), ref)
        if found.id == caller.id:
            raise invalid("agent", "is the caller itself; an agent cannot address itself")
        return found

    def connections(
        self, caller: Principal, *, has_public_url: bool
    ) -> list[tuple[ConnectionRecord, AgentRecord]]:
        """Return the calling agent's connections that it may use right now, each with its peer, by name.

        By the rules of `peers_after`, for a connection gives no reach. What runs in the cloud has none
        while the mesh has no URL that it could be reached by from there.
        """
        own = self.agent(caller.workspace_id, caller.id) if caller.kind == "agent" else None
        if own is None or not own.connections or (own.runtime == "cloud" and not has_public_url):
            return []
        peers = self._startable(caller).ids
        return [
            (each, peers[each.agent_id])
            for each in own.connections
            if each.agent_id in peers and each.agent_id != own.id
        ]

    def look_up(self, reader: Principal, ref: str) -> AgentRecord:
        """Return the agent that `ref` means for one that only reads: itself, or a peer.

        `not_found` and `ambiguous` as in `resolve`.
        """
        own = self.agent(reader.workspace_id, reader.id)
        if own is not None and ref in (own.id, own.slug):
            return own
        return self._one(self._visible(reader), ref)

    def with_slug(self, caller: Principal, slug: str) -> AgentRecord | None:
        """Return the agent that has this slug, if the caller may use it: one of its peers, or itself.

        A person needs `operator` on it, whatever its state. None for every miss.
        """
        view = self.for_person(caller, OPERATOR) if caller.kind == "user" else self._visible(caller)
        return view.slugs.get(slug)

    def may_start_on(self, caller: Principal, agent_id: str) -> bool:
        """Tell whether the caller may start something on an agent right now."""
        return agent_id != caller.id and agent_id in self._startable(caller).ids

    def reaches(self, agent: AgentRecord, other: AgentRecord) -> bool:
        """Tell whether an agent may start something on another one right now: for people who look at both."""
        workspace = self._workspace(agent.workspace_id)
        return (
            agent.id != other.id
            and agent.kind != "receive_only"
            and not rules.why_inactive(agent)
            and not rules.why_inactive(other)
            and _why_unknown(workspace, agent, other) is None
        )

    def resolve_for_person(self, user: Principal, ref: str, role: int) -> AgentRecord:
        """Return the agent that `ref` means among those on which a person holds `role` or more.

        Paused ones are among them. A miss is `not_found`, in the same words as `resolve`; of an agent on
        which they are `viewer` a person knows, and is told what is missing (`permission_denied`).
        """
        view = self.for_person(user, role)
        if view.matches(ref):
            return self._one(view, ref)
        seen = self._one(self.for_person(user, VIEWER), ref)
        raise needs_role(role, f"the agent {seen.slug!r}")

    def itself_or_viewed(self, caller: Principal, ref: str) -> str:
        """Return the id of the calling agent, or of an agent on which the calling person is `viewer`."""
        if caller.kind == "user":
            return self.resolve_for_person(caller, ref, VIEWER).id
        own = self.agent(caller.workspace_id, caller.id)
        names = (caller.id,) if own is None else (own.id, own.slug, own.name)
        if ref and ref not in names:
            raise not_found(ref)
        return caller.id

    def for_person(self, user: Principal, role: int) -> View:
        """Return the agents of any state on which a person holds `role` or more."""
        workspace = self._workspace(user.workspace_id)
        return workspace.view(("role", user.id, role), lambda agent: _role(workspace, user.id, agent) >= role)

    def may_know(self, reader: Principal, agent_id: str) -> bool:
        """Tell whether the reader may be shown an agent's name.

        By the rules of reach, but whatever state either is in: a name in a thread does not vanish when
        its agent is paused or deleted. People need `viewer` on it.
        """
        workspace = self._workspace(reader.workspace_id)
        other = workspace.agents.get(agent_id)
        if other is None or reader.kind == "service":
            return reader.kind == "service"
        if reader.kind == "user":
            return _role(workspace, reader.id, other) >= VIEWER
        if reader.kind == "plugin":
            return other.plugin_id == reader.id
        own = workspace.agents.get(reader.id)
        return own is not None and (own.id == other.id or _why_unknown(workspace, own, other) is None)

    def relation(self, caller_agent: AgentRecord, other: AgentRecord) -> Relation:
        """Tell what `other` is to an agent."""
        return rules.relation(caller_agent, other)

    def why_hidden(self, caller: Principal, ref: str) -> str:
        """Tell why `resolve` did not find `ref`, for the audit log and nobody else.

        `unknown`, `renamed`, `deleted`, `paused`, `provisioning`, `no_role`, `group_only` or
        `out_of_reach`. What exists in other workspaces is `unknown`. Asked after the answer has been given.
        """
        workspace = self._workspace(caller.workspace_id)
        matches = workspace.everyone().matches(ref)
        if not matches and workspace.everyone().renamed(ref, self._now()):
            return "renamed"
        if not matches:
            return "deleted" if workspace.departed().matches(ref) else "unknown"
        other = matches[0]
        if caller.kind == "agent":
            own = workspace.agents.get(caller.id)
            known = "unknown" if own is None else _why_unknown(workspace, own, other)
        else:
            known = None if _role(workspace, caller.id, other) >= OPERATOR else "no_role"
        return rules.why_inactive(other) or known or "unknown"

    # -- credentials -------------------------------------------------------------------------------

    def is_revoked(self, principal: Principal) -> bool:
        """Tell whether a principal that was verified before must not act any more.

        Its token is revoked, its agent is deleted, or it claims a workspace that its agent is not in.
        What the view does not know yet is not revoked: assertions may be newer than the view.
        """
        if principal.token_id in self._state.revoked:
            return True
        if principal.kind != "agent":
            return False
        home = self._state.workspace_of_agent.get(principal.id)
        if home is None:
            return False
        return home != principal.workspace_id or self._state.workspaces[home].agents[principal.id].deleted

    # -- helpers -----------------------------------------------------------------------------------

    def _workspace(self, workspace_id: str) -> WorkspaceState:
        return self._state.workspaces.get(workspace_id) or WorkspaceState()

    def _one(self, view: View, ref: str) -> AgentRecord:
        """Return the only match in a view: all that the answer depends on, a former name included."""
        return one_of(view.matches(ref), ref, view.renamed(ref, self._now()))

    def _visible(self, caller: Principal) -> View:
        """Return the one map that a caller's look-ups are made in; the caller is in it too."""
        workspace = self._workspace(caller.workspace_id)
        if caller.kind == "user":
            return workspace.view(("user", caller.id), _active_and(_operated(workspace, caller.id)))
        if caller.kind == "plugin":
            return workspace.view(
                ("plugin", caller.id), _active_and(lambda agent: agent.plugin_id == caller.id)
            )
        own = workspace.agents.get(caller.id) if caller.kind == "agent" else None
        if own is None:
            return _EMPTY
        # Agents alike in owner and crew share one view. One with a reach list, or one that the others of
        # its owner do not see, has a view to itself: whoever looks is always in it.
        alone = own.id if own.reach or _why_unknown(workspace, own, own) else ""
        return workspace.view(
            (own.owner_id, rules.crew_of(own), alone),
            _active_and(lambda other: other.id == own.id or _why_unknown(workspace, own, other) is None),
        )

    def may_start(self, caller: Principal) -> bool:
        """Tell whether a caller may start anything at all."""
        if caller.kind != "agent":
            return True
        agent = self.agent(caller.workspace_id, caller.id)
        return agent is not None and not rules.why_inactive(agent) and agent.kind != "receive_only"

    def _startable(self, caller: Principal) -> View:
        """Return the map of a caller's look-ups; nothing is in it when the caller may start nothing."""
        return self._visible(caller) if self.may_start(caller) else _EMPTY

    def check_may_start(self, caller: Principal) -> None:
        """Refuse an agent that may start nothing at all, saying why."""
        agent = self.agent(caller.workspace_id, caller.id)
        if agent is None:
            raise HoplineError("unavailable", "the calling agent is not known here yet; try again")
        why = rules.why_inactive(agent)
        if why == "deleted":
            raise unauthenticated()
        if why == "paused":
            raise HoplineError("agent_paused", "this agent is paused and may only read; its owner resumes it")
        if why is not None:
            raise HoplineError("failed_precondition", "this agent is not active yet")
        if agent.kind == "receive_only":
            raise HoplineError(
                "receive_only", "this agent only receives: it may read, reply and ask its owner"
            )


def needs_role(role: int, where: str = "the workspace") -> HoplineError:
    """Return the refusal of a person who may know of it but holds too low a role there."""
    return HoplineError("permission_denied", f"this needs the role {_ROLES[role]} on {where}")


def one_of(matches: Sequence[AgentRecord], ref: str, renamed: Sequence[AgentRecord] = ()) -> AgentRecord:
    """Return the only match; none is `not_found`, several are `ambiguous` with their ids.

    `renamed` are agents that the caller may see and that had the name before: a miss tells of them.
    """
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise _renamed(ref, renamed[:_MAX_LISTED]) if renamed else not_found(ref)
    ids = sorted(agent.id for agent in matches)[:_MAX_LISTED]
    raise HoplineError(
        "ambiguous",
        f"{len(matches)} agents are named {ref!r}; use an id: {', '.join(ids)}",
        details={"agent": ref, "ids": ids},
    )


def not_found(ref: str) -> HoplineError:
    """Return the one answer for an agent that does not exist or that the caller may not know of."""
    return HoplineError("not_found", f"there is no agent {ref!r}", details={"agent": ref})


def _renamed(ref: str, agents: Sequence[AgentRecord]) -> HoplineError:
    called = " or ".join(f"{agent.name!r} ({agent.id})" for agent in agents)
    return HoplineError(
        "not_found",
        f"there is no agent {ref!r} any more; it is called {called} now",
        details={
            "agent": ref,
            "renamed_to": [{"id": agent.id, "slug": agent.slug, "name": agent.name} for agent in agents],
        },
    )


def _role(workspace: WorkspaceState, user_id: str, agent: AgentRecord) -> int:
    if agent.owner_id == user_id:
        return ADMIN
    roles = workspace.roles
    return max(roles.get((user_id, ""), NO_ROLE), roles.get((user_id, agent.id), NO_ROLE))


def _why_unknown(workspace: WorkspaceState, own: AgentRecord, other: AgentRecord) -> str | None:
    return rules.why_unknown(_role(workspace, own.owner_id, other), rules.crew_of(own), own.reach, other)


def _operated(workspace: WorkspaceState, user_id: str) -> Callable[[AgentRecord], bool]:
    return lambda agent: _role(workspace, user_id, agent) >= OPERATOR


def _active_and(select: Callable[[AgentRecord], bool]) -> Callable[[AgentRecord], bool]:
    return lambda agent: agent.state == "active" and select(agent)


def _lost_roles(old: State, fresh: State, seq: int) -> list[Change]:
    """Say which roles of the old view are not in the fresh one: a snapshot shows only what there is."""
    lost = []
    for workspace_id, workspace in old.workspaces.items():
        still = fresh.workspaces[workspace_id].roles if workspace_id in fresh.workspaces else {}
        for (user_id, agent_id), role in workspace.roles.items():
            if (user_id, agent_id) not in still:
                grant = RoleGrant(user_id=user_id, agent_id=agent_id, role=role)  # type: ignore[arg-type]
                lost.append(Change(seq=seq, workspace_id=workspace_id, role_revoked=grant))
    return lost


def _lost_plugins(old: State, fresh: State, seq: int) -> list[Change]:
    """Say which plugins of the old view were uninstalled meanwhile."""
    return [
        Change(seq=seq, workspace_id=workspace_id, plugin_removed=plugin_id)
        for workspace_id, workspace in old.workspaces.items()
        for plugin_id in workspace.plugins
        if workspace_id not in fresh.workspaces or plugin_id not in fresh.workspaces[workspace_id].plugins
    ]
