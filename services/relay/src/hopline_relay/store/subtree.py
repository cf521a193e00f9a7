"""What goes on only for turns that were cancelled: here, and nowhere else, each part of the mesh says so.

A part that lets something go on for a turn (an answer it asked for, a timer it set) adds a look of its own to
`below`; cancelling ends what is found, then what is below that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, and_, bindparam, select

from hopline_relay.domain.values import ANSWERS, WAKES
from hopline_relay.store import debting, queues
from hopline_relay.store import timers as timer_store
from hopline_relay.store import todos as todo_store
from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import EMPTY, OPEN, debts, messages, turns
from hopline_relay.store.sql import Record

_LIVE: Final = ("queued", "running")
# A worker that fails its own turn leaves alone what it asked for: the answers come as messages.
_OWN_FAILURES: Final = ("turn_failed", "tool_failed", "invalid_argument")
# A chain is bounded by the depth rail.
_LONGEST: Final = 64
_above = turns.alias("above")
_OWED_TO_ENDED: Final = (
    select(debts.c.turn_id, debts.c.creditor_turn_id, messages.c.created_at)
    .join(
        _above, and_(_above.c.workspace_id == debts.c.workspace_id, _above.c.id == debts.c.creditor_turn_id)
    )
    .join(
        messages, and_(messages.c.workspace_id == debts.c.workspace_id, messages.c.id == debts.c.message_id)
    )
    .where(
        debts.c.workspace_id == bindparam("workspace"),
        debts.c.state == OPEN,
        debts.c.creditor_turn_id != EMPTY,
        _above.c.state.not_in(_LIVE),
    )
)


def below(
    connection: Connection, workspace_id: str, above: Sequence[Record], *, wakes: bool, most: int
) -> list[Record]:
    """Return the turns that go on only for those `above`: what they asked of others.

    With `wakes` also the turns that replies to what they said have caused, or are about to, and those that
    the mesh has woken with what they left to themselves.
    """
    ids = {row.id for row in above}
    found = {
        (workspace_id, debt.turn_id) for debt in debting.owed_to_turns(connection, workspace_id, list(ids))
    }
    found |= {(workspace_id, turn_id) for turn_id in _below_ended(connection, workspace_id, ids, wakes=wakes)}
    rows = list(queues.find(connection, found).values())
    if wakes:
        for agent_id in {row.agent_id for row in above}:
            rows += _woken(connection, workspace_id, agent_id, ids, most)
    return [row for row in {row.id: row for row in rows}.values() if row.state in _LIVE]


def _below_ended(connection: Connection, workspace_id: str, above: set[str], *, wakes: bool) -> set[str]:
    """Return the turns that owe to turns which have ended, and which go back to one of those `above`.

    Found upwards: what is still owed is little and indexed, what was answered is everything that ever was.
    """
    rows = connection.execute(_OWED_TO_ENDED, {"workspace": workspace_id})
    climbing = {row.turn_id: row.creditor_turn_id for row in rows}
    found: set[str] = set()
    for _ in range(_LONGEST):
        found |= {turn_id for turn_id, at in climbing.items() if at in above}
        climbing = {turn_id: at for turn_id, at in climbing.items() if turn_id not in found}
        if not climbing:
            break
        came_from = _came_from(connection, workspace_id, set(climbing.values()), wakes=wakes)
        climbing = {turn_id: came_from[at] for turn_id, at in climbing.items() if at in came_from}
    return found


def _came_from(
    connection: Connection, workspace_id: str, turn_ids: set[str], *, wakes: bool
) -> dict[str, str]:
    """Return the turn that each of these goes on for: that asked for it, or to which a reply woke it."""
    keys = {(workspace_id, turn_id) for turn_id in turn_ids}
    asked = by_id(connection, debts, keys, debts.c.turn_id)
    found = {turn_id: debt.creditor_turn_id for (_, turn_id), debt in asked.items()}
    if wakes and (rest := keys - asked.keys()):
        found |= _woken_by(connection, workspace_id, list(by_id(connection, turns, rest).values()))
    return found


def _woken(
    connection: Connection, workspace_id: str, agent_id: str, above: set[str], most: int
) -> list[Record]:
    """Return the live turns of an agent that replies to these turns, or notes for them, have caused."""
    live = [
        *queues.queued_of(connection, workspace_id, agent_id, most),
        *queues.running_of(connection, workspace_id, agent_id),
    ]
    goes_on_for = going_on_for(connection, workspace_id, _woken_by(connection, workspace_id, live), above)
    return [row for row in live if row.id in goes_on_for]


def going_on_for(
    connection: Connection, workspace_id: str, from_turns: Mapping[str, str], above: set[str]
) -> set[str]:
    """Return which of these things, each with the turn it comes from, go on for one of the turns `above`.

    Also over turns in between that have ended: a note of the mesh goes on with what it goes back to.
    """
    found: set[str] = set()
    climbing = dict(from_turns)
    for _ in range(_LONGEST):
        found |= {name for name, at in climbing.items() if at in above}
        climbing = {name: at for name, at in climbing.items() if at and at not in above}
        if not climbing:
            break
        rows = by_id(connection, turns, {(workspace_id, at) for at in climbing.values()})
        woken_by = _woken_by(connection, workspace_id, list(rows.values()))
        climbing = {name: woken_by[at] for name, at in climbing.items() if at in woken_by}
    return found


class LeftBy(NamedTuple):
    """What goes on only for some turns without a turn of its own: timers, and lists of todos."""

    timers: list[Record]
    lists: list[Record]


def left_by(connection: Connection, workspace_id: str, agents: set[str], above: set[str]) -> LeftBy:
    """Return the timers that were set for turns `above`, and the lists that something is on for them."""
    found = LeftBy([], [])
    for agent_id in agents:
        for row in timer_store.of_agent(connection, workspace_id, agent_id):
            if going_on_for(connection, workspace_id, {row.id: row.turn_id}, above):
                found.timers.append(row)
        for row in todo_store.lists_of_agent(connection, workspace_id, agent_id):
            noted = todo_store.open_of(connection, workspace_id, row.session_id)
            from_turns = {todo.id: todo.turn_id for todo in noted}
            if going_on_for(connection, workspace_id, from_turns, above):
                found.lists.append(row)
    return found


def _woken_by(connection: Connection, workspace_id: str, rows: Sequence[Record]) -> dict[str, str]:
    """Return, for those of the turns that a reply or the mesh has woken, the turn that they go back to.

    That is where was said what is answered, or where was set what the mesh wakes it with.
    """
    found = {row.id: row.parent_turn_id for row in rows if row.cause in WAKES}
    woken = [row for row in rows if row.cause in ANSWERS]
    replies = by_id(connection, messages, {(workspace_id, row.message_id) for row in woken})
    said = by_id(connection, messages, {(workspace_id, reply.in_reply_to) for reply in replies.values()})
    for row in woken:
        reply = replies.get((workspace_id, row.message_id))
        answered = said.get((workspace_id, reply.in_reply_to)) if reply is not None else None
        if answered is not None:
            found[row.id] = answered.from_turn_id
    return found


def left_over(connection: Connection, workspace_id: str, now: float) -> list[Record]:
    """Return live turns that were asked for before what they go on for was cancelled, or given up.

    Also where turns in between have ended by themselves. What an agent asks for later is not the cancelled
    work, even where it is put down to that turn: it may have none of its own by then.
    """
    rows = connection.execute(_OWED_TO_ENDED, {"workspace": workspace_id}).all()
    asked_at = {row.turn_id: row.created_at for row in rows}
    climbing = {row.turn_id: row.creditor_turn_id for row in rows}
    found: set[str] = set()
    for _ in range(_LONGEST):
        above = by_id(connection, turns, {(workspace_id, at) for at in climbing.values()})
        found |= {
            turn_id
            for turn_id, at in climbing.items()
            if _given_up(above.get((workspace_id, at)), asked_at[turn_id], now)
        }
        climbing = {turn_id: at for turn_id, at in climbing.items() if turn_id not in found}
        if not climbing:
            break
        came_from = _came_from(connection, workspace_id, set(climbing.values()), wakes=False)
        climbing = {turn_id: came_from[at] for turn_id, at in climbing.items() if at in came_from}
    live = queues.find(connection, {(workspace_id, turn_id) for turn_id in found}).values()
    return [row for row in live if row.state in _LIVE]


def _given_up(turn: Record | None, asked_at: float, now: float) -> bool:
    """Tell whether what was asked for at a time went on for a turn that others than its worker have ended."""
    return (
        turn is not None
        and turn.state in ("canceled", "failed")
        and turn.error_code not in _OWN_FAILURES
        # After a clock was set back its times say nothing.
        and asked_at <= turn.ended_at <= now
    )
