"""Sending: what arrives where, once, in order."""

from __future__ import annotations

from hopline.relay.v1 import message_pb2 as pb
from tests.support.relay_mesh import RelayMesh


async def test_a_message_arrives_once_with_its_sender_and_its_thread(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send("bob", text="good morning", subject="greeting")
    assert sent.depth == 1
    assert sent.deliveries[0].agent.id == bob.id
    taken = await bob.take()
    assert [message.id for message in taken.messages] == [sent.message_id]
    message = taken.messages[0]
    assert (message.body, message.subject, message.seq) == ("good morning", "greeting", 1)
    assert getattr(message, "from").display == "ada (for admin)"
    assert message.deliveries[0].state == pb.DELIVERY_STATE_TAKEN
    assert taken.remaining == 0
    assert not (await bob.take()).messages
