"""What in the record contradicts itself: nothing, as long as only the relay writes it.

Each statement counts what must not be, and names one such thing. They read whole tables: this is for
whoever looks after the database, not for the mesh's own paths.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

# What is wrong (after its number), and a statement that gives the ids of all that it is wrong with.
_RULES: Final = (
    (
        "threads whose messages are not numbered 1, 2, 3 …",
        "SELECT thread_id AS id FROM messages GROUP BY workspace_id, thread_id"
        " HAVING min(seq) <> 1 OR max(seq) <> count(*)",
    ),
    (
        "threads that count other messages than they have",
        "SELECT t.id AS id FROM threads t WHERE t.message_count <>"
        " (SELECT count(*) FROM messages m WHERE m.workspace_id = t.workspace_id AND m.thread_id = t.id)",
    ),
    (
        "messages without their thread",
        "SELECT m.id AS id FROM messages m LEFT JOIN threads t"
        " ON t.workspace_id = m.workspace_id AND t.id = m.thread_id WHERE t.id IS NULL",
    ),
    (
        "deliveries without their message",
        "SELECT d.message_id AS id FROM deliveries d LEFT JOIN messages m"
        " ON m.workspace_id = d.workspace_id AND m.id = d.message_id WHERE m.id IS NULL",
    ),
    (
        "deliveries without their turn",
        "SELECT d.message_id AS id FROM deliveries d LEFT JOIN turns t"
        " ON t.workspace_id = d.workspace_id AND t.id = d.turn_id WHERE d.turn_id <> '' AND t.id IS NULL",
    ),
    (
        "messages beyond the last number of their workspace",
        "SELECT m.id AS id FROM messages m JOIN heads h ON h.workspace_id = m.workspace_id"
        " WHERE m.ordinal > h.ordinal",
    ),
    (
        "debts without their turn",
        "SELECT d.turn_id AS id FROM debts d LEFT JOIN turns t"
        " ON t.workspace_id = d.workspace_id AND t.id = d.turn_id WHERE t.id IS NULL",
    ),
    (
        "answers that are said to be there and are not",
        "SELECT d.turn_id AS id FROM debts d LEFT JOIN messages m"
        " ON m.workspace_id = d.workspace_id AND m.id = d.reply_message_id"
        " WHERE d.state = 'answered' AND d.reply_message_id <> '' AND m.id IS NULL",
    ),
    (
        "sessions held by a turn that does not run",
        "SELECT s.id AS id FROM sessions s LEFT JOIN turns t"
        " ON t.workspace_id = s.workspace_id AND t.id = s.running_turn_id"
        " WHERE s.running_turn_id <> '' AND (t.id IS NULL OR t.state <> 'running')",
    ),
    (
        "workspaces whose audit log has gaps",
        "SELECT e.workspace_id AS id FROM audit_events e GROUP BY e.workspace_id"
        " HAVING max(e.seq) - min(e.seq) + 1 <> count(*)",
    ),
    (
        "workspaces whose audit log lacks its beginning or its end",
        "SELECT h.workspace_id AS id FROM heads h WHERE h.audit_seq >"
        " coalesce((SELECT max(e.seq) FROM audit_events e WHERE e.workspace_id = h.workspace_id),"
        " (SELECT c.seq FROM audit_cuts c WHERE c.workspace_id = h.workspace_id), 0)"
        " OR coalesce((SELECT min(e.seq) FROM audit_events e WHERE e.workspace_id = h.workspace_id), 1) >"
        " coalesce((SELECT c.seq FROM audit_cuts c WHERE c.workspace_id = h.workspace_id), 0) + 1",
    ),
)


def contradictions(conn: Connection) -> list[str]:
    """Return what contradicts itself, in words; reads everything."""
    found = []
    for what, statement in _RULES:
        wrong = text(f"SELECT count(*), min(wrong.id) FROM ({statement}) AS wrong")  # noqa: S608 - our own
        number, example = conn.execute(wrong).one()
        if number:
            found.append(f"{number} {what}, such as {example}")
    return found
