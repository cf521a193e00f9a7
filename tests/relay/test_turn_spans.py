"""A chain of delegations is one trace: each turn's span hangs under the send that caused it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hopline_rpc import telemetry
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.support.relay_mesh import RelayMesh
from tests.support.tool_worker import calling, worker_of

ROOT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID = ROOT[3:35]


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    active = telemetry.setup("tests", exporter, batch=False)
    assert active is not None
    yield exporter
    active.shutdown()


def _turns(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name.startswith("invoke_agent")]


def _attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def _hex(span: ReadableSpan) -> tuple[str, str]:
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


async def test_a_chain_of_asks_is_one_trace(mesh: RelayMesh, spans: InMemorySpanExporter) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    bobs, cids = await mesh.worker(bob), await mesh.worker(cid)
    with telemetry.under(ROOT):
        view = await ada.ask(bob)
    first = await bobs.next()
    with telemetry.under(first.traceparent):
        await bobs.ask(first, cid)
    second = await cids.next()
    await cids.end(second, "deep")
    await mesh.clock.advance(2)
    await bobs.end(first, failure="tired")
    inner, outer = _turns(spans)
    assert {_hex(span)[0] for span in (inner, outer)} == {TRACE_ID}
    assert first.traceparent == f"00-{TRACE_ID}-{_hex(outer)[1]}-01"
    # bob's ask came from within its turn: cid's turn hangs under it.
    assert inner.parent is not None
    assert f"{inner.parent.span_id:016x}" == _hex(outer)[1]
    found = _attributes(outer)
    assert found["gen_ai.operation.name"] == "invoke_agent"
    assert found["gen_ai.agent.name"] == "bob"
    assert (found["hopline.turn.id"], found["hopline.depth"]) == (view.turn_id, 1)
    assert (found["hopline.turn.outcome"], found["error.type"]) == ("failed", "turn_failed")
    assert (outer.end_time or 0) - (outer.start_time or 0) == 2_000_000_000
    assert (await mesh.events("turn.ended"))[0].trace_id == TRACE_ID


async def test_a_turn_that_outlives_a_restart_is_one_whole_span(
    mesh: RelayMesh, spans: InMemorySpanExporter
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    with telemetry.under(ROOT):
        await ada.ask(bob)
    turn = await worker.next()
    started = mesh.clock.now()
    await mesh.reopen()
    await mesh.clock.advance(5)
    again = await mesh.worker(bob)
    await mesh.relay.turns.resume(mesh.workspace_id, bob.id, [turn.held], again.epoch)
    await again.end(turn, "done")
    (span,) = _turns(spans)
    assert _hex(span)[0] == TRACE_ID
    assert span.start_time == int(started * 1_000_000_000)
    assert (span.end_time or 0) - (span.start_time or 0) >= 5_000_000_000


async def test_the_answer_that_wakes_belongs_to_the_trace(
    mesh: RelayMesh, spans: InMemorySpanExporter
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    adas, bobs = await mesh.worker(ada), await mesh.worker(bob)
    with telemetry.under(ROOT):
        await ada.ask(bob)
    await bobs.end(await bobs.next(), "late")
    wake = await adas.next()
    await adas.end(wake, "")
    assert {_hex(span)[0] for span in _turns(spans)} == {TRACE_ID}
    assert [_attributes(span)["hopline.turn.cause"] for span in _turns(spans)] == ["ask", "answer"]


async def test_a_pulled_turn_has_its_span_too(mesh: RelayMesh, spans: InMemorySpanExporter) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    with telemetry.under(ROOT):
        sent = await ada.send(bob)
        other = await ada.send(bob)
    await bob.take()
    await bob.reply(sent.message_id)
    await bob.done(other.message_id)
    found = {_attributes(span)["hopline.message.id"] for span in _turns(spans)}
    assert found == {sent.message_id, other.message_id}


async def test_the_call_of_a_tool_is_a_span_of_its_own_kind(
    mesh: RelayMesh, spans: InMemorySpanExporter
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    with telemetry.under(ROOT):
        under_way = calling(ada, bob)
        call = await worker.call()
    await worker.answer(call, failure="it is dark")
    await under_way
    (found,) = [span for span in spans.get_finished_spans() if span.name == "execute_tool look"]
    assert call.traceparent == f"00-{TRACE_ID}-{_hex(found)[1]}-01"
    attributes = _attributes(found)
    assert attributes["gen_ai.operation.name"] == "execute_tool"
    assert (attributes["gen_ai.tool.name"], attributes["gen_ai.agent.name"]) == ("look", "bob")
    assert (attributes["hopline.turn.cause"], attributes["error.type"]) == ("tool", "tool_failed")
