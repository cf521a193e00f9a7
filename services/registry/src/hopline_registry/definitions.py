"""What an agent is to be, out of what somebody wishes, with everything checked against what there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Final

from hopline_directory import ADMIN, VIEWER, AgentRecord, ConnectionRecord
from hopline_directory.convert import agent_message
from hopline_rpc.errors import HoplineError, invalid

from hopline_registry.access import Access, AgentAccess, user_for
from hopline_registry.core import Tx
from hopline_registry.domain.agents import Scope, parent_problem, scope_of, webhook_problem
from hopline_registry.domain.names import (
    RESERVED_SECONDS,
    free_slug,
    is_own,
    name_problem,
    renamed,
    slug_problem,
    slugify,
)
from hopline_registry.models import model_id_for
from hopline_registry.store import agents as rows
from hopline_registry.store import plugins, workspaces

_NAMES: Final = tuple(each.name for each in fields(AgentRecord))
MAX_DEFINITION: Final = 1024 * 1024
# What the mesh gives to a new agent, whatever its creator says.
_GIVEN: Final = frozenset(
    {
        "id",
        "workspace_id",
        "slug",
        "state",
        "created_at",
        "deleted",
        "former_names",
        "has_webhook_secret",
        "plugin_id",
        "crew",
        "awaits_definition",
    }
)


class Definition:
    """Makes a definition out of what somebody wishes.

    `scope` says whose agents new ones are, `access` whom the wish may name: by default, of whoever acts.
    """

    def __init__(
        self, tx: Tx, secret: str = "", *, scope: Scope | None = None, access: Access | None = None
    ) -> None:
        self._tx = tx
        self._scope = scope or Scope(tx.actor.workspace_id, tx.actor.id)
        self._access = access or AgentAccess(tx)
        self._secret = secret

    def new(self, wish: AgentRecord) -> AgentRecord:
        """Return the definition of an agent that is created."""
        tx = self._tx
        if wish.plugin_id and wish.plugin_id != self._scope.plugin_id:
            raise invalid("agent.plugin_id", "is given by a plugin's installation")
        draft = AgentRecord(
            id=tx.ids.new_id("agt"),
            workspace_id=tx.actor.workspace_id,
            slug="",
            name=wish.name,
            owner_id=self._scope.owner_id,
            plugin_id=self._scope.plugin_id,
            crew=self._scope.crew,
            created_at=tx.now,
        )
        agent = self.updated(draft, wish, frozenset(_NAMES) - _GIVEN)
        return replace(agent, slug=self._slug(wish, agent))

    def updated(self, before: AgentRecord, wish: AgentRecord, names: frozenset[str]) -> AgentRecord:
        """Return `before` with the named fields taken from `wish`."""
        values = {name: getattr(wish, name) for name in names}
        if "name" in names and (problem := name_problem(wish.name)):
            raise invalid("agent.name", problem)
        if "owner_id" in names:
            values["owner_id"] = self._owner(before, wish.owner_id)
        if "reach" in names:
            values["reach"] = frozenset(self._reach(before, sorted(wish.reach)))
        if "connections" in names:
            values["connections"] = self._connections(before, wish.connections)
        if "parent_agent_id" in names and wish.parent_agent_id:
            values["parent_agent_id"] = self._seen(wish.parent_agent_id, "agent.parent_agent_id").id
        if "model_id" in names and wish.model_id != before.model_id:
            values["model_id"] = model_id_for(self._tx, wish.model_id)
        agent = replace(before, **values)
        if agent.owner_id != before.owner_id:
            agent = replace(agent, crew="")  # a crew is its owner's; whoever takes it over has others
        if before.slug:
            agent = self._said_anew(before, agent)
        if agent.parent_agent_id:
            agent = replace(agent, is_subagent=True)
        self._check_crew(before, agent)
        self._check_key(before, agent)
        if "wake" in names:
            agent = self._woken(before, agent)
        _check_size(agent)
        if agent.is_default and not before.is_default:
            self._take_over_default(agent)
        return agent

    def _said_anew(self, before: AgentRecord, agent: AgentRecord) -> AgentRecord:
        """Return an agent that there is already as somebody defines it: with the names that it had before."""
        agent = replace(agent, awaits_definition=False)
        if agent.name == before.name:
            return agent
        former = renamed(before.former_names, before.name, agent.name, self._tx.now)
        return replace(agent, former_names=former)

    def _slug(self, wish: AgentRecord, agent: AgentRecord) -> str:
        """Return the slug of a new agent, and take it from a deleted one that has it no longer."""
        if wish.slug and (problem := slug_problem(wish.slug)):
            raise invalid("agent.slug", problem)
        slug = slugify(wish.slug) or free_slug(
            self._prefixed(agent), lambda each: self._in_the_way(each, agent) != ""
        )
        if why := self._in_the_way(slug, agent):
            raise HoplineError(
                "failed_precondition",
                f"the slug {slug!r} {why}; choose another, or leave it empty to have one made",
                violations=(("agent.slug", why),),
            )
        for earlier, _ in rows.looking_like(self._tx.conn, agent.workspace_id, slug):
            if earlier.slug == slug:
                rows.release_slug(self._tx.conn, earlier)
        return slug

    def _prefixed(self, agent: AgentRecord) -> str:
        """Return what a slug is made of: the name, of a plugin's agent behind the plugin's own key."""
        if not agent.plugin_id:
            return agent.name
        key = plugins.key_of(self._tx.conn, agent.workspace_id, agent.plugin_id)
        return f"{key}-{slugify(agent.name) or slugify(agent.key) or 'agent'}"

    def _in_the_way(self, slug: str, agent: AgentRecord) -> str:
        """Say why an agent cannot have a slug; empty when it can."""
        if is_own(slug):
            return "is a word of the mesh's own addresses"
        for earlier, deleted_at in rows.looking_like(self._tx.conn, agent.workspace_id, slug):
            if deleted_at is None:
                same = earlier.slug == slug
                return "is taken" if same else f"looks like {earlier.slug!r}, which is taken"
            if deleted_at + RESERVED_SECONDS > self._tx.now and not self._takes_the_place(agent, earlier):
                return f"is reserved: the agent {earlier.slug!r} was deleted less than 30 days ago"
        return ""

    def _takes_the_place(self, agent: AgentRecord, deleted: AgentRecord) -> bool:
        """Tell whether an agent is made again under the same key: by the same owner, or the same plugin.

        A plugin that was installed again is the same by its own key.
        """
        if not agent.key or agent.key != deleted.key:
            return False
        if not (agent.plugin_id and deleted.plugin_id):
            return agent.plugin_id == deleted.plugin_id and agent.owner_id == deleted.owner_id
        conn, home = self._tx.conn, agent.workspace_id
        now, then = (plugins.key_of(conn, home, each.plugin_id) for each in (agent, deleted))
        return now != "" and now == then

    def _owner(self, before: AgentRecord, ref: str) -> str:
        """Return the owner's id; only workspace admins give agents to others."""
        if not ref:
            return before.owner_id
        owner = user_for(self._tx, ref)
        if owner.id != before.owner_id:
            self._tx.require(ADMIN)
        return owner.id

    def _reach(self, before: AgentRecord, refs: Sequence[str]) -> Iterable[str]:
        """Return the ids that a reach list means; those that stand in it already need no look-up."""
        for ref in refs:
            yield ref if ref in before.reach else self._seen(ref, "agent.reach").id

    def _connections(
        self, before: AgentRecord, wished: Sequence[ConnectionRecord]
    ) -> tuple[ConnectionRecord, ...]:
        """Return connections with the ids of their peers; those that there are already need no look-up.

        Whether such a peer may still be seen, or still exists, does not show here.
        """
        known = {each.agent_id for each in before.connections}
        found: dict[str, ConnectionRecord] = {}
        for number, each in enumerate(wished):
            field = f"agent.connections[{number}]"
            ref = each.agent_id
            peer_id = ref if ref in known else self._seen(ref, f"{field}.agent").id
            if peer_id == before.id:
                raise invalid(f"{field}.agent", "is the agent itself; a connection leads to another agent")
            if each.name in found:
                raise invalid(f"{field}.name", f"{each.name!r} is the name of another connection already")
            found[each.name] = replace(each, agent_id=peer_id)
        return tuple(found[name] for name in sorted(found))

    def _seen(self, ref: str, field: str) -> AgentRecord:
        try:
            return self._access.agent(ref, VIEWER)
        except HoplineError as refusal:
            raise invalid(field, refusal.message) from None

    def _check_crew(self, before: AgentRecord, agent: AgentRecord) -> None:
        """Hold a crew together: one level, one owner or plugin."""
        if agent.parent_agent_id == before.parent_agent_id and agent.owner_id == before.owner_id:
            if agent.is_subagent and not before.is_subagent and children_of(self._tx, agent):
                raise invalid("agent.is_subagent", "the agent leads a crew itself")
            return
        children = children_of(self._tx, before)
        if agent.owner_id != before.owner_id and any(child.owner_id != agent.owner_id for child in children):
            raise invalid("agent.owner_id", "the agent leads a crew of its present owner")
        if agent.parent_agent_id:
            parent = rows.agent_by_id(self._tx.conn, agent.workspace_id, agent.parent_agent_id)
            if parent is not None and (problem := parent_problem(agent, parent, has_children=bool(children))):
                raise invalid("agent.parent_agent_id", problem)

    def _check_key(self, before: AgentRecord, agent: AgentRecord) -> None:
        """Hold keys apart: one agent of a crew, of a plugin, or of an owner's others has each."""
        fresh = before.slug == ""
        if agent.crew and not agent.key:
            raise invalid("agent.key", "is needed in a crew: by it the member is known again")
        if not (agent.key or agent.plugin_id) or (
            not fresh and (before.key, scope_of(before)) == (agent.key, scope_of(agent))
        ):
            return
        if problem := name_problem(agent.key):
            raise invalid("agent.key", problem)
        if agent.plugin_id and not fresh:
            raise invalid("agent.key", "does not change: by it the agent's plugin knows it again")
        alike = scope_of(agent).columns
        there = rows.agents_with(self._tx.conn, agent.workspace_id, key=agent.key, **alike)
        if any(each.id != agent.id for each in there):
            raise HoplineError(
                "failed_precondition",
                f"the key {agent.key!r} is taken by another agent of the same owner; choose another",
                violations=(("agent.key", "is taken"),),
            )

    def _woken(self, before: AgentRecord, agent: AgentRecord) -> AgentRecord:
        """Check how it is woken: what the mesh calls is set by admins of the workspace only."""
        if agent.wake != "webhook":
            for field, given in (("webhook_url", agent.webhook_url), ("webhook_secret", self._secret)):
                if given:
                    raise invalid(f"agent.wake.{field}", "goes with the kind WAKE_KIND_WEBHOOK alone")
            return replace(agent, has_webhook_secret=False)
        now, then = (agent.wake, agent.webhook_url), (before.wake, before.webhook_url)
        if now == then and not self._secret:
            return agent
        if problem := webhook_problem(agent.webhook_url):
            raise invalid("agent.wake.webhook_url", problem)
        if not (self._secret or before.has_webhook_secret):
            raise invalid("agent.wake.webhook_secret", "is needed with an address: 16 to 256 bytes of text")
        self._tx.require(ADMIN)
        return replace(agent, has_webhook_secret=True)

    def _take_over_default(self, agent: AgentRecord) -> None:
        """There is one default agent: the earlier one stops being it."""
        self._tx.require(ADMIN)
        for earlier in rows.agents_with(self._tx.conn, agent.workspace_id, is_default=True):
            demoted = replace(earlier, is_default=False)
            rows.save_agent(self._tx.conn, demoted)
            agent_changed(self._tx, demoted, "agent.updated", ["is_default"])


def _check_size(agent: AgentRecord) -> None:
    """Keep a definition to what one message of the feed, or the start of a turn, can carry with others."""
    size = agent_message(agent).ByteSize()
    if size > MAX_DEFINITION:
        raise invalid("agent", f"its definition takes {size} bytes; the limit is {MAX_DEFINITION} (1 MiB)")


def differing(before: AgentRecord, agent: AgentRecord) -> list[str]:
    """Return the names of the fields that differ."""
    return [name for name in _NAMES if getattr(agent, name) != getattr(before, name)]


def children_of(tx: Tx, agent: AgentRecord) -> Sequence[AgentRecord]:
    """Return the agents that an agent leads."""
    return rows.agents_with(tx.conn, agent.workspace_id, parent_agent_id=agent.id)


def check_room(tx: Tx, more: int = 1, fewer: int = 0) -> None:
    """Refuse new agents for which the workspace has no room, all of them at once."""
    limit = workspaces.policy_of(tx.conn, tx.actor.workspace_id)["agents"]
    count = rows.count_agents(tx.conn, tx.actor.workspace_id)
    if more and count + more - fewer > int(limit):
        text = (
            f"the workspace has {count} agents and its policy allows {limit}; delete one or raise the limit"
        )
        if more > 1 or fewer:
            text = (
                f"the workspace has {count} agents, {more} are to be made and {fewer} deleted, and its policy"
                f" allows {limit}; raise it with `hopline policy set agents={count + more - fewer}`"
            )
        details = {"rail": "agents", "limit": int(limit), "used": count}
        raise HoplineError("limit_reached", text, details=details, quota=("agents", text))


def agent_changed(tx: Tx, agent: AgentRecord, action: str, names: Sequence[str] = ()) -> None:
    """Tell of an agent that was made or changed."""
    details = {"slug": agent.slug, "name": agent.name, "fields": list(names)}
    tx.changed(agent.workspace_id, action, details, agent=agent_message(agent))
