"""Debts: who owes an answer to whom, and how a debt ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select, update

from hopline_relay.domain.values import Fault
from hopline_relay.store.schema import EMPTY, OPEN, debts
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


@dataclass(frozen=True, slots=True)
class Closed:
    """How a debt ends: `answered` by a message, `failed` or `canceled` with the reason."""

    workspace_id: str
    turn_id: str
    state: str
    reply_id: str = ""
    fault: Fault | None = None


def close(connection: Connection, closed: Sequence[Closed]) -> None:
    """End open debts."""
    _CLOSE.many(
        connection,
        [
            {
                "workspace": each.workspace_id,
                "turn": each.turn_id,
                "new_state": each.state,
                "reply": each.reply_id,
                "code": each.fault.code if each.fault else "",
                "message": each.fault.message if each.fault else "",
            }
            for each in closed
        ],
    )


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


_OWED_TO = Statement(
    select(debts).where(
        debts.c.workspace_id == bindparam("workspace"),
        debts.c.state == OPEN,
        debts.c.creditor_kind == "agent",
        debts.c.creditor_id == bindparam("creditor"),
    )
)


def owed_to(connection: Connection, workspace_id: str, agent_id: str) -> Sequence[Record]:
    """Return the open debts to an agent."""
    return _OWED_TO.all(connection, {"workspace": workspace_id, "creditor": agent_id})


def owed_to_turns(connection: Connection, workspace_id: str, turn_ids: Sequence[str]) -> Sequence[Record]:
    """Return the open debts for whose answers these turns asked."""
    return _OWED_TO_TURNS.all(connection, {"workspace": workspace_id, "turns": list(turn_ids)})


def owed_by(connection: Connection, workspace_id: str, agent_id: str) -> Sequence[Record]:
    """Return the open debts of an agent."""
    return _OWED_BY.all(connection, {"workspace": workspace_id, "debtor": agent_id})
