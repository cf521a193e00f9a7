"""Retention: what is old and ended goes, what may still matter stays, and the log stays provable."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hopline.relay.v1 import audit_pb2, session_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline_relay import retention, sealing
from hopline_relay.store import forgetting, seals
from hopline_rpc.errors import HoplineError

from tests.support.left import at_work
from tests.support.relay_mesh import RelayMesh, attempt, refusal, start_child

pytestmark = pytest.mark.both_stores

DAY = 86_400.0


async def _sweep(mesh: RelayMesh) -> None:
    """Sweep, with the pauses between its transactions."""
    sweeping = asyncio.ensure_future(mesh.relay.retention.sweep(mesh.workspace_id))
    while not sweeping.done():
        await mesh.clock.advance(0.1)
        await asyncio.sleep(0)
    await sweeping


async def _count(mesh: RelayMesh, table: str) -> int:
    def count(connection: Any) -> int:
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar())

    return await mesh.relay.journal.read(count)


async def _exchange(mesh: RelayMesh) -> tuple[pb.TurnView, Any, Any]:
    """Have one agent ask another, which answers."""
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    asked = await ada.ask(bob)
    await worker.end(await worker.next(), "yes")
    assert (await ada.check(asked.turn_id)).reply == "yes"
    return asked, ada, bob


async def _verified(mesh: RelayMesh) -> audit_pb2.VerifyEventsResponse:
    *_, last = [each async for each in mesh.admin.audit.VerifyEvents(audit_pb2.VerifyEventsRequest())]
    found: audit_pb2.VerifyEventsResponse = last
    return found


async def _threads(mesh: RelayMesh) -> list[str]:
    return [each.id for each in (await mesh.admin.messages.ListThreads(pb.ListThreadsRequest())).threads]


async def test_without_a_limit_everything_is_kept_for_ever(mesh: RelayMesh) -> None:
    asked, ada, _ = await _exchange(mesh)
    await mesh.skip(400 * DAY)
    await _sweep(mesh)
    assert len(await mesh.thread(asked.thread_id, ada)) == 2
    assert await mesh.events("retention.") == []


async def test_a_thread_goes_whole_once_its_newest_message_is_older_than_the_limit(mesh: RelayMesh) -> None:
    await mesh.policy(retention_days=10)
    asked, ada, bob = await _exchange(mesh)
    await mesh.skip(10 * DAY - 60)
    await _sweep(mesh)
    assert await _threads(mesh) == [asked.thread_id]
    await mesh.skip(120)
    await _sweep(mesh)
    assert await _threads(mesh) == []
    assert (await refusal(mesh.thread(asked.thread_id))).reason == "not_found"
    assert (await refusal(ada.check(asked.turn_id))).reason == "not_found"
    for table in ("threads", "messages", "deliveries", "participants", "turns", "debts"):
        assert await _count(mesh, table) == 0, table
    [swept] = await mesh.events("retention.swept")
    assert (swept.details["threads"], swept.details["messages"]) == (1, 2)
    again = await ada.ask(bob)
    assert again.thread_id in await _threads(mesh)


async def test_a_thread_is_kept_whole_as_long_as_one_of_its_messages_is_young(mesh: RelayMesh) -> None:
    await mesh.policy(retention_days=10)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    sent = await ada.send(bob)
    await worker.end(await worker.next(), "")
    await mesh.skip(9 * DAY)
    await ada.send(bob, thread_id=sent.thread_id)
    await worker.end(await worker.next(), "")
    await mesh.skip(9 * DAY)
    await _sweep(mesh)
    assert len(await mesh.thread(sent.thread_id)) == 2


async def test_what_is_queued_running_or_owed_is_kept_however_old(mesh: RelayMesh) -> None:
    await mesh.policy(retention_days=2, queue_seconds=2_592_000, turn_seconds=604_800)
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    queued, owed = await ada.send(cid), await ada.ask(bob)
    worker = await mesh.worker(bob)
    turn = await worker.next()
    for _ in range(6):
        mesh.clock.skip(0.5 * DAY)
        await mesh.relay.turns.renew(mesh.workspace_id, bob.id, [turn.held], worker.epoch)
    await _sweep(mesh)
    assert set(await _threads(mesh)) == {queued.thread_id, owed.thread_id}
    assert [each.id for each in (await cid.take()).messages] == [queued.message_id]


async def test_one_day_keeps_two_so_that_counters_can_be_rebuilt(mesh: RelayMesh) -> None:
    await mesh.policy(retention_days=1)
    await _exchange(mesh)
    await mesh.skip(1.5 * DAY)
    await _sweep(mesh)
    assert len(await _threads(mesh)) == 1
    await mesh.skip(DAY)
    await _sweep(mesh)
    assert await _threads(mesh) == []


@pytest.mark.parametrize("pairs", ["5/300000s", "5/300s"])
async def test_a_longer_window_of_a_pair_budget_keeps_what_it_counts(mesh: RelayMesh, pairs: str) -> None:
    await mesh.policy(retention_days=2, pair_budget=pairs)
    await _exchange(mesh)
    await mesh.skip(3 * DAY)
    await _sweep(mesh)
    assert bool(await _threads(mesh)) == (pairs == "5/300000s")


async def test_counters_rebuilt_after_a_sweep_are_what_they_were(mesh: RelayMesh) -> None:
    await mesh.policy(retention_days=2)
    asked, ada, bob = await _exchange(mesh)
    await mesh.skip(4 * DAY)
    await ada.send(bob)
    before = await mesh.usage(ada)
    await _sweep(mesh)
    assert asked.thread_id not in await _threads(mesh)
    await mesh.forget_counters(1000)
    await bob.take()
    after = await mesh.usage(ada)
    assert (after.sent_today, after.inbox) == (before.sent_today, before.inbox)


async def test_sessions_between_agents_stay_and_others_go_with_their_last_message(mesh: RelayMesh) -> None:
    await mesh.policy(retention_days=2)
    asked, ada, bob = await _exchange(mesh)
    request = session_pb2.PromptRequest(agent="bob", text="do it", wait_seconds=0)
    prompted = (await mesh.admin.sessions.Prompt(request)).turn
    worker = await mesh.worker(bob)
    await worker.end(await worker.next(), "done")
    await mesh.skip(3 * DAY)
    await _sweep(mesh)
    assert (await bob.sessions.GetSession(session_pb2.GetSessionRequest(session_id=asked.session_id))).session
    gone = session_pb2.GetSessionRequest(session_id=prompted.session_id)
    assert (await refusal(bob.sessions.GetSession(gone))).reason == "not_found"
    assert (await ada.ask(bob)).session_id == asked.session_id


async def test_a_backlog_goes_in_bounded_parts_past_a_thread_from_the_future(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "THREADS", 3)
    monkeypatch.setattr(forgetting, "MESSAGES", 4)
    monkeypatch.setattr(forgetting, "ROWS", 2)
    await mesh.policy(retention_days=2, pair_budget="0")
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    mesh.clock.set_wall(30 * DAY)
    ahead = await ada.send(bob)
    mesh.clock.set_wall(-30 * DAY)
    for _ in range(10):
        await ada.ask(bob)
    for turn in await worker.claim(20):
        await worker.end(turn, "yes")
    while turns := await worker.claim(20):
        for turn in turns:
            await worker.end(turn, "yes")
    for answer in (await ada.take()).messages:
        await ada.done(answer.id)
    await mesh.skip(3 * DAY)
    await _sweep(mesh)
    assert await _threads(mesh) == [ahead.thread_id]
    assert await _count(mesh, "turns") == 1


async def test_the_log_is_shortened_says_so_and_is_proven_from_there_on(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "BATCH", 4)
    monkeypatch.setattr(retention, "_EVENTS", 3)
    await mesh.policy(retention_days=3)
    await _exchange(mesh)
    await mesh.relay.sealer.seal(mesh.workspace_id)
    before = await _verified(mesh)
    for _ in range(2):
        await mesh.skip(4 * DAY)
        await _sweep(mesh)
        await mesh.relay.sealer.seal(mesh.workspace_id)
    found = await _verified(mesh)
    assert not found.HasField("fault"), found.fault
    events = await mesh.events()
    assert events[0].seq == found.cut.seq + 1 > 1
    cut = (await mesh.events("audit.cut"))[-1]
    assert (cut.details["through"], cut.details["hash"]) == (found.cut.seq, found.cut.hash)
    assert await _count(mesh, "audit_events") == len(events)
    request = audit_pb2.VerifyEventsRequest(kept=audit_pb2.ChainHead(seq=2, hash=before.head.hash))
    error = await refusal(anext(aiter(mesh.admin.audit.VerifyEvents(request))))
    assert error.reason == "failed_precondition"
    assert "deleted by retention" in error.message


@pytest.mark.parametrize(
    ("tampered", "kind"),
    [
        ("UPDATE audit_cuts SET link = (SELECT max(links) FROM audit_seals)", "changed"),
        ("UPDATE audit_cuts SET seq = seq + 4, link = (SELECT link FROM audit_seals WHERE first_seq ="
         " (SELECT seq + 1 FROM audit_cuts))", "cut"),
        ("DELETE FROM audit_cuts", "seal"),
    ],
)  # fmt: skip
async def test_a_beginning_of_the_log_that_was_made_up_is_found(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch, tampered: str, kind: str
) -> None:
    monkeypatch.setattr(sealing, "BATCH", 4)
    await mesh.policy(retention_days=3)
    await _exchange(mesh)
    await mesh.relay.sealer.seal(mesh.workspace_id)
    await mesh.skip(4 * DAY)
    for name in ("cid", "dan"):
        await mesh.agent(name)
    await mesh.relay.sealer.seal(mesh.workspace_id)
    await _sweep(mesh)
    await mesh.relay.sealer.seal(mesh.workspace_id)
    assert not (await _verified(mesh)).HasField("fault")
    await mesh.relay.journal.database.writer.run(lambda connection: connection.exec_driver_sql(tampered))
    assert (await _verified(mesh)).fault.kind == kind


async def test_the_sweep_runs_by_itself_a_minute_after_a_start(mesh: RelayMesh) -> None:
    await mesh.policy(retention_days=2)
    await _exchange(mesh)
    await mesh.skip(3 * DAY)
    for _ in range(3000):
        await mesh.clock.advance(1)
        if not await _threads(mesh):
            break
    assert await _threads(mesh) == []


async def test_what_was_cut_is_in_no_list_before_it_is_deleted(mesh: RelayMesh) -> None:
    await _exchange(mesh)
    await mesh.relay.sealer.seal(mesh.workspace_id)

    def op(book: Any) -> int:
        head = seals.old_head(book.connection, mesh.workspace_id, mesh.clock.now() + 1)
        assert head is not None
        seals.cut_at(book, mesh.workspace_id, head)
        return head.seq

    cut = await mesh.relay.journal.write(op)
    for descending in (False, True):
        assert all(event.seq > cut for event in await mesh.events(descending=descending))


async def test_todos_that_have_ended_go_and_what_is_open_or_still_to_come_keeps_its_session(
    mesh: RelayMesh,
) -> None:
    await mesh.policy(retention_days=10)
    desks = [await at_work(mesh, name) for name in ("ada", "bob", "cid")]
    noting, waking, done = desks
    await noting.note("read")
    await waking.set(100 * int(DAY))
    (todo,) = await done.note("write")
    await done.complete(todo)
    for desk in desks:
        await desk.end()
        while (turn := await desk.woken()) is not None:
            await desk.end(turn)
    await mesh.skip(11 * DAY)
    await _sweep(mesh)
    left = [await _there(mesh, desk.session) for desk in desks]
    assert left == [True, True, False]
    assert (await _count(mesh, "todos"), await _count(mesh, "timers")) == (1, 1)
    (swept,) = await mesh.events("retention.swept")
    assert swept.details["todos"] == 1


async def _there(mesh: RelayMesh, session_id: str) -> bool:
    request = session_pb2.GetSessionRequest(session_id=session_id)
    found = await attempt(mesh.admin.sessions.GetSession(request))
    return not isinstance(found, HoplineError)


async def test_the_session_of_a_child_goes_with_what_says_whose_child_it_was(mesh: RelayMesh) -> None:
    await mesh.policy(retention_days=10)
    lead, sub = await mesh.agent("lead"), await mesh.agent("sub")
    await start_child(lead, sub)
    theirs = await mesh.worker(sub)
    await theirs.end(await theirs.next(), "done")
    for message in (await lead.take()).messages:
        await lead.done(message.id)
    assert await _count(mesh, "children") == 1
    await mesh.skip(20 * DAY)
    await _sweep(mesh)
    assert (await _count(mesh, "children"), await _count(mesh, "messages")) == (0, 0)
