"""Pages of large texts end before a call could not carry them; nothing is taken that is not shown."""

from __future__ import annotations

from hopline.relay.v1 import message_pb2 as pb
from hopline.relay.v1 import session_pb2
from hopline_rpc.paging import PAGE_BYTES

from tests.support.relay_mesh import Caller, RelayMesh

BODY = "\N{GRINNING FACE}" * 16_384
# As many of these as fit into one page, and then some.
FITS = PAGE_BYTES // len(BODY.encode()) - 1
MANY = FITS + 5


async def _fill(mesh: RelayMesh) -> tuple[Caller, Caller, str]:
    """Let one agent send another more than fits into a page, in one thread."""
    await mesh.policy(messages_per_thread=MANY, pair_budget="0")
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send(bob, text=BODY)
    for _ in range(MANY - 1):
        await ada.send(bob, text=BODY, thread_id=sent.thread_id)
    return ada, bob, sent.thread_id


async def test_a_pull_takes_no_more_than_its_answer_can_carry(mesh: RelayMesh) -> None:
    _, bob, _ = await _fill(mesh)
    first = await bob.take(limit=200)
    assert first.ByteSize() <= PAGE_BYTES + 65_536
    assert (len(first.messages), first.remaining) == (FITS, MANY - FITS)
    second = await bob.take(limit=200)
    assert (len(second.messages), second.remaining) == (MANY - FITS, 0)
    assert second.turn_id == first.turn_id


async def test_a_page_of_a_thread_takes_only_what_it_shows(mesh: RelayMesh) -> None:
    _, bob, thread_id = await _fill(mesh)
    request = pb.ListMessagesRequest(thread_id=thread_id, page_size=200)
    page = await bob.messages.ListMessages(request)
    assert [message.seq for message in page.messages] == list(range(1, FITS + 1))
    states = {delivery.state for message in page.messages for delivery in message.deliveries}
    assert states == {pb.DELIVERY_STATE_TAKEN}
    context = await bob.sessions.GetContext(session_pb2.GetContextRequest())
    assert context.inbox == MANY - FITS
    request.page_token = page.next_page_token
    rest = await bob.messages.ListMessages(request)
    assert [message.seq for message in rest.messages] == list(range(FITS + 1, MANY + 1))
    assert not rest.next_page_token


async def test_a_look_at_an_inbox_comes_in_pages_that_can_be_carried(mesh: RelayMesh) -> None:
    await _fill(mesh)
    seen, token = 0, ""
    while True:
        request = pb.PeekInboxRequest(agent="bob", page_size=200, page_token=token)
        page = await mesh.admin.messages.PeekInbox(request)
        assert page.ByteSize() <= PAGE_BYTES + 65_536
        seen, token = seen + len(page.messages), page.next_page_token
        if not token:
            break
    assert seen == MANY


async def test_a_transcript_takes_only_what_it_shows(mesh: RelayMesh) -> None:
    ada, bob, _ = await _fill(mesh)
    opened = await ada.sessions.ListSessions(session_pb2.ListSessionsRequest(agent=bob.id))
    request = session_pb2.ReadSessionRequest(session_id=opened.sessions[0].id, page_size=200)
    page = await bob.sessions.ReadSession(request)
    assert page.ByteSize() <= PAGE_BYTES + 65_536
    context = await bob.sessions.GetContext(session_pb2.GetContextRequest())
    assert context.inbox == MANY - len(page.entries)
    request.page_token = page.next_page_token
    rest = await bob.sessions.ReadSession(request)
    assert len(page.entries) + len(rest.entries) == MANY
