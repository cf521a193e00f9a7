"""What an agent has sent and received, by agent and by words, for people."""

from __future__ import annotations

from typing import Any

import pytest
from hopline.registry.v1 import identity_pb2
from hopline.relay.v1 import exchange_pb2 as pb
from hopline.relay.v1 import message_pb2
from hopline_relay.domain.search import Term, matches, terms
from hopline_rpc.clock import to_timestamp
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hook_rig import HookRig, rewrite
from tests.support.relay_mesh import Caller, RelayMesh, refusal

pytestmark = pytest.mark.both_stores

VIEWER = identity_pb2.ROLE_VIEWER
SENT, RECEIVED = pb.EXCHANGE_DIRECTION_SENT, pb.EXCHANGE_DIRECTION_RECEIVED


async def listed(reader: Caller, agent: Caller | str, **more: Any) -> pb.ListExchangesResponse:
    name = agent if isinstance(agent, str) else agent.id
    answer: pb.ListExchangesResponse = await reader.exchanges.ListExchanges(
        pb.ListExchangesRequest(agent=name, **more)
    )
    return answer


async def texts(reader: Caller, agent: Caller, **more: Any) -> list[str]:
    return [each.message.body for each in (await listed(reader, agent, **more)).exchanges]


async def test_everything_an_agent_has_sent_and_received_is_there_newest_first(mesh: RelayMesh) -> None:
    ada, bob, cid = [await mesh.agent(name) for name in ("ada", "bob", "cid")]
    await ada.send(bob, text="one")
    await cid.send(ada, text="two")
    await bob.send(cid, text="not hers")
    sent = await ada.send(bob, cid, text="three", subject="both")
    found = (await listed(mesh.admin, ada)).exchanges
    assert [(each.message.body, each.direction) for each in found] == [
        ("three", SENT),
        ("two", RECEIVED),
        ("one", SENT),
    ]
    newest = found[0]
    assert (newest.kind, newest.message.thread_id, newest.message.depth) == ("message", sent.thread_id, 1)
    assert [each.state for each in newest.message.deliveries] == [message_pb2.DELIVERY_STATE_QUEUED] * 2
    assert found[1].session_id.startswith("ses_")
    assert found[1].turn_id.startswith("trn_")


async def test_it_is_narrowed_by_direction_peer_state_kind_and_time(mesh: RelayMesh) -> None:
    ada, bob, cid = [await mesh.agent(name) for name in ("ada", "bob", "cid")]
    await ada.send(bob, text="to bob")
    await cid.send(ada, text="from cid")
    await mesh.clock.advance(100)
    since = mesh.clock.now()
    await ada.ask(bob, text="asked")
    await bob.take()
    assert await texts(mesh.admin, ada, direction=RECEIVED) == ["from cid"]
    assert await texts(mesh.admin, ada, peer="bob") == ["asked", "to bob"]
    assert await texts(mesh.admin, ada, peer="nobody at all") == []
    assert await texts(mesh.admin, ada, kind="ask") == ["asked"]
    assert await texts(mesh.admin, ada, state=message_pb2.DELIVERY_STATE_QUEUED) == ["from cid"]
    assert await texts(mesh.admin, ada, **{"from": to_timestamp(since)}) == ["asked"]
    assert await texts(mesh.admin, ada, until=to_timestamp(since)) == ["from cid", "to bob"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("release", ["The release of Wörld 1.2", "a release"]),
        ("RELEASE wörld", ["The release of Wörld 1.2"]),
        ('"release of"', ["The release of Wörld 1.2"]),
        ('"of release"', []),
        ("rele*", ["The release of Wörld 1.2", "a release"]),
        ("rele", []),
        ("don't OR \"", ["don't (stop) AND go"]),
        ("stop NOT go", ["don't (stop) AND go"]),
        ("subject", ["a release"]),
        ("world", ["The release of Wörld 1.2"]),
        ('"deep link"', ["see https://example.org/deep-link"]),
        ("exam*", ["see https://example.org/deep-link"]),
    ],
)
async def test_words_phrases_and_beginnings_are_found(mesh: RelayMesh, query: str, found: list[str]) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob, text="a release", subject="The Subject")
    await ada.send(bob, text="don't (stop) AND go")
    await ada.send(bob, text="see https://example.org/deep-link")
    await ada.send(bob, text="The release of Wörld 1.2")
    if query.startswith(("don", "stop")):
        query = query.replace("OR", "").replace("NOT", "AND")
    assert await texts(mesh.admin, ada, query=query) == found


async def test_what_has_no_word_in_it_is_refused_in_words(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    error = await refusal(listed(mesh.admin, ada, query='"" * (('))
    assert (error.reason, error.message) == (
        "invalid_argument",
        "query: there is no word in it to look for",
    )


async def test_pages_follow_one_another_while_messages_arrive(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    for number in range(5):
        await ada.send(bob, text=f"word {number}")
    for query in ("", "word"):
        first = await listed(mesh.admin, ada, page_size=2, query=query)
        await ada.send(bob, text="word later")
        second = await listed(mesh.admin, ada, page_size=2, query=query, page_token=first.next_page_token)
        shown = [each.message.body for each in (*first.exchanges, *second.exchanges)]
        assert shown[-2:] == ["word 2", "word 1"] if not query else len(set(shown)) == 4


async def test_who_may_not_look_at_an_agent_hears_that_there_is_none(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob, text="secret")
    zoe = await mesh.person("zoe")
    hidden, never_was = await refusal(listed(zoe, "ada")), await refusal(listed(zoe, "nobody"))
    assert hidden.reason == never_was.reason == "not_found"
    assert hidden.message.replace("ada", "X") == never_was.message.replace("nobody", "X")
    await mesh.grant("zoe", VIEWER, ada.id)
    assert await texts(zoe, ada) == ["secret"]
    assert (await refusal(listed(zoe, "bob"))).reason == "not_found"


async def test_words_that_a_hook_has_taken_out_are_not_found_by_those_who_may_not_read_them(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig = HookRig(mesh)
    rig.add("redact", lambda request: rewrite("the key is gone"))
    await ada.send(bob, text="the key is hunter2")
    zoe = await mesh.person("zoe")
    await mesh.grant("zoe", VIEWER, bob.id)
    assert await texts(zoe, bob) == ["the key is gone"]
    assert await texts(zoe, bob, query="hunter2") == []
    assert await texts(zoe, bob, query="gone") == await texts(mesh.admin, bob, query="gone")


async def test_what_retention_deletes_is_found_no_more(mesh: RelayMesh) -> None:
    await mesh.policy(retention_days=3)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send(bob, text="old words")
    await bob.take()
    await bob.done(sent.message_id)
    assert await texts(mesh.admin, ada, query="old") == ["old words"]
    await mesh.skip(20 * 86_400)
    await mesh.relay.retention.sweep(mesh.workspace_id)
    assert await texts(mesh.admin, ada) == []
    assert await texts(mesh.admin, ada, query="old") == []


async def test_what_was_written_while_nothing_was_put_in_order_is_found_after_a_restart(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    for number in range(3):
        await ada.send(bob, text=f"word {number}")
    await mesh.reopen()
    assert await texts(mesh.admin, ada, query="word") == ["word 2", "word 1", "word 0"]


def test_a_query_is_read_alike_for_every_database() -> None:
    assert terms('one "two three" four* _ "') == [
        Term(("one",)),
        Term(("two", "three")),
        Term(("four",), begins=True),
    ]
    assert terms("don't") == [Term(("don", "t"))]


WORDS = st.lists(st.sampled_from(["ab", "abc", "b", "Ä", "c d"]), min_size=1, max_size=5)


@given(WORDS, st.integers(0, 4), st.booleans())
def test_a_text_matches_its_own_words_and_their_beginnings(words: list[str], at: int, begins: bool) -> None:
    word = words[at % len(words)]
    query = f"{word.split()[0][:1]}*" if begins else f'"{word}"'
    assert matches(terms(query), " ".join(words))
