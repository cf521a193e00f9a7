"""Messages of the contract as the JSON that commands print; the same names as the tools of agents give."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.timestamp_pb2 import Timestamp
from hopline.common.v1 import options_pb2
from hopline.quota.v1 import credit_pb2, usage_pb2
from hopline.registry.v1 import agent_pb2, identity_pb2, plugin_pb2, workspace_pb2
from hopline.relay.v1 import (
    audit_pb2,
    dead_letter_pb2,
    delegation_pb2,
    draft_pb2,
    escalation_pb2,
    message_pb2,
    schedule_pb2,
    session_pb2,
    webhook_pb2,
)
from hopline_files.audit_lines import line_of
from hopline_rpc.clock import from_timestamp, rfc3339

Json = dict[str, Any]


def enum(kind: Any, prefix: str, value: int) -> str:
    """Return an enum's value as people write it: `receive_only` for `AGENT_KIND_RECEIVE_ONLY`."""
    return str(kind.Name(value)).removeprefix(prefix).lower()


def time(holder: Any, field: str) -> str | None:
    """Return a timestamp field as RFC 3339 text, None where it is unset."""
    if not holder.HasField(field):
        return None
    moment: Timestamp = getattr(holder, field)
    return rfc3339(from_timestamp(moment))


def workspace(value: workspace_pb2.Workspace) -> Json:
    """Return `{id, name, created_at}`."""
    return {"id": value.id, "name": value.name, "created_at": time(value, "created_at")}


def policy(value: workspace_pb2.Policy) -> Json:
    """Return every policy key with its value."""
    return MessageToDict(value, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def deposit(value: credit_pb2.Deposit) -> Json:
    """Return `{id, amount, note, user: {id, name}, created_at}`; the amount is text, to be exact."""
    return {
        "id": value.id,
        "amount": value.amount,
        "note": value.note or None,
        "user": {"id": value.user_id, "name": value.user_name},
        "created_at": time(value, "created_at"),
    }


def credits(value: credit_pb2.Credits) -> Json:  # noqa: A001 - what it shows is called so
    """Return `{balance, deposited, charged, price}`, all as text."""
    return {
        "balance": value.balance,
        "deposited": value.deposited,
        "charged": value.charged,
        "price": value.price,
    }


def usage(value: usage_pb2.GetUsageResponse, where: session_pb2.GetContextResponse) -> Json:
    """Return what is used of every rail, and the limits in force."""
    return {
        "agent_id": value.agent_id,
        "sent_today": value.sent_today,
        "received_today": value.received_today,
        "workspace_sent_today": value.workspace_sent_today,
        "workspace_sent_limit": value.workspace_sent_limit,
        "inbox": value.inbox,
        "running": value.running,
        "depth": value.depth,
        "chain": [each.name for each in where.chain],
        "root_id": value.root_id or None,
        "root_turns": value.root_turns,
        "root_limit": value.root_limit or None,
        "pairs": [
            {
                "agent": {"id": pair.agent_id or None, "name": pair.name},
                "used": pair.used,
                "frees_at": time(pair, "frees_at"),
            }
            for pair in value.pairs
        ],
        "refusals": {"used": where.refusals, "frees_at": time(where, "refusals_free_at")},
        "credits": credits(value.credits) if value.HasField("credits") else None,
        "resets_at": time(value, "resets_at"),
        "limits": dict(sorted(value.limits.items())),
    }


def user(value: identity_pb2.User) -> Json:
    """Return `{id, name, login, has_webhook, created_at}`."""
    return {
        "id": value.id,
        "name": value.name,
        "login": value.login or None,
        "has_webhook": value.has_webhook,
        "created_at": time(value, "created_at"),
    }


def role(value: int) -> str:
    """Return `viewer`, `operator` or `admin`."""
    return enum(identity_pb2.Role, "ROLE_", value)


def grant(value: identity_pb2.RoleGrant) -> Json:
    """Return `{user_id, agent_id, role}`; no agent means the workspace."""
    return {"user_id": value.user_id, "agent_id": value.agent_id or None, "role": role(value.role)}


def token(value: identity_pb2.Token) -> Json:
    """Return what is known of a token, never its secret."""
    return {
        "id": value.id,
        "kind": enum(options_pb2.PrincipalKind, "PRINCIPAL_KIND_", value.kind),
        "subject_id": value.subject_id,
        "name": value.name,
        "created_at": time(value, "created_at"),
        "expires_at": time(value, "expires_at"),
        "revoked_at": time(value, "revoked_at"),
    }


def agent(value: agent_pb2.Agent) -> Json:
    """Return an agent's whole definition."""
    return {
        "id": value.id,
        "slug": value.slug,
        "name": value.name,
        "description": value.description,
        "owner_id": value.owner_id,
        "kind": enum(agent_pb2.AgentKind, "AGENT_KIND_", value.kind),
        "state": enum(agent_pb2.AgentState, "AGENT_STATE_", value.state),
        "model_id": value.model_id,
        "soul": value.soul,
        "instructions": value.instructions,
        "thinking_level": _set(agent_pb2.ThinkingLevel, "THINKING_LEVEL_", value.thinking_level),
        "reply_mode": _set(agent_pb2.ReplyMode, "REPLY_MODE_", value.reply_mode),
        "is_subagent": value.is_subagent,
        "parent_agent_id": value.parent_agent_id or None,
        "is_group_only_callable": value.is_group_only_callable,
        "is_default": value.is_default,
        "key": value.key or None,
        "crew": value.crew or None,
        "plugin_id": value.plugin_id or None,
        "plugin_name": value.plugin_name or None,
        "runtime": _set(agent_pb2.AgentRuntime, "AGENT_RUNTIME_", value.runtime),
        "wake": _set(agent_pb2.WakeKind, "WAKE_KIND_", value.wake.kind),
        "webhook_url": value.wake.webhook_url or None,
        "has_webhook_secret": value.wake.has_webhook_secret,
        "reach": list(value.reach),
        "tools": list(value.tools),
        "labels": dict(value.labels),
        "connections": [connection(each) for each in value.connections],
        "server_tools": [each.name for each in value.server_tools],
        "created_at": time(value, "created_at"),
    }


def plugin(value: plugin_pb2.Plugin) -> Json:
    """Return a plugin by the manifest in force, with what waits to be confirmed."""
    return {
        "id": value.id,
        **manifest(value.manifest),
        "slug_prefix": value.slug_prefix,
        "state": enum(plugin_pb2.PluginState, "PLUGIN_STATE_", value.state),
        "installed_by": value.installed_by,
        "installed_at": time(value, "installed_at"),
        "revision": value.revision,
        "waiting": manifest(value.waiting) if value.HasField("waiting") else None,
        "waiting_revision": value.waiting_revision or None,
        "asks": list(value.asks),
    }


def manifest(value: plugin_pb2.PluginManifest) -> Json:
    """Return a manifest; of its skills not the texts."""
    return {
        "key": value.key,
        "name": value.name,
        "version": value.version,
        "description": value.description or None,
        "agents": [{"key": each.key, "name": each.name} for each in value.agents],
        "permissions": list(value.permissions),
        "tools": [{"name": each.name, "description": each.description} for each in value.tools],
        "skills": [{"name": each.name, "description": each.description} for each in value.skills],
        "commands": [
            {"name": each.name, "description": each.description or None, "agent_key": each.agent_key}
            for each in value.commands
        ],
        "hooks": [
            {"kind": each.kind, "order": each.order, "fail_mode": each.fail_mode} for each in value.hooks
        ],
        "endpoint": value.endpoint or None,
        "model_provider": value.model_provider,
    }


def connection(value: agent_pb2.Connection) -> Json:
    """Return `{name, agent, description}`."""
    return {"name": value.name, "agent": value.agent, "description": value.description or None}


def _set(kind: Any, prefix: str, value: int) -> str | None:
    return enum(kind, prefix, value) if value else None


def party(value: message_pb2.Party) -> Json:
    """Return `{id, name, display}`; the id is null where the reader may not know who it is."""
    return {"id": value.id or None, "name": value.name, "display": value.display or value.name}


def delivery(value: message_pb2.Delivery) -> Json:
    """Return `{agent, agent_id, session_id, status, turn_id}`; of one that a hook kept back also why."""
    found: Json = {
        "agent": value.agent.name,
        "agent_id": value.agent.id or None,
        "session_id": value.session_id or None,
        "status": enum(message_pb2.DeliveryState, "DELIVERY_STATE_", value.state),
        "turn_id": value.turn_id or None,
    }
    if value.state == message_pb2.DELIVERY_STATE_VETOED:
        found |= {
            "is_delivered": False,
            "is_canceled": value.is_canceled,
            "cancel_reason": value.cancel_reason or None,
        }
    return found


def message(value: message_pb2.Message) -> Json:
    """Return a message with all that is known of it."""
    found: Json = {
        "id": value.id,
        "message_id": value.id,
        "thread_id": value.thread_id,
        "seq": value.seq,
        "from": party(getattr(value, "from")),  # a keyword of Python
        "to": [{"id": each.id or None, "name": each.name} for each in value.to],
        "subject": value.subject or None,
        "body": value.body,
        "payload": payload(value.payload_json),
        "in_reply_to": value.in_reply_to or None,
        "reply_expected": value.reply_expected,
        "escalation_id": value.escalation_id or None,
        "depth": value.depth,
        "created_at": time(value, "created_at"),
        "deliveries": [delivery(each) for each in value.deliveries],
    }
    if value.HasField("age_seconds"):
        found["age_seconds"] = value.age_seconds
    if value.HasField("newer_from_sender"):
        found["newer_from_sender"] = value.newer_from_sender
    return found


def payload(text: str) -> Any:
    """Read a payload's JSON text; None where there is none."""
    return json.loads(text) if text else None


def sent(value: message_pb2.SendResponse) -> Json:
    """Return `{message_id, thread_id, depth, deliveries}`, and `cycle` where the policy warns of one."""
    return {
        "message_id": value.message_id or None,
        "thread_id": value.thread_id or None,
        "depth": value.depth,
        "deliveries": [delivery(each) for each in value.deliveries],
        **({"cycle": [each.name for each in value.cycle]} if value.cycle else {}),
    }


def thread(value: message_pb2.Thread) -> Json:
    """Return `{id, subject, participants, message_count, last_at, read}`."""
    return {
        "id": value.id,
        "thread_id": value.id,
        "subject": value.subject or None,
        "participants": [party(each) for each in value.participants],
        "message_count": value.message_count,
        "last_at": time(value, "last_at"),
        "read": [read_mark(each) for each in value.read],
    }


def read_mark(value: message_pb2.ReadMark) -> Json:
    """Return `{agent, agent_id, consumed_through}`: the `seq` up to which an agent has read."""
    return {
        "agent": value.agent.name,
        "agent_id": value.agent.id or None,
        "consumed_through": value.consumed_through,
    }


def session(value: session_pb2.Session) -> Json:
    """Return `{id, agent, title, channel, state, opened_by, opened, opened_count, ...}`."""
    opened = value.opened_by
    return {
        "id": value.id,
        "agent": party(value.agent),
        "title": value.title,
        "channel": value.channel,
        "state": value.state,
        **({"held": held(value)} if value.held else {}),
        "opened_by": {
            "kind": opened.kind,
            "id": opened.id or None,
            "name": opened.name,
            "session_id": opened.session_id or None,
        },
        "opened": [_linked(each) for each in value.opened],
        "opened_count": value.opened_count,
        "child": _child(value.child) if value.HasField("child") else None,
        "live_children": value.live_children,
        "peer_session_id": value.peer_session_id or None,
        "created_at": time(value, "created_at"),
        "last_at": time(value, "last_at"),
    }


def _child(value: session_pb2.Child) -> Json:
    """Return what a session is as somebody's child."""
    return {
        "parent": party(value.parent),
        "parent_session_id": value.parent_session_id or None,
        "state": value.state,
        "owes_report": value.owes_report,
        "is_fire_and_forget": value.is_fire_and_forget,
        "links": value.links,
        "root_id": value.root_id,
        "message_id": value.message_id,
    }


def _linked(value: session_pb2.LinkedSession) -> Json:
    """Return a session at the other end; all but the agent's name is null where it may not be known."""
    return {
        "session_id": value.id or None,
        "agent": party(value.agent),
        "title": value.title or None,
        "state": value.state or None,
    }


def schedule(value: schedule_pb2.Schedule) -> Json:
    """Return a schedule with all that is known of it."""
    problem = value.problem
    return {
        "id": value.id,
        "agent": party(value.agent),
        "name": value.name,
        "cron": value.cron,
        "timezone": value.timezone,
        "text": value.text,
        "state": enum(schedule_pb2.ScheduleState, "SCHEDULE_STATE_", value.state),
        "author": party(value.author),
        "created_at": time(value, "created_at"),
        "next_at": time(value, "next_at"),
        "fired_at": time(value, "fired_at"),
        "turn_id": value.turn_id or None,
        "session_id": value.session_id or None,
        "fired": value.fired,
        "skipped": value.skipped,
        "problem": {"code": problem.code, "message": problem.message, "at": time(problem, "at")}
        if value.HasField("problem")
        else None,
    }


def webhook(value: webhook_pb2.Webhook, gateway: str, *, single: bool) -> Json:
    """Return a webhook with its address; never its secret. `single`: without a slug in the path."""
    path = value.path[value.path.find("/", 1) :] if single else value.path
    return {
        "agent": party(value.agent),
        "name": value.name,
        "path": path,
        "url": f"{gateway.rstrip('/')}{path}",
        "author": party(value.author),
        "created_at": time(value, "created_at"),
        "rotated_at": time(value, "rotated_at"),
        "old_until": time(value, "old_until"),
    }


def entry(value: session_pb2.TranscriptEntry) -> Json:
    """Return one entry of a transcript."""
    return {
        "seq": value.seq,
        "kind": value.kind,
        "at": time(value, "at"),
        "from": party(getattr(value, "from")),
        "text": value.text,
        "turn_id": value.turn_id or None,
        "message_id": value.message_id or None,
        "thread_id": value.thread_id or None,
        "depth": value.depth,
    }


def status(value: int) -> str:
    """Return a turn's status: `queued`, `running`, `completed`, ..."""
    return enum(message_pb2.TurnStatus, "TURN_STATUS_", value)


def turn_view(value: message_pb2.TurnView) -> Json:
    """Return what a caller learns of a turn: status, ids, and the reply or the error once it has ended."""
    found: Json = {
        "status": status(value.status),
        "session_id": value.session_id or None,
        "turn_id": value.turn_id or None,
        "thread_id": value.thread_id or None,
        "message_id": value.message_id or None,
        "depth": value.depth,
        "agent": party(value.agent) if value.HasField("agent") else None,
    }
    if value.has_reply:
        found["reply"] = value.reply
        found["reply_message_id"] = value.reply_message_id or None
        if value.reply_payload_json:
            found["payload"] = payload(value.reply_payload_json)
    if value.HasField("error"):
        found["error"] = {"code": value.error.code, "message": value.error.message}
    if value.held:
        found["held"] = {**held(value), "has_draft": value.has_draft}
    return found


def held(value: message_pb2.TurnView | session_pb2.Session) -> Json:
    """Return what an answer is held for: `{waiting_on, open_todos}`, names of subagents and a count."""
    return {"waiting_on": [each.name for each in value.waiting_on], "open_todos": value.open_todos}


def hold(value: draft_pb2.Hold) -> Json:
    """Return an answer that is held: `{session_id, agent, turn_id, waiting_on, open_todos, draft, ...}`."""
    return {
        "session_id": value.session_id,
        "title": value.session_title,
        "agent": party(value.agent),
        "turn_id": value.turn_id,
        "message_id": value.message_id,
        "prompted_by": party(value.prompted_by),
        "root_id": value.root_id,
        "waiting_on": [
            {
                "id": each.agent.id or None,
                "name": each.agent.name,
                "session_id": each.session_id or None,
                "turn_id": each.turn_id or None,
            }
            for each in value.waiting_on
        ],
        "open_todos": value.open_todos,
        "woken": value.woken,
        "draft": value.draft if value.has_draft else None,
        "held_since": time(value, "held_since"),
        "written_at": time(value, "written_at"),
    }


def root(value: delegation_pb2.Root) -> Json:
    """Return `{id, agent, turns, limit, extra_turns, exhausted_at}`."""
    return {
        "id": value.id,
        "agent": party(value.agent),
        "turns": value.turns,
        "limit": value.limit,
        "extra_turns": value.extra_turns,
        "exhausted_at": time(value, "exhausted_at"),
    }


def canceled(value: delegation_pb2.CancelResponse) -> Json:
    """Return `{status, canceled}`."""
    return {"status": status(value.status), "canceled": value.canceled}


def dead_letter(value: dead_letter_pb2.DeadLetter) -> Json:
    """Return `{id, agent, message, error, attempts, died_at, session_id}`; the id is that of the turn."""
    return {
        "id": value.turn_id,
        "agent": party(value.agent),
        "message": message(value.message),
        "error": {"code": value.error.code, "message": value.error.message},
        "attempts": value.attempts,
        "died_at": time(value, "died_at"),
        "session_id": value.session_id or None,
    }


def event(value: audit_pb2.Event) -> Json:
    """Return one line of the audit log; what does not apply is left out."""
    return line_of(value)


def escalation(value: escalation_pb2.Escalation) -> Json:
    """Return a question to an owner with all that is known of it."""
    ended = value.HasField("ended_by")
    return {
        "id": value.id,
        "escalation_id": value.id,
        "agent": party(value.agent),
        "owner": party(value.owner),
        "question": value.question,
        "options": list(value.options),
        "status": enum(escalation_pb2.EscalationStatus, "ESCALATION_STATUS_", value.status),
        "answer": value.answer or None,
        "ended_by": party(value.ended_by) if ended else None,
        "session_id": value.session_id,
        "turn_id": value.turn_id or None,
        "thread_id": value.thread_id,
        "depth": value.depth,
        "created_at": time(value, "created_at"),
        "expires_at": time(value, "expires_at"),
        "ended_at": time(value, "ended_at"),
    }
