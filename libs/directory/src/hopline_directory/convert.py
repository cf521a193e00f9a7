"""From the contract's messages to the view's records."""

from __future__ import annotations

from decimal import Decimal

from google.protobuf import json_format
from hopline.registry.v1 import agent_pb2, identity_pb2, workspace_pb2
from hopline_rpc.clock import from_timestamp

from hopline_directory.records import (
    AgentKind,
    AgentRecord,
    AgentState,
    Policy,
    Rate,
    ReplyMode,
    ServerToolRecord,
    UserRecord,
    WakeKind,
    WorkspaceRecord,
)

_KINDS: dict[int, AgentKind] = {agent_pb2.AGENT_KIND_RECEIVE_ONLY: "receive_only"}
_STATES: dict[int, AgentState] = {
    agent_pb2.AGENT_STATE_PROVISIONING: "provisioning",
    agent_pb2.AGENT_STATE_ACTIVE: "active",
}
_REPLY_MODES: dict[int, ReplyMode] = {
    agent_pb2.REPLY_MODE_IMPLICIT: "implicit",
    agent_pb2.REPLY_MODE_ALL: "all",
}
_THINKING: dict[int, str] = {
    agent_pb2.THINKING_LEVEL_OFF: "off",
    agent_pb2.THINKING_LEVEL_LOW: "low",
    agent_pb2.THINKING_LEVEL_MEDIUM: "medium",
    agent_pb2.THINKING_LEVEL_HIGH: "high",
}
_WAKES: dict[int, WakeKind] = {agent_pb2.WAKE_KIND_EXEC: "exec", agent_pb2.WAKE_KIND_WEBHOOK: "webhook"}


def agent_record(workspace_id: str, agent: agent_pb2.Agent) -> AgentRecord:
    """Read an agent; what the contract leaves unspecified gets its default, an unknown state is `paused`."""
    return AgentRecord(
        id=agent.id,
        workspace_id=workspace_id,
        slug=agent.slug,
        name=agent.name,
        owner_id=agent.owner_id,
        description=agent.description,
        kind=_KINDS.get(agent.kind, "standard"),
        state=_STATES.get(agent.state, "paused"),
        is_subagent=agent.is_subagent,
        parent_agent_id=agent.parent_agent_id,
        is_group_only_callable=agent.is_group_only_callable,
        reply_mode=_REPLY_MODES.get(agent.reply_mode, "auto"),
        soul=agent.soul,
        instructions=agent.instructions,
        model_id=agent.model_id,
        thinking_level=_THINKING.get(agent.thinking_level, ""),
        runtime="cloud" if agent.runtime == agent_pb2.AGENT_RUNTIME_CLOUD else "local",
        wake=_WAKES.get(agent.wake.kind, "none"),
        webhook_url=agent.wake.webhook_url,
        reach=frozenset(agent.reach),
        tools=tuple(agent.tools),
        labels=dict(agent.labels),
        is_default=agent.is_default,
        plugin_id=agent.plugin_id,
        key=agent.key,
        server_tools=tuple(
            ServerToolRecord(tool.name, tool.description, json_format.MessageToDict(tool.input_schema))
            for tool in agent.server_tools
        ),
        created_at=from_timestamp(agent.created_at),
    )


def user_record(workspace_id: str, user: identity_pb2.User) -> UserRecord:
    """Read a user."""
    return UserRecord(user.id, workspace_id, user.name, from_timestamp(user.created_at))


def workspace_record(workspace: workspace_pb2.Workspace) -> WorkspaceRecord:
    """Read a workspace."""
    return WorkspaceRecord(workspace.id, workspace.name, from_timestamp(workspace.created_at))


def policy_record(policy: workspace_pb2.Policy) -> Policy:
    """Read a policy; a rate or price that is not well-formed raises ValueError."""
    return Policy(
        preset=policy.preset,
        max_depth=policy.max_depth,
        root_turns=policy.root_turns,
        messages_per_thread=policy.messages_per_thread,
        sent_per_day=policy.sent_per_day,
        received_per_day=policy.received_per_day,
        pair_budget=parse_rate(policy.pair_budget),
        concurrent_runs=policy.concurrent_runs,
        inbox_backlog=policy.inbox_backlog,
        agents=policy.agents,
        refuse_cycles=policy.refuse_cycles,
        credits=None if policy.credits == "off" else Decimal(policy.credits),
        subagent_depth=policy.subagent_depth,
        hook_generations=policy.hook_generations,
        refusals=parse_rate(policy.refusals),
        causality_window_seconds=policy.causality_window_seconds,
        turn_seconds=policy.turn_seconds,
        queue_seconds=policy.queue_seconds,
        retention_days=policy.retention_days,
        batch_inbox=policy.batch_inbox,
        require_isolation=policy.require_isolation,
    )


def parse_rate(text: str) -> Rate | None:
    """Read `COUNT/SECONDSs`; `0` is None (off)."""
    if text == "0":
        return None
    count, _, seconds = text.partition("/")
    return Rate(int(count), int(seconds.removesuffix("s")))
