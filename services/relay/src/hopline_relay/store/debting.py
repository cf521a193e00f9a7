"""Debts: who owes an answer to whom, and how a debt ends."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, select, update

from hopline_relay.domain.values import Fault
from hopline_relay.store.schema import EMPTY, OPEN, debts, deliveries
from hopline_relay.store.sql import Record, Statement

_CLOSE = Statement(
    update(debts)
    .where(
        debts.c.workspace_id == bindparam("workspace"),
        debts.c.turn_id == bindparam("turn"),
        debts.c.state == OPEN,
    )
    .values(
        state=bindparam("new_state"),
        reply_message_id=bindparam("reply"),
        error_code=bindparam("code"),
        error_message=bindparam("message"),
    )
)


def close(
    connection: Connection,
    workspace_id: str,
    turn_id: str,
    state: str,
    *,
    reply_id: str = "",
    fault: Fault | None = None,
) -> bool:
    """End a debt; False when it had ended before."""
    values = {
        "workspace": workspace_id,
        "turn": turn_id,
        "new_state": state,
        "reply": reply_id,
        "code": fault.code if fault else "",
        "message": fault.message if fault else "",
    }
    return _CLOSE.run(connection, values) == 1


_OWED_TO_TURNS = Statement(
    select(debts).where(
        debts.c.workspace_id == bindparam("workspace"),
        debts.c.creditor_turn_id.in_(bindparam("turns", expanding=True)),
        debts.c.creditor_turn_id != EMPTY,
        debts.c.state == OPEN,
    ),
    "turns",
)
_OWED_BY = Statement(
    select(debts).where(
        debts.c.workspace_id == bindparam("workspace"),
        debts.c.debtor_id == bindparam("debtor"),
        debts.c.state == OPEN,
    )
)


def owed_to_turns(connection: Connection, workspace_id: str, turn_ids: Sequence[str]) -> Sequence[Record]:
    """Return the open debts for whose answers these turns asked."""
    return _OWED_TO_TURNS.all(connection, {"workspace": workspace_id, "turns": list(turn_ids)})


def owed_by(connection: Connection, workspace_id: str, agent_id: str) -> Sequence[Record]:
    """Return the open debts of an agent."""
    return _OWED_BY.all(connection, {"workspace": workspace_id, "debtor": agent_id})


_MARK_ANSWERED = Statement(
    update(deliveries)
    .where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.message_id == bindparam("message"),
        deliveries.c.recipient_id == bindparam("recipient"),
    )
    .values(state="answered", place=False)
)


def mark_answered(connection: Connection, workspace_id: str, message_id: str, agent_id: str) -> None:
    """Say that an agent's final message has answered what was delivered to it."""
    _MARK_ANSWERED.run(connection, {"workspace": workspace_id, "message": message_id, "recipient": agent_id})
