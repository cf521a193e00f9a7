"""The floor and trees of delegations as JSON documents."""

from __future__ import annotations

from hopline.relay.v1 import delegation_pb2, floor_pb2, message_pb2

from hopline_cli.output import Json
from hopline_cli.shapes import party, time


def wait(value: floor_pb2.Wait) -> Json:
    """Return `{reason, text, remedy, turn_id, escalation_id, session_id, since}`."""
    name = floor_pb2.WaitReason.Name(value.reason).removeprefix("WAIT_REASON_").lower()
    return {
        "reason": name if value.reason else None,
        "text": value.text,
        "remedy": value.remedy or None,
        "turn_id": value.turn_id or None,
        "escalation_id": value.escalation_id or None,
        "session_id": value.session_id or None,
        "since": time(value, "since"),
    }


def turn(value: delegation_pb2.Turn) -> Json:
    """Return a turn in short."""
    return {
        "id": value.id,
        "agent": party(value.agent),
        "for": party(value.caused_by),
        "status": message_pb2.TurnStatus.Name(value.status).removeprefix("TURN_STATUS_").lower(),
        "cause": value.cause,
        "depth": value.depth,
        "attempt": value.attempt,
        "session_id": value.session_id,
        "thread_id": value.thread_id or None,
        "trace_id": value.trace_id or None,
        "created_at": time(value, "created_at"),
        "started_at": time(value, "started_at"),
        "ended_at": time(value, "ended_at"),
        "error": {"code": value.error.code, "message": value.error.message}
        if value.HasField("error")
        else None,
    }


def agent(value: floor_pb2.FloorAgent) -> Json:
    """Return an agent with what it does."""
    return {
        "agent": party(value.agent),
        "presence": value.presence,
        "running": [
            {**turn(each.turn), "wait": wait(each.wait) if each.HasField("wait") else None}
            for each in value.running
        ],
        "running_count": value.running_count,
        "queued_count": value.queued_count,
        "oldest_queued_at": time(value, "oldest_queued_at"),
        "queued_wait": wait(value.queued_wait) if value.HasField("queued_wait") else None,
    }


def floor(value: floor_pb2.GetFloorResponse) -> Json:
    """Return a page of the floor."""
    return {
        "runs_used": value.runs_used,
        "runs_limit": value.runs_limit,
        "queued_count": value.queued_count,
        "oldest_queued_at": time(value, "oldest_queued_at"),
        "hooks": [
            {"plugin": each.plugin_name, "kind": each.kind, "wait": wait(each.wait)} for each in value.hooks
        ],
        "agents": [agent(each) for each in value.agents],
    }


def node(value: floor_pb2.TreeNode) -> Json:
    """Return a turn of a tree: the turn, its `level`, what it was asked and what it waits for."""
    return {
        **turn(value.turn),
        "level": value.level,
        "excerpt": value.excerpt,
        "wait": wait(value.wait) if value.HasField("wait") else None,
    }
