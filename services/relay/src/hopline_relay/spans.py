"""The span of a turn: a child of the send that caused it, written when the turn has ended.

Its ids are drawn when the turn is claimed and stored with it, so that it is whole even when the process
was started again in between.
"""

from __future__ import annotations

from typing import Final

from hopline_directory import Directory
from hopline_rpc import telemetry

from hopline_relay.domain.values import TOOL
from hopline_relay.meters import Meters
from hopline_relay.store.sql import Record
from hopline_relay.store.turns import Ended

# Of a call that was made before and changed nothing: a caller that tried again.
REPEATED: Final = {"hopline.message.repeated": True}


def turn_ended(
    meters: Meters, directory: Directory, row: Record, ended: Ended, now: float, asked: Record | None = None
) -> None:
    """Count a turn that ran and write its span: as it was before it ended, with the message it was about."""
    if row.started_at is None:
        return
    meters.ran(ended.fault.code if ended.fault is not None else ended.state, max(0.0, now - row.started_at))
    if not row.span:
        return
    agent = directory.agent(row.workspace_id, row.agent_id)
    name = agent.name if agent is not None else row.agent_id
    attributes: dict[str, str | bool | int | float] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.id": row.agent_id,
        "gen_ai.agent.name": name,
        "gen_ai.conversation.id": row.session_id,
        "hopline.turn.id": row.id,
        "hopline.turn.cause": row.cause,
        "hopline.turn.attempt": row.attempt,
        "hopline.turn.outcome": ended.state,
        "hopline.depth": row.depth,
        "hopline.session.id": row.session_id,
        "hopline.thread.id": row.thread_id,
        "hopline.message.id": row.message_id,
        "hopline.root.id": row.root_id,
    }
    title = f"invoke_agent {name}"
    if row.cause == TOOL and asked is not None:
        title = f"execute_tool {asked.subject}"
        attributes |= {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": asked.subject,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": row.id,
        }
    telemetry.record(
        row.span,
        title,
        parent=row.traceparent,
        kind="consumer",
        start_ns=int(row.started_at * 1_000_000_000),
        end_ns=int(now * 1_000_000_000),
        attributes=attributes,
        error=ended.fault.code if ended.fault is not None else None,
        service="relay",
    )
