"""Lines of an exported audit log: an event each, as JSON."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict
from hopline.relay.v1 import audit_pb2
from hopline_rpc.clock import from_timestamp, rfc3339


def line_of(value: audit_pb2.Event) -> dict[str, Any]:
    """Return one line of the audit log; what does not apply is left out."""
    found = {
        "seq": value.seq,
        "at": rfc3339(from_timestamp(value.at)) if value.HasField("at") else None,
        "action": value.action,
        "actor": {
            "kind": value.actor_kind,
            "id": value.actor_id or None,
            "name": value.actor_name,
            "display": value.actor_display or value.actor_name,
        },
        "agent_id": value.agent_id,
        "thread_id": value.thread_id,
        "message_id": value.message_id,
        "turn_id": value.turn_id,
        "session_id": value.session_id,
        "trace_id": value.trace_id,
        "details": plain(MessageToDict(value.details)),
    }
    return {key: item for key, item in found.items() if item not in ("", None, {})}


def plain(value: Any) -> Any:
    """Turn the floats of a Struct back into the whole numbers they were."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value
