"""What the relay says of itself to a scrape: counted as it happens, or read within bounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hopline_relay.store import measured
from hopline_rpc.metrics import KEPT_SECONDS, Buckets, Family

from tests.support.relay_mesh import RelayMesh, attempt, until

pytestmark = pytest.mark.both_stores


def values(families: Any) -> dict[str, Any]:
    """Return values by name, or by name and the label's value."""
    found: dict[str, Any] = {}
    for family in families:
        each: Family = family
        for point in each.points:
            value = point.value.count if isinstance(point.value, Buckets) else point.value
            found["/".join((each.name, *point.labels.values()))] = value
    return found


async def test_unread_messages_are_counted_with_the_age_of_the_oldest(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    await ada.send(bob)
    await mesh.skip(100)
    await ada.send(bob, cid)
    found = values(await mesh.relay.measure())
    assert (found["hopline.inbox.depth"], found["hopline.inbox.deepest"]) == (3, 2)
    assert found["hopline.inbox.oldest.age"] == pytest.approx(100, abs=2)
    await bob.take()
    await mesh.skip(10)
    found = values(await mesh.relay.measure())
    assert (found["hopline.inbox.depth"], found["hopline.inbox.deepest"]) == (1, 1)
    assert found["hopline.inbox.oldest.age"] == pytest.approx(10, abs=2)


async def test_turns_count_by_how_they_ended_and_waits_until_they_began(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    for answer, failure in (("yes", None), (None, "no")):
        await ada.ask(bob)
        await mesh.skip(7)
        worker = await mesh.worker(bob)
        await worker.end(await worker.next(), answer, failure)
    found = values(await mesh.relay.measure())
    assert found["messaging.process.duration/hopline/process/completed"] == 1
    assert sum(count for name, count in found.items() if name.startswith("messaging.process")) == 2
    assert found["hopline.run_queue.wait"] == 2
    assert mesh.relay.journal.meters.queue_waits.total == pytest.approx(14, abs=2)
    assert found["hopline.answers.late"] == 1  # the other did not answer


async def test_an_answer_that_a_call_waits_for_is_not_late(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob)
    worker = await mesh.worker(bob)
    turn = await worker.next()
    waiting = asyncio.create_task(ada.check(asked.turn_id, wait=30))
    await until(lambda: mesh.relay.waits.count() or None, "the call that waits")
    await worker.end(turn, "yes")
    await waiting
    assert values(await mesh.relay.measure())["hopline.answers.late"] == 0


async def test_refusals_and_duplicates_count_by_reason(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    key = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
    for _ in range(3):
        await ada.send(bob, request_id=key)
    for _ in range(2):
        await attempt(ada.send("nobody"))
    found = values(await mesh.relay.measure())
    assert found["hopline.duplicates/request"] == 2
    assert found["hopline.refusals/not_found"] == 2
    assert found["hopline.message.depth"] == 1


async def test_a_scrape_reads_the_record_once_in_a_while(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reads = mesh.relay.journal.read, 0

    async def counted(fn: Any) -> Any:
        nonlocal reads
        reads += fn is measured.standing
        return await read(fn)

    monkeypatch.setattr(mesh.relay.journal, "read", counted)
    for _ in range(10):
        await mesh.relay.measure()
    assert reads == 1
    await mesh.skip(KEPT_SECONDS)
    await mesh.relay.measure()
    assert reads == 2


@pytest.mark.sqlite_only("asks SQLite for its plans")
async def test_no_statement_of_a_scrape_reads_a_whole_table(mesh: RelayMesh) -> None:
    def plans(connection: Any) -> list[str]:
        found = []
        statements: list[Any] = [
            measured._INBOXES,
            measured._DEAD,
            measured._PENDING,
            measured._EXHAUSTED,
            measured._WAKES,
        ]
        for statement in statements:
            compiled = statement._statement.compile(
                dialect=connection.dialect, compile_kwargs={"literal_binds": True}
            )
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}").fetchall()
            found += [row[3] for row in rows]
        return found

    scans = [line for line in await mesh.relay.journal.read(plans) if line.startswith("SCAN")]
    tables = ("turns", "deliveries", "escalations", "roots", "posts")
    assert not [line for line in scans if line.split()[1] in tables and " INDEX " not in line], scans
