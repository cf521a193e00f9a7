"""No statement of the relay reads a whole table or a whole workspace: lists stay fast when they grow."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hopline.relay.v1 import audit_pb2, delegation_pb2, session_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline_relay import retention
from hopline_relay.store import children, closing, sql
from hopline_relay.store.forgetting import Bounds
from hopline_rpc.clock import to_timestamp
from sqlalchemy import event

from tests.support.relay_mesh import Caller, RelayMesh, Worker, attempt, start_child

# Read as a whole by design: one row, or only what waits right now, or at a start.
_SMALL = {"waits", "heads", "quota_epochs", "instances", "audit_sources", "attachments", "audit_cuts"} | {
    "plugin_revisions",
    "exchange_marks",
}


async def _everything(mesh: RelayMesh) -> None:
    """Call every method, and let every kind of end happen."""
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    zoe = await mesh.person("zoe")
    await mesh.grant("zoe", 2, "bob")
    worker = await mesh.worker(bob)
    asked = await ada.ask(bob, request_id="6f9619ff-8b86-d011-b42d-00c04fc964ff")
    turn = await worker.next()
    await worker.ask(turn, cid)
    sent = await worker.send(turn, ada, cid)
    await worker.renew(turn.held)
    await worker.end(turn, "yes")
    await ada.check(asked.turn_id)
    await ada.send(bob, thread_id=asked.thread_id)
    taken = await cid.take()
    await cid.reply(taken.messages[0].id)
    await cid.done(taken.messages[-1].id)
    await mesh.thread(sent.thread_id, ada)
    for caller in (ada, zoe, mesh.admin):
        await caller.messages.ListThreads(pb.ListThreadsRequest())
        listed = await caller.sessions.ListSessions(session_pb2.ListSessionsRequest())
        await caller.sessions.ReadSession(session_pb2.ReadSessionRequest(session_id=listed.sessions[0].id))
    await ada.sessions.GetContext(session_pb2.GetContextRequest())
    await _delegate(mesh, ada, bob, worker)
    await ada.turns.Cancel(delegation_pb2.CancelRequest(session_id=asked.session_id))
    for more in ({}, {"root_id": asked.turn_id}, {"session_id": asked.session_id}, {"agent": "bob"}):
        request = delegation_pb2.ListTurnsRequest(**more)  # type: ignore[arg-type]
        await zoe.turns.ListTurns(request)
    for caller in (zoe, mesh.admin):
        for span in (audit_pb2.ListEventsRequest(action="turn."), audit_pb2.ListEventsRequest(agent="bob")):
            getattr(span, "from").CopyFrom(to_timestamp(mesh.clock.now() - 1))
            span.thread_id = asked.thread_id
            await caller.audit.ListEvents(span)
        recent = pb.ListThreadsRequest(ascending=True)
        getattr(recent, "from").CopyFrom(to_timestamp(mesh.clock.now() - 1))
        await caller.messages.ListThreads(recent)
    async for _ in mesh.admin.audit.VerifyEvents(audit_pb2.VerifyEventsRequest()):
        pass
    await mesh.admin.messages.PeekInbox(pb.PeekInboxRequest(agent="bob"))
    await mesh.passes(31)
    await mesh.relay.sweep.deadlocks()
    await mesh.relay.sweep.forget()
    await mesh.pause(bob)
    await mesh.delete(cid)
    await mesh.relay.sealer.seal(mesh.workspace_id)
    await mesh.relay.retention.sweep(mesh.workspace_id)


async def _delegate(mesh: RelayMesh, lead: Caller, sub: Caller, worker: Worker) -> None:
    """Start children, speak and report, and close what was started."""
    child = await start_child(lead, sub)
    await worker.claim()
    for caller in (sub, lead):
        report = delegation_pb2.ReportToCallerRequest(text="so", caller_session_id=child.session_id)
        await attempt(caller.turns.ReportToCaller(report))
    await attempt(sub.turns.ReportToCaller(delegation_pb2.ReportToCallerRequest(text="so")))
    said = delegation_pb2.SendMessageToSessionRequest(session_id=child.session_id, text="and?")
    await lead.turns.SendMessageToSession(said)
    await lead.turns.MessageAgent(delegation_pb2.MessageAgentRequest(agent=sub.id, text="hello"))
    from_end = session_pb2.ReadSessionRequest(session_id=child.session_id, from_end=True)
    await mesh.admin.sessions.ReadSession(from_end)
    for narrow in ({"children_only": True}, {"opened_by_session_id": child.session_id}, {"channel": "relay"}):
        for caller in (lead, mesh.admin):
            await caller.sessions.ListSessions(session_pb2.ListSessionsRequest(**narrow))
    await mesh.relay.journal.read(lambda connection: children.owing(connection, mesh.workspace_id, "x"))
    await mesh.relay.journal.read(lambda connection: closing.left_over(connection, mesh.workspace_id))
    await lead.turns.CloseSubagent(delegation_pb2.CloseSubagentRequest(session_id=child.session_id))


@pytest.mark.sqlite_only("asks SQLite for its plans")
async def test_every_statement_goes_through_an_index(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str] = set()
    engine = mesh.relay.journal.database.engine
    plain = sql.driver

    def remember(conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        seen.add(statement)

    def driver(connection: Any, statement: str) -> Any:
        seen.add(statement)
        return plain(connection, statement)

    monkeypatch.setattr(sql, "driver", driver)
    soon = mesh.clock.now() + 3600
    monkeypatch.setattr(retention, "bounds_of", lambda *_: Bounds(mesh.workspace_id, soon, soon))
    event.listen(engine, "before_cursor_execute", remember)
    try:
        await _everything(mesh)
    finally:
        event.remove(engine, "before_cursor_execute", remember)
    # Lists differ in length alone; what is compared in one go is no list.
    looked = {re.sub(r"(?<=IN \()\?(, \?)+", "?, ?", one) for one in seen}
    looked = {one for one in looked if one.startswith(("SELECT", "UPDATE", "DELETE"))}
    assert len(looked) > 60
    bad = []
    with engine.connect() as connection:
        for statement in sorted(looked):
            values = tuple(["x"] * statement.count("?"))
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
            bad += [f"{row[3]}: {statement}" for row in rows if _reads_too_much(row[3])]
    assert not bad, "\n".join(bad)


def _reads_too_much(step: str) -> bool:
    """Tell whether a step of a plan grows with the table, or with the workspace."""
    table = step.split(" ")[1] if step.startswith(("SCAN", "SEARCH")) else ""
    if not table or table in _SMALL or "CONSTANT ROW" in step:
        return False
    return step.startswith("SCAN") or step.endswith("(workspace_id=?)")
