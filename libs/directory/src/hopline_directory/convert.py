"""Between the contract's messages and the view's records, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from google.protobuf import json_format
from hopline.registry.v1 import agent_pb2, identity_pb2, model_pb2, visibility_pb2, workspace_pb2
from hopline_rpc.clock import from_timestamp, to_timestamp

from hopline_directory.records import (
    AgentKind,
    AgentRecord,
    AgentState,
    ConnectionRecord,
    ModelRecord,
    Policy,
    Rate,
    Relation,
    ReplyMode,
    Runtime,
    ServerToolRecord,
    UserRecord,
    WakeKind,
    WorkspaceRecord,
)

_KINDS: dict[int, AgentKind] = {
    agent_pb2.AGENT_KIND_STANDARD: "standard",
    agent_pb2.AGENT_KIND_RECEIVE_ONLY: "receive_only",
}
_STATES: dict[int, AgentState] = {
    agent_pb2.AGENT_STATE_PROVISIONING: "provisioning",
    agent_pb2.AGENT_STATE_ACTIVE: "active",
    agent_pb2.AGENT_STATE_PAUSED: "paused",
}
_REPLY_MODES: dict[int, ReplyMode] = {
    agent_pb2.REPLY_MODE_IMPLICIT: "implicit",
    agent_pb2.REPLY_MODE_AUTO: "auto",
    agent_pb2.REPLY_MODE_ALL: "all",
}
_THINKING: dict[int, str] = {
    agent_pb2.THINKING_LEVEL_UNSPECIFIED: "",
    agent_pb2.THINKING_LEVEL_OFF: "off",
    agent_pb2.THINKING_LEVEL_LOW: "low",
    agent_pb2.THINKING_LEVEL_MEDIUM: "medium",
    agent_pb2.THINKING_LEVEL_HIGH: "high",
}
_RUNTIMES: dict[int, Runtime] = {
    agent_pb2.AGENT_RUNTIME_LOCAL: "local",
    agent_pb2.AGENT_RUNTIME_CLOUD: "cloud",
}
_WAKES: dict[int, WakeKind] = {
    agent_pb2.WAKE_KIND_NONE: "none",
    agent_pb2.WAKE_KIND_EXEC: "exec",
    agent_pb2.WAKE_KIND_WEBHOOK: "webhook",
}


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
        runtime=_RUNTIMES.get(agent.runtime, "local"),
        wake=_WAKES.get(agent.wake.kind, "none"),
        webhook_url=agent.wake.webhook_url,
        has_webhook_secret=agent.wake.has_webhook_secret,
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
        former_names=tuple((each.name, from_timestamp(each.until)) for each in agent.former_names),
        connections=tuple(
            ConnectionRecord(each.name, each.agent, each.description) for each in agent.connections
        ),
        crew=agent.crew,
        awaits_definition=agent.awaits_definition,
    )


def agent_message(agent: AgentRecord) -> agent_pb2.Agent:
    """Write an agent."""
    return agent_pb2.Agent(
        id=agent.id,
        slug=agent.slug,
        name=agent.name,
        owner_id=agent.owner_id,
        description=agent.description,
        kind=_number(_KINDS, agent.kind),
        state=_number(_STATES, agent.state),
        is_subagent=agent.is_subagent,
        parent_agent_id=agent.parent_agent_id,
        is_group_only_callable=agent.is_group_only_callable,
        reply_mode=_number(_REPLY_MODES, agent.reply_mode),
        soul=agent.soul,
        instructions=agent.instructions,
        model_id=agent.model_id,
        thinking_level=_number(_THINKING, agent.thinking_level),
        runtime=_number(_RUNTIMES, agent.runtime),
        wake=agent_pb2.Wake(
            kind=_number(_WAKES, agent.wake),
            webhook_url=agent.webhook_url,
            has_webhook_secret=agent.has_webhook_secret,
        ),
        reach=sorted(agent.reach),
        tools=agent.tools,
        labels=agent.labels,
        is_default=agent.is_default,
        plugin_id=agent.plugin_id,
        key=agent.key,
        server_tools=[_server_tool(tool) for tool in agent.server_tools],
        created_at=to_timestamp(agent.created_at),
        former_names=[
            agent_pb2.FormerName(name=name, until=to_timestamp(until)) for name, until in agent.former_names
        ],
        connections=[
            agent_pb2.Connection(name=each.name, agent=each.agent_id, description=each.description)
            for each in agent.connections
        ],
        crew=agent.crew,
        awaits_definition=agent.awaits_definition,
    )


def _number(words: Mapping[int, str], word: str) -> Any:
    """Return the enum's number for a word of ours."""
    return next(number for number, each in words.items() if each == word)


def _server_tool(tool: ServerToolRecord) -> agent_pb2.ServerTool:
    message = agent_pb2.ServerTool(name=tool.name, description=tool.description)
    message.input_schema.update(dict(tool.input_schema))
    return message


def model_record(workspace_id: str, model: model_pb2.Model) -> ModelRecord:
    """Read a model; one without a name of its own is called by its identifier."""
    return ModelRecord(
        id=model.id,
        workspace_id=workspace_id,
        model_identifier=model.model_identifier,
        display_name=model.display_name or model.model_identifier,
        input_usd_per_1m=_price(model, "input_usd_per_1m"),
        output_usd_per_1m=_price(model, "output_usd_per_1m"),
        cached_usd_per_1m=_price(model, "cached_usd_per_1m"),
        is_default=model.is_default,
        created_at=from_timestamp(model.created_at),
    )


def _price(model: model_pb2.Model, field: Any) -> Decimal | None:
    return Decimal(getattr(model, field)) if model.HasField(field) else None


def model_message(model: ModelRecord) -> model_pb2.Model:
    """Write a model."""
    return model_pb2.Model(
        id=model.id,
        model_identifier=model.model_identifier,
        display_name=model.display_name,
        input_usd_per_1m=price_text(model.input_usd_per_1m),
        output_usd_per_1m=price_text(model.output_usd_per_1m),
        cached_usd_per_1m=price_text(model.cached_usd_per_1m),
        is_default=model.is_default,
        created_at=to_timestamp(model.created_at),
    )


def price_text(price: Decimal | None) -> str | None:
    """Write a price without the zeros that say nothing."""
    if price is None:
        return None
    text = format(price, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def kind_number(kind: AgentKind) -> agent_pb2.AgentKind.ValueType:
    """Write an agent's kind."""
    return agent_pb2.AgentKind.Value(f"AGENT_KIND_{kind.upper()}")


def relation_number(relation: Relation) -> visibility_pb2.Relation.ValueType:
    """Write what one agent is to another."""
    return visibility_pb2.Relation.Value(f"RELATION_{relation.upper()}")


def role_number(role: int) -> identity_pb2.Role.ValueType:
    """Write a role; none is the unset one."""
    return identity_pb2.Role.Value(identity_pb2.Role.Name(role))  # type: ignore[arg-type]


def user_record(workspace_id: str, user: identity_pb2.User) -> UserRecord:
    """Read a user."""
    return UserRecord(user.id, workspace_id, user.name, from_timestamp(user.created_at), user.has_webhook)


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
        redact_credentials=policy.redact_credentials,
        evidence_required=policy.evidence_required,
    )


def parse_rate(text: str) -> Rate | None:
    """Read `COUNT/SECONDSs`; `0` is None (off)."""
    if text == "0":
        return None
    count, _, seconds = text.partition("/")
    return Rate(int(count), int(seconds.removesuffix("s")))


def user_message(user: UserRecord) -> identity_pb2.User:
    """Write a user."""
    return identity_pb2.User(
        id=user.id, name=user.name, created_at=to_timestamp(user.created_at), has_webhook=user.has_webhook
    )


def workspace_message(workspace: WorkspaceRecord) -> workspace_pb2.Workspace:
    """Write a workspace."""
    return workspace_pb2.Workspace(
        id=workspace.id, name=workspace.name, created_at=to_timestamp(workspace.created_at)
    )


def policy_message(policy: Policy) -> workspace_pb2.Policy:
    """Write a policy."""
    plain = {name: getattr(policy, name) for name in Policy.__slots__}
    plain["pair_budget"] = format_rate(policy.pair_budget)
    plain["refusals"] = format_rate(policy.refusals)
    plain["credits"] = "off" if policy.credits is None else format(policy.credits, "f")
    return workspace_pb2.Policy(**plain)


def format_rate(rate: Rate | None) -> str:
    """Write `COUNT/SECONDSs`, or `0` for off."""
    return "0" if rate is None else f"{rate.count}/{rate.seconds}s"
