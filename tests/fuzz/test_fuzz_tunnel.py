"""The tunnel: frames mutated, doubled, put in another order, cut off or far too large."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pytest
from hopline.relay.v1.message_pb2 import DoneRequest
from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline_rpc.errors import REASONS
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import verdicts
from tests.fuzz.budget import inputs
from tests.fuzz.ground import PATIENCE, Ground, unlike
from tests.fuzz.protos import encoded, messages

PATH = "/hopline.runtime.v1.TunnelService/Attach"
ITEM = pb.WorkerItem.DESCRIPTOR
# Its result says that all before it has been taken.
LAST_CALL = 2**63 + 5
LAST = pb.AttachRequest(
    items=[pb.WorkerItem(call=pb.Call(attachment=1, call_id=LAST_CALL, done=DoneRequest(message_id="msg_0")))]
)


@pytest.fixture(scope="module")
def channel(mesh: Ground) -> Iterator[grpc.Channel]:
    """A channel to the relay."""
    with grpc.insecure_channel(mesh.mesh.endpoints["relay"]) as found:
        yield found


def attach(mesh: Ground, number: int = 1) -> pb.WorkerItem:
    """Return what attaches the agent."""
    return pb.WorkerItem(
        attach=pb.AttachAgent(attachment=number, credential=mesh.agent.token, max_turns=2, worker="fuzz")
    )


def played(mesh: Ground, channel: grpc.Channel, frames: Sequence[bytes]) -> list[Any]:
    """Attach, send frames as a worker, and hang up when they are answered; returns what came, judged."""
    waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    waiting.put(pb.AttachRequest(items=[attach(mesh)]).SerializeToString())
    rpc: Any = channel.stream_stream(PATH, None, pb.AttachResponse.FromString)
    metadata = (("authorization", f"Bearer {mesh.agent.token}"),)
    asked = "".join(map(unlike, frames))
    items: list[Any] = []
    try:
        for response in rpc(iter(waiting.get, None), metadata=metadata, timeout=PATIENCE):
            for item in response.items:
                if item.HasField("attached") and not items:
                    for frame in (*frames, LAST.SerializeToString()):
                        waiting.put(frame)
                if item.HasField("call_result") and item.call_result.call_id == LAST_CALL:
                    waiting.put(None)
                items.append(item)
    except grpc.RpcError as error:
        verdicts.grpc_error(error, asked, bounded=True)
    finally:
        waiting.put(None)
    for item in items:
        judged(item, asked)
    return items


def judged(item: Any, asked: str) -> None:
    if item.HasField("detached") and item.detached.code:
        assert item.detached.code in REASONS
        assert item.detached.code != "internal"
        verdicts.no_inside(item.detached.message, asked)
    if item.HasField("call_result") and item.call_result.HasField("error"):
        assert item.call_result.error.code in REASONS
        assert item.call_result.error.code != "internal"
        verdicts.no_inside(str(item.call_result.error), asked)


@st.composite
def items(draw: st.DrawFn, mesh: Ground) -> pb.WorkerItem:
    """Draw one thing that a worker says, mostly of an attachment that there is."""
    kind = draw(st.sampled_from([each.name for each in ITEM.fields]))
    item = pb.WorkerItem()
    inner = getattr(item, kind)
    inner.SetInParent()
    described = ITEM.fields_by_name[kind].message_type
    assert described is not None
    inner.CopyFrom(draw(messages(described, mesh.known)))
    if hasattr(inner, "attachment") and draw(st.integers(0, 3)):
        inner.attachment = draw(st.integers(1, 2))
    if kind == "attach" and draw(st.booleans()):
        inner.credential = mesh.agent.token
    if kind == "call":
        _hurry(inner)
        if draw(st.integers(0, 3)):
            inner.turn_id = ""
    return item


def _hurry(call: Any) -> None:
    """Let a call wait for nothing: a wait that is left out is a long one."""
    method = call.WhichOneof("method")
    if method in {"ask", "check", "take_inbox"}:
        getattr(call, method).wait_seconds = 0


@inputs(35)
@given(data=st.data())
def test_items_in_any_order_are_answered_or_refused(
    mesh: Ground, channel: grpc.Channel, data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(items(mesh), max_size=6))
    said = data.draw(st.permutations([attach(mesh, 2), *drawn, *drawn[:2]]))
    frames = []
    while said:
        size = data.draw(st.integers(1, 4))
        frames.append(pb.AttachRequest(items=said[:size]).SerializeToString())
        said = said[size:]
    played(mesh, channel, frames)
    mesh.unharmed()


@inputs(20)
@given(data=st.data())
def test_damaged_frames_are_refused_without_harm(
    mesh: Ground, channel: grpc.Channel, data: st.DataObject
) -> None:
    frames = data.draw(st.lists(encoded(pb.AttachRequest.DESCRIPTOR, mesh.known), max_size=4))
    played(mesh, channel, frames)
    mesh.unharmed()


def test_frames_with_huge_counts_are_refused_by_name(mesh: Ground, channel: grpc.Channel) -> None:
    many = pb.AttachRequest(items=[pb.WorkerItem(heartbeat=pb.Heartbeat())] * 5000).SerializeToString()
    held = attach(mesh, 2)
    held.attach.held.extend([pb.HeldTurn(turn_id="x", attempt=1)] * 1001)
    came = played(mesh, channel, [pb.AttachRequest(items=[held]).SerializeToString()])
    assert [item.detached.code for item in came if item.HasField("detached")] == ["invalid_argument"]
    assert not any(item.HasField("heartbeat") for item in played(mesh, channel, [many]))
    mesh.unharmed()


def test_an_attachment_said_twice_ends_the_stream_and_nothing_else(
    mesh: Ground, channel: grpc.Channel
) -> None:
    again = pb.AttachRequest(items=[attach(mesh)]).SerializeToString()
    assert len(played(mesh, channel, [again])) == 1
    assert len(played(mesh, channel, [])) == 2
    mesh.unharmed()
