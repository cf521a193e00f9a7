"""The chain over the audit log: whatever is done to rows that were sealed is found, and named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hopline.relay.v1 import audit_pb2 as pb
from hopline_relay import sealing, verifying
from hopline_relay.domain.chain import COLUMNS
from hopline_relay.store import seals

from tests.support.relay_mesh import Caller, RelayMesh, refusal

pytestmark = pytest.mark.both_stores


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short log goes over the borders of seals and pages."""
    monkeypatch.setattr(sealing, "BATCH", 4)
    monkeypatch.setattr(verifying, "_PAGE", 3)


async def _log(mesh: RelayMesh, sends: int = 12) -> int:
    """Fill the log and have it sealed; returns the number of its last event."""
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    for _ in range(sends):
        await ada.send(bob)
    await mesh.relay.sealer.seal(mesh.workspace_id)
    return (await mesh.events())[-1].seq


async def _verify(mesh: RelayMesh, caller: Caller | None = None, **kept: Any) -> pb.VerifyEventsResponse:
    after = kept.pop("after_kept", False)
    request = pb.VerifyEventsRequest(kept=pb.ChainHead(**kept), after_kept=after)
    responses: list[pb.VerifyEventsResponse] = [
        each async for each in (caller or mesh.admin).audit.VerifyEvents(request)
    ]
    assert [each.done for each in responses] == [False] * (len(responses) - 1) + [True]
    return responses[-1]


async def _sql(mesh: RelayMesh, *statements: str) -> None:
    """Change the record past the relay."""

    def op(connection: Any) -> None:
        for statement in statements:
            assert connection.exec_driver_sql(statement).rowcount >= 1, statement

    await mesh.relay.journal.database.writer.run(op)


async def test_a_log_that_nobody_touched_is_proven_to_its_last_event(mesh: RelayMesh) -> None:
    last = await _log(mesh)
    found = await _verify(mesh)
    assert not found.HasField("fault")
    assert (found.checked, found.head.seq, found.unsealed) == (last, last, 0)
    assert len(found.head.hash) == 64


async def test_events_are_sealed_a_moment_after_they_were_committed(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)

    def tail(connection: Any) -> int:
        return seals.tail(connection, mesh.workspace_id).seq

    last = (await mesh.events())[-1].seq
    for _ in range(2000):  # it is written on threads of its own
        await mesh.clock.advance(0.1)
        if (sealed := await mesh.relay.journal.read(tail)) == last:
            break
    assert sealed == last


async def test_what_a_process_left_unsealed_is_sealed_after_the_next_start(mesh: RelayMesh) -> None:
    last = await _log(mesh)
    before = await _verify(mesh)
    await _sql(mesh, "DELETE FROM audit_seals")
    await mesh.reopen()
    await mesh.clock.advance(3)
    found = await _verify(mesh, seq=before.head.seq, hash=before.head.hash)
    assert not found.HasField("fault")
    assert found.checked >= last


@pytest.mark.parametrize("column", [name for name in COLUMNS if name != "seq"])
async def test_a_change_of_any_column_is_found_and_named(mesh: RelayMesh, column: str) -> None:
    last = await _log(mesh)
    value = "at + 0.000001" if column == "at" else f"{column} || ' '"
    await _sql(mesh, f"UPDATE audit_events SET {column} = {value} WHERE seq = {last - 5}")
    fault = (await _verify(mesh)).fault
    assert (fault.seq, fault.kind) == (last - 5, "changed")


def _swap(low: int, high: int) -> list[str]:
    return [
        f"UPDATE audit_events SET seq = -1 WHERE seq = {low}",
        f"UPDATE audit_events SET seq = {low} WHERE seq = {high}",
        f"UPDATE audit_events SET seq = {high} WHERE seq = -1",
    ]


def _copy(seq: str, *, of: int) -> str:
    columns = ", ".join(name for name in COLUMNS if name != "seq")
    return (
        f"INSERT INTO audit_events (workspace_id, seq, {columns})"
        f" SELECT workspace_id, {seq}, {columns} FROM audit_events WHERE seq = {of}"
    )


def _move_up(after: int, last: int) -> list[str]:
    return [f"UPDATE audit_events SET seq = {seq + 1} WHERE seq = {seq}" for seq in range(last, after, -1)]


def _move_down(after: int, last: int) -> list[str]:
    return [
        f"UPDATE audit_events SET seq = {seq - 1} WHERE seq = {seq}" for seq in range(after + 1, last + 1)
    ]


_ANOTHER = "(SELECT link FROM audit_seals WHERE first_seq = 1)"

TAMPERED: dict[str, tuple[Callable[[int], list[str]], Callable[[int], tuple[int, str]]]] = {
    "the first is deleted": (
        lambda last: ["DELETE FROM audit_events WHERE seq = 1"],
        lambda last: (1, "removed"),
    ),
    "one in the middle is deleted": (
        lambda last: ["DELETE FROM audit_events WHERE seq = 7"],
        lambda last: (7, "removed"),
    ),
    "one in the middle is deleted and the later ones move up": (
        lambda last: ["DELETE FROM audit_events WHERE seq = 7", *_move_down(7, last)],
        lambda last: (7, "changed"),
    ),
    "the newest are deleted": (
        lambda last: [f"DELETE FROM audit_events WHERE seq > {last - 3}"],
        lambda last: (last - 2, "removed"),
    ),
    "the newest are deleted with their seals": (
        lambda last: [
            "DELETE FROM audit_seals WHERE first_seq > 4",
            "DELETE FROM audit_events WHERE seq > 6",
        ],
        lambda last: (7, "removed"),
    ),
    "all are deleted": (
        lambda last: ["DELETE FROM audit_events"],
        lambda last: (1, "removed"),
    ),
    "two change places": (lambda last: _swap(6, 9), lambda last: (6, "changed")),
    "neighbours change places": (lambda last: _swap(8, 9), lambda last: (8, "changed")),
    "one is inserted, the later ones move down": (
        lambda last: [*_move_up(6, last), _copy("7", of=3)],
        lambda last: (7, "changed"),
    ),
    "one is inserted before the first": (
        lambda last: [_copy("0", of=3)],
        lambda last: (0, "inserted"),
    ),
    "one is inserted behind the last": (
        lambda last: [_copy(str(last + 1), of=3)],
        lambda last: (last + 1, "inserted"),
    ),
    "a seal is deleted": (
        lambda last: ["DELETE FROM audit_seals WHERE first_seq = 5"],
        lambda last: (5, "seal"),
    ),
    "the last link of a seal is changed": (
        lambda last: [f"UPDATE audit_seals SET link = {_ANOTHER} WHERE first_seq = 5"],
        lambda last: (8, "seal"),
    ),
    "the links of a seal are changed": (
        lambda last: [f"UPDATE audit_seals SET links = {_ANOTHER} WHERE first_seq = 5"],
        lambda last: (5, "changed"),
    ),
    "a deletion by retention is made up": (
        lambda last: [
            "INSERT INTO audit_cuts SELECT workspace_id, last_seq, link, 0 FROM audit_seals"
            " WHERE first_seq = 1",
            "DELETE FROM audit_events WHERE seq <= 4",
            "DELETE FROM audit_seals WHERE first_seq = 1",
        ],
        lambda last: (4, "cut"),
    ),
}


@pytest.mark.parametrize("how", TAMPERED)
async def test_whatever_is_done_to_sealed_rows_is_found_and_named(mesh: RelayMesh, how: str) -> None:
    last = await _log(mesh)
    statements, expected = TAMPERED[how]
    await _sql(mesh, *statements(last))
    fault = (await _verify(mesh)).fault
    assert (fault.seq, fault.kind) == expected(last)
    assert str(fault.seq) in fault.message


@pytest.mark.sqlite_only("PostgreSQL knows no number between two")
async def test_a_row_inserted_between_two_is_found_and_named(mesh: RelayMesh) -> None:
    await _log(mesh)
    await _sql(mesh, _copy("6.5", of=3))
    fault = (await _verify(mesh)).fault
    assert (fault.seq, fault.kind) == (7, "inserted")
    assert str(fault.seq) in fault.message


async def test_a_log_rewritten_with_its_seals_does_not_pass_a_head_that_was_kept(mesh: RelayMesh) -> None:
    await _log(mesh)
    kept = (await _verify(mesh)).head
    await _sql(
        mesh,
        "UPDATE audit_events SET actor_name = 'somebody else' WHERE seq = 6",
        "DELETE FROM audit_seals",
    )
    await mesh.relay.sealer.seal(mesh.workspace_id)
    assert not (await _verify(mesh)).HasField("fault")
    for after_kept in (False, True):
        fault = (await _verify(mesh, seq=kept.seq, hash=kept.hash, after_kept=after_kept)).fault
        assert (fault.seq, fault.kind) == (kept.seq, "kept")


async def test_a_log_that_ends_before_a_kept_head_has_lost_events(mesh: RelayMesh) -> None:
    last = await _log(mesh)
    kept = (await _verify(mesh)).head
    await _sql(
        mesh,
        "DELETE FROM audit_seals WHERE first_seq > 4",
        "DELETE FROM audit_events WHERE seq > 4",
        "UPDATE heads SET audit_seq = 4",
    )
    assert not (await _verify(mesh)).HasField("fault")
    fault = (await _verify(mesh, seq=kept.seq, hash=kept.hash)).fault
    assert (fault.seq, fault.kind) == (5, "removed")
    assert str(last) in fault.message


async def test_behind_a_kept_head_only_what_came_since_is_read(mesh: RelayMesh) -> None:
    await _log(mesh)
    kept = (await _verify(mesh)).head
    await _sql(mesh, "UPDATE audit_events SET actor_name = 'x' WHERE seq = 2")
    ada = await mesh.agent("eve")
    await ada.send("bob")
    found = await _verify(mesh, seq=kept.seq, hash=kept.hash, after_kept=True)
    assert not found.HasField("fault")
    assert found.checked == found.head.seq - kept.seq > 0


async def test_the_proof_is_for_admins_and_each_workspace_has_a_chain_of_its_own(mesh: RelayMesh) -> None:
    await _log(mesh)
    await mesh.foreign_agent("far")
    zoe = await mesh.person("zoe", 2)
    assert (await refusal(_verify(mesh, zoe))).reason == "permission_denied"
    other = Caller(mesh, "", mesh.admin.token, "other")
    ours, theirs = await _verify(mesh), await _verify(mesh, other)
    assert theirs.checked > 0
    assert ours.head.hash != theirs.head.hash


async def test_a_head_needs_its_number_and_its_hash(mesh: RelayMesh) -> None:
    for kept in ({"seq": 3}, {"hash": "0" * 64}, {"after_kept": True}, {"seq": 1, "hash": "zz"}):
        assert (await refusal(_verify(mesh, **kept))).reason == "invalid_argument"


async def test_a_refusal_that_is_still_counted_waits_for_its_seal(mesh: RelayMesh) -> None:
    last = await _log(mesh)
    ada = await mesh.agent("eve")
    await refusal(ada.send("nobody"))
    await mesh.relay.refusals.drained()
    found = await _verify(mesh)
    refused = (await mesh.events("message.refused"))[-1].seq
    assert last < found.head.seq == refused - 1
    assert found.unsealed >= 1
    await mesh.clock.advance(30)
    await refusal(ada.send("nobody"))
    await mesh.relay.refusals.drained()
    await mesh.clock.advance(seals.COUNTED_SECONDS + 2)
    found = await _verify(mesh)
    assert not found.HasField("fault")
    assert found.head.seq >= refused
    [event] = await mesh.events("message.refused")
    assert event.details["count"] == 2


async def test_a_refusal_that_was_sealed_too_early_is_counted_on_in_another_row(mesh: RelayMesh) -> None:
    ada = await mesh.agent("eve")
    await refusal(ada.send("nobody"))
    await mesh.relay.refusals.drained()
    mesh.clock.set_wall(-1000)
    await mesh.relay.sealer.seal(mesh.workspace_id)
    for _ in range(3):
        await refusal(ada.send("nobody"))
        await mesh.relay.refusals.drained()
    assert [event.details["count"] for event in await mesh.events("message.refused")] == [1, 3]
    assert not (await _verify(mesh)).HasField("fault")


async def test_a_process_that_was_fenced_seals_nothing(mesh: RelayMesh) -> None:
    last = await _log(mesh)
    await _sql(mesh, "DELETE FROM audit_seals", "UPDATE instances SET ended_at = 1 WHERE ended_at IS NULL")
    await mesh.relay.sealer.seal(mesh.workspace_id)
    found = await _verify(mesh)
    assert (found.checked, found.unsealed) == (0, last)


async def test_sealing_twice_at_once_seals_once(mesh: RelayMesh) -> None:
    await _log(mesh)
    await _sql(mesh, "DELETE FROM audit_seals")
    other = sealing.Sealer(mesh.relay.journal, mesh.clock)
    await asyncio.gather(*(each.seal(mesh.workspace_id) for each in (mesh.relay.sealer, other) * 3))
    found = await _verify(mesh)
    assert not found.HasField("fault")
    assert found.unsealed == 0


async def test_events_written_while_the_log_is_verified_are_no_fault(mesh: RelayMesh) -> None:
    await _log(mesh)
    ada, bob = await mesh.agent("eve"), await mesh.agent("rob")
    checks = [asyncio.ensure_future(_verify(mesh)) for _ in range(3)]
    for _ in range(20):
        await ada.send(bob)
    for found in await asyncio.gather(*checks):
        assert not found.HasField("fault")
