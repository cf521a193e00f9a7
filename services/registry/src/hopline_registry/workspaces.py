"""Workspaces and their limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from google.protobuf import json_format
from hopline.registry.v1.identity_pb2 import RoleGrant
from hopline.registry.v1.workspace_pb2 import CreateWorkspaceRequest, Policy
from hopline_directory import ADMIN, UserRecord, WorkspaceRecord
from hopline_directory.convert import user_message, workspace_message
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.principals import Principal

from hopline_registry.access import require_installation
from hopline_registry.core import Core, Tx, require_unchanged
from hopline_registry.domain import policies
from hopline_registry.domain.names import name_problem
from hopline_registry.store import people
from hopline_registry.store import workspaces as rows

ADMIN_NAME = "admin"
DEFAULT_NAME = "default"


def add_workspace(tx: Tx, name: str) -> WorkspaceRecord:
    """Make a workspace with policy `default` and the user `admin` in it."""
    workspace = WorkspaceRecord(tx.ids.new_id("ws"), name, tx.now)
    rows.add_workspace(tx.conn, workspace)
    tx.changed(workspace.id, "workspace.created", {"name": name}, workspace=workspace_message(workspace))
    preset = policies.PRESETS["default"]
    rows.add_policy(tx.conn, workspace.id, preset)
    tx.changed(workspace.id, "policy.updated", {"preset": "default"}, policy=_message(preset))
    admin = UserRecord(tx.ids.new_id("usr"), workspace.id, ADMIN_NAME, tx.now)
    people.add_user(tx.conn, admin)
    tx.changed(workspace.id, "user.created", {"name": ADMIN_NAME}, user=user_message(admin))
    people.set_role(tx.conn, workspace.id, people.Grant(admin.id, "", ADMIN))
    grant = RoleGrant(user_id=admin.id, role=ADMIN)  # type: ignore[arg-type]
    tx.changed(workspace.id, "role.granted", {"user": ADMIN_NAME, "role": "admin"}, role_granted=grant)
    return workspace


class Workspaces:
    """One method an RPC."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def create(self, caller: Principal, request: CreateWorkspaceRequest) -> WorkspaceRecord:
        """Make a workspace; a name that is taken is `failed_precondition`."""

        def op(tx: Tx) -> WorkspaceRecord:
            require_installation(tx)
            if problem := name_problem(request.name):
                raise invalid("name", problem)
            earlier = tx.earlier(request, request.request_id)
            if earlier is not None and (known := rows.workspace_by_id(tx.conn, earlier)) is not None:
                return known
            if rows.workspace_by_name(tx.conn, request.name) is not None:
                raise _taken(request.name)
            workspace = add_workspace(tx, request.name)
            tx.made(request, request.request_id, workspace.id)
            return workspace

        return await self._core.write(caller, op)

    async def get(self, workspace_id: str) -> WorkspaceRecord:
        """Return a workspace."""
        found = await self._core.read(lambda conn: rows.workspace_by_id(conn, workspace_id))
        if found is None:
            raise HoplineError("failed_precondition", "a service belongs to no workspace")
        return found

    async def list(self, caller: Principal, after: str, limit: int) -> Sequence[WorkspaceRecord]:
        """Return all workspaces for the installation's token, else the caller's alone."""
        if not caller.installation:
            return [await self.get(caller.workspace_id)] if not after else []
        return await self._core.read(lambda conn: rows.workspaces_after(conn, after, limit))

    async def policy(self, workspace_id: str) -> Policy:
        """Return the limits in force."""
        await self.get(workspace_id)
        return _message(await self._core.read(lambda conn: rows.policy_of(conn, workspace_id)))

    async def update_policy(
        self,
        caller: Principal,
        wanted: Mapping[str, policies.Value],
        expected: Mapping[str, policies.Value] | None = None,
    ) -> Policy:
        """Change single limits, which have been checked; with `expected`, only as long as they are that."""

        def change(before: dict[str, policies.Value]) -> dict[str, policies.Value]:
            if expected is not None:
                require_unchanged(before, expected, wanted)
            return policies.changed(before, wanted)

        return await self._core.write(caller, lambda tx: _set(tx, change))

    async def apply_preset(self, caller: Principal, name: str) -> Policy:
        """Replace all limits by a preset's."""
        preset = policies.PRESETS.get(name)
        if preset is None:
            raise invalid("preset", f"there is no preset {name!r}; there are {', '.join(policies.PRESETS)}")
        return await self._core.write(caller, lambda tx: _set(tx, lambda before: dict(preset)))


def _set(tx: Tx, change: Callable[[dict[str, policies.Value]], dict[str, policies.Value]]) -> Policy:
    """Replace the policy of the actor's workspace; one that stays the same is no change."""
    tx.require(ADMIN)
    workspace_id = tx.actor.workspace_id
    before = rows.policy_of(tx.conn, workspace_id)
    after = change(before)
    message = _message(after)
    if after != before:
        rows.set_policy(tx.conn, workspace_id, after)
        details = {"preset": after["preset"], "changed": policies.differences(before, after)}
        tx.changed(workspace_id, "policy.updated", details, policy=message)
    return message


def _message(keys: Mapping[str, policies.Value]) -> Policy:
    return json_format.ParseDict(dict(keys), Policy())


def _taken(name: str) -> HoplineError:
    return HoplineError(
        "failed_precondition",
        f"there is a workspace {name!r} already; choose another name",
        violations=(("name", "is taken"),),
    )
