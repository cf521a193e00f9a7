"""Crews: members by key, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hopline_directory import ADMIN, OPERATOR, VIEWER, AgentRecord
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.faults import point
from hopline_rpc.principals import Principal

from hopline_registry import members
from hopline_registry.access import AgentAccess, user_for
from hopline_registry.core import Core, Tx
from hopline_registry.crew_plans import Order, Plan, apply
from hopline_registry.domain.agents import Scope, scope_of
from hopline_registry.domain.names import name_problem


@dataclass(frozen=True)
class CrewName:
    """Which crew is meant: by its name, of a person; of the caller, when nobody is named."""

    name: str
    owner: str = ""

    def scope(self, tx: Tx) -> Scope:
        """Return whose agents they are."""
        owner_id = user_for(tx, self.owner).id if self.owner else tx.actor.id
        return Scope(tx.actor.workspace_id, owner_id, crew=self.name)


@dataclass(frozen=True)
class CrewShown:
    """A crew as somebody sees it."""

    name: str
    owner_id: str
    owner_name: str
    members: tuple[AgentRecord, ...]

    @property
    def lead(self) -> AgentRecord | None:
        """The main agent that others of it have as parent."""
        parents = {each.parent_agent_id for each in self.members}
        return next((each for each in self.members if each.id in parents), None)


class Crews:
    """One method an RPC."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def create_member(
        self, caller: Principal, crew: CrewName, wish: AgentRecord
    ) -> tuple[AgentRecord, bool]:
        """Make a member, or return the one that has the key already, untouched."""
        if problem := name_problem(crew.name):
            raise invalid("crew", problem)
        if wish.owner_id:
            raise invalid("agent.owner_id", "is the crew's: name the owner in `owner`")

        def op(tx: Tx) -> tuple[AgentRecord, bool]:
            scope = _own(tx, crew)
            if wish.key and members.with_key(tx, scope, wish.key) is None:
                members.check_size(len(members.members_of(tx, scope)) + 1)
            return members.get_or_create(tx, scope, wish)

        return await self._core.write(caller, op)

    async def members(self, caller: Principal, crew: CrewName) -> Sequence[AgentRecord]:
        """Return the members that the caller may see, in order of key; nobody is `not_found`.

        Looked for among these alone: a look at a crew that is hidden would show in the time.
        """
        scope = await self._core.look(caller, crew.scope)
        visible = self._core.directory.for_person(caller, VIEWER).ordered
        found = [agent for agent in visible if agent.crew == crew.name and scope_of(agent) == scope]
        if not found:
            raise HoplineError("not_found", f"there is no crew {crew.name!r}", details={"crew": crew.name})
        return sorted(found, key=lambda each: (each.key, each.id))

    async def update_member(
        self, caller: Principal, crew: CrewName, key: str, wish: AgentRecord, names: Iterable[str]
    ) -> AgentRecord:
        """Take the named fields from `wish`, which have been checked one by one."""
        wanted, agent_id = tuple(names), await self._member(caller, crew, key)

        def op(tx: Tx) -> AgentRecord:
            return members.update(tx, AgentAccess(tx).agent(agent_id, ADMIN), wish, wanted)

        return await self._core.write(caller, op)

    async def delete_member(self, caller: Principal, crew: CrewName, key: str) -> None:
        """Delete a member."""
        agent_id = await self._member(caller, crew, key)
        await self._core.write(caller, lambda tx: members.remove(tx, AgentAccess(tx).agent(agent_id, ADMIN)))

    async def _member(self, caller: Principal, crew: CrewName, key: str) -> str:
        """Return the id of a member that the caller may see."""
        found = next((each for each in await self.members(caller, crew) if each.key == key), None)
        if found is None:
            text = f"the crew {crew.name!r} has no member {key!r}"
            raise HoplineError("not_found", text, details={"crew": crew.name, "key": key})
        return found.id

    async def list(self, caller: Principal) -> Sequence[CrewShown]:
        """Return the crews of which the caller may see a member, in order of name and owner."""
        directory = self._core.directory
        found: dict[tuple[str, str], list[AgentRecord]] = {}
        for agent in directory.for_person(caller, VIEWER).ordered:
            if agent.crew and not agent.plugin_id:
                found.setdefault((agent.crew, agent.owner_id), []).append(agent)
        crews = []
        for (name, owner_id), agents in sorted(found.items()):
            owner = directory.user(caller.workspace_id, owner_id)
            crews.append(CrewShown(name, owner_id, owner.name if owner else "", tuple(agents)))
        return crews

    async def delete(self, caller: Principal, crew: CrewName) -> Sequence[AgentRecord]:
        """Delete all members of a crew, or none."""
        await self.members(caller, crew)

        def op(tx: Tx) -> Sequence[AgentRecord]:
            scope = crew.scope(tx)
            if scope.owner_id != tx.actor.id:
                tx.require(ADMIN)
            found = sorted(members.members_of(tx, scope), key=lambda each: each.key)
            # The lead last: nobody becomes an orphan who is deleted anyway.
            for agent in sorted(found, key=lambda each: not each.parent_agent_id):
                members.remove(tx, agent)
            if found:
                details = {"crew": crew.name, "owner": scope.owner_id}
                tx.changed(scope.workspace_id, "crew.deleted", details)
            return found

        return await self._core.write(caller, op)

    async def apply(self, caller: Principal, crew: CrewName, order: Order) -> Plan:
        """Make a crew what its owner wants, or say what that would change."""
        if problem := name_problem(crew.name):
            raise invalid("crew", problem)
        plan = await self._core.write(caller, lambda tx: apply(tx, _own(tx, crew), order))
        point("registry.crew_committed")
        return plan


def _own(tx: Tx, crew: CrewName) -> Scope:
    """Return the scope of a crew that the actor may change as a whole: an own one, or as an admin."""
    scope = crew.scope(tx)
    tx.require(OPERATOR if scope.owner_id == tx.actor.id else ADMIN)
    return scope
