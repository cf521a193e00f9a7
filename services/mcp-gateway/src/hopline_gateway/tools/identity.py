"""whoami, list_agents: who the caller is and whom it can reach."""

from __future__ import annotations

import asyncio
from typing import Any

from hopline.quota.v1 import usage_pb2
from hopline.registry.v1 import agent_pb2, visibility_pb2, workspace_pb2
from hopline.relay.v1 import session_pb2

from hopline_gateway import shapes
from hopline_gateway.toolkit import Call, Json, Result, Tool
from hopline_gateway.tools import fields


def _lower(descriptor: Any, prefix: str) -> dict[int, str]:
    return {value.number: value.name.removeprefix(prefix).lower() for value in descriptor.values}


_KINDS = _lower(agent_pb2.AgentKind.DESCRIPTOR, "AGENT_KIND_")
_STATES = _lower(agent_pb2.AgentState.DESCRIPTOR, "AGENT_STATE_")
_RELATIONS = _lower(visibility_pb2.Relation.DESCRIPTOR, "RELATION_")


async def whoami(call: Call) -> Result:
    """Put together what registry, relay and quota know of the caller."""
    own, where = await asyncio.gather(
        call.rpc(call.mesh.visibility.GetSelf, visibility_pb2.GetSelfRequest()),
        call.rpc(
            call.mesh.sessions.GetContext,
            session_pb2.GetContextRequest(caller_session_id=call.caller.session_id),
        ),
    )
    found: Json = {
        "agent": _agent(own.agent) if own.HasField("agent") else None,
        "owner": {"id": own.owner.id, "name": own.owner.name},
        "workspace": {"id": own.workspace.id, "name": own.workspace.name},
        "session_id": where.session_id or None,
        "turn_id": where.turn_id or None,
        "depth": where.depth,
        "chain": shapes.chain(where.chain),
        "isolation": where.isolation or None,
        "limits": _limits(own.policy),
        "usage": None,
    }
    if call.caller.principal.kind == "agent":
        usage = await call.rpc(call.mesh.usage.GetUsage, usage_pb2.GetUsageRequest())
        found["usage"] = shapes.usage(usage, where)
    return Result(found)


def _agent(agent: agent_pb2.Agent) -> Json:
    return {
        "id": agent.id,
        "slug": agent.slug,
        "name": agent.name,
        "kind": _KINDS[agent.kind],
        "state": _STATES[agent.state],
    }


def _limits(policy: workspace_pb2.Policy) -> Json:
    """Return every policy key and its value."""
    keys = [field.name for field in policy.DESCRIPTOR.fields if field.name != "preset"]
    return {key: getattr(policy, key) for key in keys}


async def list_agents(call: Call) -> Result:
    """List the agents on which the caller may start something, with what each is doing."""
    peers = await call.rpc(
        call.mesh.visibility.ListPeers,
        visibility_pb2.ListPeersRequest(page_size=call.page(), page_token=call.text("cursor")),
    )
    ids = [peer.id for peer in peers.peers]
    presence: dict[str, str] = {}
    if ids:
        request = session_pb2.GetPresenceRequest(agents=ids)
        presence = dict((await call.rpc(call.mesh.sessions.GetPresence, request)).presence)
    agents = [
        {
            "id": peer.id,
            "slug": peer.slug,
            "name": peer.name,
            "description": peer.description,
            "presence": presence.get(peer.id, "offline"),
            "relation": _RELATIONS[peer.relation],
            # The badge of what a plugin has brought; others have none.
            **({"plugin": peer.plugin_name} if peer.plugin_id else {}),
        }
        for peer in peers.peers
    ]
    headline = "" if agents else "You can reach no agent."
    if peers.next_page_token:
        headline = "There are more: call list_agents again with cursor set to next_cursor."
    return Result({"agents": agents, "next_cursor": peers.next_page_token or None}, headline)


TOOLS = (
    Tool(
        name="whoami",
        description="Who you are here: agent, owner, workspace, session, delegation depth, limits, usage.",
        run=whoami,
        output={
            # What may be null is left out: said so that every client takes it, it costs too much.
            "depth": fields.INTEGER,
            "limits": fields.OBJECT,
        },
        reads=True,
        for_users=True,
        for_receive_only=True,
    ),
    Tool(
        name="list_agents",
        description="The agents you can address, what each is for and whether it is busy, idle or offline.",
        run=list_agents,
        properties={"limit": fields.LIMIT, "cursor": fields.CURSOR},
        output={"agents": fields.OBJECTS},
        reads=True,
        for_users=True,
    ),
)
