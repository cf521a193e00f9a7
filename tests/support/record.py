"""What must be true of a mesh's record, whatever its processes went through."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from hopline.quota.v1 import usage_pb2
from hopline.relay.v1 import audit_pb2, message_pb2

from tests.support.mesh_process import Agent, MeshProcess, Space


def threads_have_no_gaps(mesh: MeshProcess) -> None:
    gaps = mesh.rows(
        "SELECT t.id, t.message_count, count(m.id), min(m.seq), max(m.seq) FROM threads t"
        " LEFT JOIN messages m ON m.thread_id = t.id GROUP BY t.id"
        " HAVING count(m.id) <> t.message_count OR min(m.seq) <> 1 OR max(m.seq) <> count(m.id)"
    )
    assert gaps == []
    ordinals = [row[0] for row in mesh.rows("SELECT ordinal FROM messages ORDER BY ordinal")]
    assert len(ordinals) == len(set(ordinals))
    events = mesh.rows("SELECT workspace_id, count(*), max(seq) FROM audit_events GROUP BY workspace_id")
    assert all(count == last for _, count, last in events)


async def log_is_as_it_was_sealed(space: Space) -> None:
    *_, found = [each async for each in space.admin.events.VerifyEvents(audit_pb2.VerifyEventsRequest())]
    assert found.done
    assert not found.HasField("fault"), found.fault
    assert found.checked > 0


async def thread_reads_as_it_is_stored(mesh: MeshProcess, space: Space) -> None:
    rows = mesh.rows("SELECT thread_id FROM messages GROUP BY thread_id ORDER BY count(*) DESC LIMIT 3")
    for (thread_id,) in rows:
        stored = mesh.rows("SELECT id, seq FROM messages WHERE thread_id = ? ORDER BY seq", thread_id)
        request = message_pb2.ListMessagesRequest(thread_id=thread_id)
        shown = (await space.admin.messages.ListMessages(request)).messages
        assert [(each.id, each.seq) for each in shown] == stored


async def charges_match_the_record(mesh: MeshProcess, space: Space, agent: Agent) -> None:
    usage = await space.usage(agent)
    today = str((usage.resets_at.ToDatetime() - timedelta(seconds=1)).date())
    [(sent,)] = mesh.rows("SELECT count(*) FROM messages WHERE from_id = ? AND day = ?", agent.id, today)
    [(received,)] = mesh.rows(
        "SELECT count(*) FROM deliveries d JOIN messages m ON m.id = d.message_id"
        " WHERE d.recipient_id = ? AND m.day = ? AND m.kind <> 'notice'",
        agent.id,
        today,
    )
    [(unread,)] = mesh.rows("SELECT count(*) FROM turns WHERE agent_id = ? AND state = 'queued'", agent.id)
    assert (usage.sent_today, usage.received_today, usage.inbox) == (sent, received, unread)
    if usage.HasField("credits"):
        credits_match_the_record(mesh, agent, usage)


def credits_match_the_record(mesh: MeshProcess, agent: Agent, usage: usage_pb2.GetUsageResponse) -> None:
    """What a workspace was charged is the price of each of its turns that has run or waits to."""
    [(workspace_id,)] = mesh.rows(
        "SELECT workspace_id FROM participants WHERE party_id = ? LIMIT 1", agent.id
    )
    [(cost,)] = mesh.rows(
        "SELECT coalesce(sum(price), 0) FROM turns"
        " WHERE workspace_id = ? AND (state = 'queued' OR attempt > 0)",
        workspace_id,
    )
    [(account,)] = mesh.rows("SELECT charged FROM credit_accounts WHERE workspace_id = ?", workspace_id)
    assert account == cost
    shown = usage.credits
    assert Decimal(shown.charged) == Decimal(cost).scaleb(-6)
    assert Decimal(shown.balance) == Decimal(shown.deposited) - Decimal(shown.charged)
