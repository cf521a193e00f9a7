"""Users and the roles they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hopline.registry.v1.identity_pb2 import CreateUserRequest, Role, RoleGrant, User
from hopline_directory import ADMIN, VIEWER, UserRecord
from hopline_directory.convert import user_message
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.principals import Principal

from hopline_registry.access import AgentAccess, user_for
from hopline_registry.core import Core, Tx, filtered
from hopline_registry.domain.names import name_problem
from hopline_registry.sign_in import SignIn
from hopline_registry.store import people as rows
from hopline_registry.store.people import Grant
from hopline_registry.tokens import FIRST, mint
from hopline_registry.workspaces import ADMIN_NAME


class Person(NamedTuple):
    """A person as an admin sees them."""

    user: UserRecord
    # Whom the identity provider knows them as; empty for nobody, and for who may not know.
    login: str = ""


class People:
    """One method an RPC."""

    def __init__(self, core: Core, sign_in: SignIn) -> None:
        self._core = core
        self._sign_in = sign_in

    async def create(self, caller: Principal, request: CreateUserRequest) -> tuple[Person, str]:
        """Make a person and a first token; a repeated request gets no token any more."""

        def op(tx: Tx) -> tuple[Person, str]:
            tx.require(ADMIN)
            if problem := name_problem(request.name):
                raise invalid("name", problem)
            workspace_id = caller.workspace_id
            earlier = tx.earlier(request, request.request_id)
            if earlier is not None and (known := rows.user_by_id(tx.conn, workspace_id, earlier)):
                return _person(tx, known), ""
            if rows.find_user(tx.conn, workspace_id, request.name) is not None:
                raise HoplineError(
                    "failed_precondition",
                    f"there is a user {request.name!r} already; choose another name",
                    violations=(("name", "is taken"),),
                )
            user = UserRecord(tx.ids.new_id("usr"), workspace_id, request.name, tx.now)
            rows.add_user(tx.conn, user)
            tx.changed(workspace_id, "user.created", {"name": user.name}, user=user_message(user))
            login = self._sign_in.link(tx, user, request.login)
            _, secret = mint(tx, workspace_id, "user", user.id, name=FIRST)
            tx.made(request, request.request_id, user.id)
            return Person(user, login), secret

        return await self._core.write(caller, op)

    async def users(
        self, caller: Principal, part: str, after: str, limit: int
    ) -> tuple[Sequence[Person], bool]:
        """Return people of the workspace by a part of their name, and whether more follow.

        Who signs in as whom is for its admins.
        """
        wanted = part.casefold()

        def look(tx: Tx) -> tuple[Sequence[Person], bool]:
            found, more = filtered(
                lambda position, count: rows.users_after(tx.conn, caller.workspace_id, position, count),
                lambda user: wanted in user.name.casefold(),
                lambda user: user.name,
                after,
                limit,
            )
            logins: dict[str, str] = {}
            if tx.workspace_role() >= ADMIN:
                logins = rows.logins_of(tx.conn, caller.workspace_id, [user.id for user in found])
            return [Person(user, logins.get(user.id, "")) for user in found], more

        return await self._core.look(caller, look)

    async def grant(self, caller: Principal, user_ref: str, agent_ref: str, role: int) -> Grant:
        """Give a role in place of an earlier one on the same target."""

        def op(tx: Tx) -> Grant:
            agent_id, slug = _target(tx, agent_ref)
            user = user_for(tx, user_ref)
            grant = Grant(user.id, agent_id, role)
            if rows.roles_of(tx.conn, caller.workspace_id, user.id).get(agent_id) == role:
                return grant
            _spare_admin(user, agent_id)
            rows.set_role(tx.conn, caller.workspace_id, grant)
            details = {"user": user.name, "agent": slug, "role": _word(role)}
            tx.changed(caller.workspace_id, "role.granted", details, role_granted=message(grant))
            return grant

        return await self._core.write(caller, op)

    async def revoke(self, caller: Principal, user_ref: str, agent_ref: str, role: int) -> None:
        """Take a role away; `role` 0 means whatever it is. One that is not there is no error."""

        def op(tx: Tx) -> None:
            agent_id, slug = _target(tx, agent_ref)
            user = user_for(tx, user_ref)
            held = rows.roles_of(tx.conn, caller.workspace_id, user.id).get(agent_id)
            if held is None or role not in (0, held):
                return
            _spare_admin(user, agent_id)
            grant = Grant(user.id, agent_id, held)
            rows.remove_role(tx.conn, caller.workspace_id, grant)
            details = {"user": user.name, "agent": slug, "role": _word(held)}
            tx.changed(caller.workspace_id, "role.revoked", details, role_revoked=message(grant))

        await self._core.write(caller, op)

    async def roles(
        self,
        caller: Principal,
        after: tuple[str, str],
        limit: int,
        agent_ref: str = "",
        user_ref: str = "",
    ) -> tuple[list[Grant], bool]:
        """Return roles, and whether more follow; those on agents that the caller may not see are left out."""

        def look(tx: Tx) -> tuple[list[Grant], bool]:
            access = AgentAccess(tx)
            agent_id = access.agent(agent_ref, VIEWER).id if agent_ref else None
            user_id = user_for(tx, user_ref).id if user_ref else None
            return filtered(
                lambda position, count: rows.grants_after(
                    tx.conn, caller.workspace_id, position, count, user_id, agent_id
                ),
                lambda grant: not grant.agent_id or access.role_on_id(grant.agent_id) >= VIEWER,
                lambda grant: (grant.user_id, grant.agent_id),
                after,
                limit,
            )

        return await self._core.look(caller, look)


def person_message(person: Person) -> User:
    """Write a person."""
    written = user_message(person.user)
    written.login = person.login
    return written


def _person(tx: Tx, user: UserRecord) -> Person:
    return Person(user, rows.logins_of(tx.conn, user.workspace_id, [user.id]).get(user.id, ""))


def message(grant: Grant) -> RoleGrant:
    """Write a role."""
    return RoleGrant(user_id=grant.user_id, agent_id=grant.agent_id, role=grant.role)  # type: ignore[arg-type]


def _target(tx: Tx, agent_ref: str) -> tuple[str, str]:
    """Return id and slug of the agent that a role is about, empty for the workspace; admins of it only."""
    if not agent_ref:
        tx.require(ADMIN)
        return "", ""
    agent = AgentAccess(tx).agent(agent_ref, ADMIN)
    return agent.id, agent.slug


def _spare_admin(user: UserRecord, agent_id: str) -> None:
    if user.name == ADMIN_NAME and not agent_id:
        raise HoplineError(
            "failed_precondition",
            "the user 'admin' keeps the role admin: the installation's token acts as it",
        )


def _word(role: int) -> str:
    return Role.Name(role).removeprefix("ROLE_").lower()  # type: ignore[arg-type]
