"""All that the database holds, as the changes of a snapshot, for the view at the start."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf import json_format
from hopline.registry.v1.identity_pb2 import RoleGrant, SigningKey, Token
from hopline.registry.v1.visibility_pb2 import Change, WatchChangesResponse
from hopline.registry.v1.workspace_pb2 import Policy
from hopline_directory import WorkspaceRecord
from hopline_directory.convert import agent_message, model_message, user_message, workspace_message
from hopline_directory.plugins import plugin_message
from hopline_rpc.clock import to_timestamp
from sqlalchemy import Connection, select

from hopline_registry.domain.policies import complete
from hopline_registry.store import agents, feed, models, plugins, schema, tokens
from hopline_registry.store.people import user_record


def snapshot(conn: Connection, revoked_since: float) -> WatchChangesResponse:
    """Return everything, with the tokens that were revoked lately."""
    changes = [
        *_mesh(conn, revoked_since),
        *_workspaces(conn),
        *_people(conn),
        *_models(conn),
        *_agents(conn),
        *_plugins(conn),
    ]
    return WatchChangesResponse(changes=changes, head_seq=feed.head(conn), snapshot=True, snapshot_end=True)


def _plugins(conn: Connection) -> Iterator[Change]:
    for row in plugins.all_plugins(conn):
        yield Change(workspace_id=row.workspace_id, plugin=plugin_message(plugins.record_of(row)))


def _mesh(conn: Connection, revoked_since: float) -> Iterator[Change]:
    for key in tokens.all_keys(conn):
        yield Change(key=SigningKey(kid=key.kid, public_key=key.public))
    for token in tokens.revoked_since(conn, revoked_since):
        at = to_timestamp(token.revoked_at or 0.0)
        yield Change(at=at, token_revoked=Token(id=token.id, revoked_at=at))


def _workspaces(conn: Connection) -> Iterator[Change]:
    for row in conn.execute(select(schema.workspaces)):
        record = WorkspaceRecord(row.workspace_id, row.name, row.created_at)
        yield Change(workspace_id=record.id, workspace=workspace_message(record))
    for workspace_id, keys in conn.execute(select(schema.policies)):
        yield Change(workspace_id=workspace_id, policy=json_format.ParseDict(complete(keys), Policy()))


def _people(conn: Connection) -> Iterator[Change]:
    for row in conn.execute(select(schema.users)):
        user = user_record(row)
        yield Change(workspace_id=user.workspace_id, user=user_message(user))
    for row in conn.execute(select(schema.roles)):
        grant = RoleGrant(user_id=row.user_id, agent_id=row.agent_id, role=row.role)
        yield Change(workspace_id=row.workspace_id, role_granted=grant)


def _models(conn: Connection) -> Iterator[Change]:
    for model in models.all_models(conn):
        yield Change(workspace_id=model.workspace_id, model=model_message(model))


def _agents(conn: Connection) -> Iterator[Change]:
    for agent in agents.all_agents(conn):
        yield Change(workspace_id=agent.workspace_id, agent=agent_message(agent))
        if agent.deleted:
            yield Change(workspace_id=agent.workspace_id, agent_deleted=agent.id)
