"""The messages that carry an answer, or the news that none will come, back to whoever asked."""

from __future__ import annotations

from hopline_rpc.clock import utc_day
from hopline_rpc.ids import IdMaker

from hopline_relay.domain.values import MESH, Actor, Fault
from hopline_relay.store.outgoing import Copy, Outgoing
from hopline_relay.store.schema import debts
from hopline_relay.store.sql import Record, record


def answer(
    debt: Record,
    asked: Record,
    *,
    sender: Actor,
    text: str,
    awaited: bool,
    turn: Record,
    ids: IdMaker,
    queue_seconds: float,
    gone: bool = False,
) -> Outgoing:
    """Return the message by which a debt is paid.

    It wakes nobody where a call waits for it (`awaited`), or whoever asked is no more (`gone`).
    """
    outgoing = _back(
        debt,
        asked,
        kind="answer",
        sender=sender,
        text=text,
        awaited=awaited,
        ids=ids,
        queue_seconds=queue_seconds,
        session_id=turn.session_id,
        turn_id=turn.id,
        from_depth=turn.depth,
        traceparent=turn.span or turn.traceparent,
        # That of what it answers, unless a person has sent that again.
        root_id=turn.root_id,
        hook_generation=turn.hook_generation,
    )
    if gone:
        outgoing.copies = [Copy(kind="agent", id=debt.creditor_id, state="withdrawn")]
    return outgoing


def notice(
    debt: Record,
    asked: Record,
    *,
    name: str,
    fault: Fault,
    ids: IdMaker,
    queue_seconds: float,
    now: float,
) -> Outgoing:
    """Return the mesh's own message to an agent whose question ends without an answer."""
    outgoing = _back(
        debt,
        asked,
        kind="notice",
        sender=MESH,
        text=f"{name} did not answer your message {asked.id}: {fault.message} ({fault.code}).",
        awaited=False,
        ids=ids,
        queue_seconds=queue_seconds,
        session_id="",
        turn_id=debt.turn_id,
        from_depth=asked.depth,
        traceparent=asked.traceparent,
    )
    outgoing.root_id, outgoing.depth, outgoing.day = asked.root_id, asked.from_depth, utc_day(now)
    return outgoing


def undelivered(
    row: Record, asked: Record, *, name: str, fault: Fault, ids: IdMaker, queue_seconds: float, now: float
) -> Outgoing:
    """Return the mesh's own message to an agent whose message the mesh has given up; `row` is its turn."""
    # As if the answer were owed: it goes back the same way.
    debt = record(
        debts,
        {
            **dict.fromkeys((column.name for column in debts.columns), ""),
            "workspace_id": row.workspace_id,
            "turn_id": row.id,
            "message_id": asked.id,
            "thread_id": asked.thread_id,
            "creditor_kind": asked.from_kind,
            "creditor_id": asked.from_id,
            "creditor_session_id": asked.from_session_id,
            "creditor_turn_id": asked.from_turn_id,
        },
    )
    outgoing = notice(debt, asked, name=name, fault=fault, ids=ids, queue_seconds=queue_seconds, now=now)
    outgoing.body = (
        f"Your message {asked.id} never got through to {name}: {fault.message} ({fault.code}). It is a dead "
        "letter now; who operates the agent may send it again while the agent exists."
    )
    return outgoing


def _back(
    debt: Record,
    asked: Record,
    *,
    kind: str,
    sender: Actor,
    text: str,
    awaited: bool,
    ids: IdMaker,
    queue_seconds: float,
    session_id: str,
    turn_id: str,
    from_depth: int,
    traceparent: str,
    root_id: str = "",
    hook_generation: int = 0,
) -> Outgoing:
    if debt.creditor_kind != "agent":
        copy = Copy(kind=debt.creditor_kind, id=debt.creditor_id, state="taken" if awaited else "delivered")
    elif awaited:
        copy = Copy(kind="agent", id=debt.creditor_id, state="taken", session_id=debt.creditor_session_id)
    else:
        copy = Copy(
            kind="agent",
            id=debt.creditor_id,
            session_id=debt.creditor_session_id,
            turn_id=ids.new_id("trn"),
        )
    return Outgoing(
        workspace_id=debt.workspace_id,
        id=ids.new_id("msg"),
        kind=kind,
        sender=sender,
        session_id=session_id,
        turn_id=turn_id,
        chain_turn_id=debt.creditor_turn_id,
        body=text,
        thread_id=debt.thread_id,
        opens_thread=False,
        in_reply_to=debt.message_id,
        depth=asked.from_depth,
        from_depth=from_depth,
        root_id=root_id or asked.root_id,
        admitted_as="answer",
        day="",
        traceparent=traceparent,
        copies=[copy],
        queue_seconds=queue_seconds,
        # What comes back is no fresh event: it is as far from one as what it ends.
        hook_generation=max(hook_generation, asked.hook_generation),
    )
