"""The budget of a root: where it ends, who hears of it, and that only people extend it."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from hopline.registry.v1 import identity_pb2
from hopline.relay.v1 import delegation_pb2 as pb
from hopline.relay.v1 import session_pb2
from hopline_rpc.errors import HoplineError

from tests.support.owners import DAY, ask_within
from tests.support.posts import Taken, set_webhook
from tests.support.relay_mesh import Caller, RelayMesh, attempt, refusal, until

pytestmark = pytest.mark.both_stores


async def spent(mesh: RelayMesh, turns: int = 3) -> tuple[Caller, Caller, str]:
    """Return two agents and a root of the first that may start nothing more."""
    await mesh.policy(root_turns=turns, pair_budget="0")
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(ada)
    await mesh.admin.sessions.Prompt(session_pb2.PromptRequest(agent=ada.id, text="go", wait_seconds=0))
    turn = await worker.next()
    for _ in range(turns - 1):
        await worker.send(turn, bob)
    return ada, bob, turn.root_id


async def test_a_root_that_rested_for_a_day_and_was_forgotten_is_as_exhausted_as_before(
    mesh: RelayMesh,
) -> None:
    await mesh.policy(root_turns=3, pair_budget="0")
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(ada)
    await mesh.admin.sessions.Prompt(session_pb2.PromptRequest(agent=ada.id, text="go", wait_seconds=0))
    turn = await worker.next()
    for _ in range(2):
        await worker.send(turn, bob)
    await ask_within(worker, turn)
    await worker.end(turn, "asked")
    for message in (await bob.take()).messages:
        await bob.done(message.id)
    mesh.clock.set_wall(mesh.clock.now() + DAY + 1)
    await mesh.forget_counters(1_000)
    await (await mesh.agent("cy")).send(bob)  # the counters are rebuilt now
    await mesh.relay._escalations.expire()
    back = await worker.next()
    assert back.root_id == turn.root_id
    error = await refusal(worker.send(back, bob))
    assert (error.reason, error.details["used"]) == ("root_exhausted", 3)


def extend(root_id: str, turns: int, request_id: str = "") -> pb.ExtendRootRequest:
    return pb.ExtendRootRequest(root_id=root_id, turns=turns, request_id=request_id)


async def written(mesh: RelayMesh) -> None:
    """What nobody waits for is written along with something else."""
    await mesh.relay.journal.write(lambda book: None)


async def noted(mesh: RelayMesh, action: str) -> list[dict[str, object]]:
    await written(mesh)
    return [dict(event.details) for event in await mesh.events(action)]


async def test_the_owner_of_an_exhausted_root_is_told_once_by_webhook_until_it_is_extended(
    mesh: RelayMesh,
) -> None:
    taken = Taken(mesh)
    await set_webhook(mesh)
    ada, bob, root_id = await spent(mesh)
    await refusal(ada.send(bob))
    await refusal(ada.send(bob))
    await written(mesh)
    await until(lambda: taken.posts, "the notice")
    [told] = taken.of("root.exhausted")
    assert told["root"]["id"] == root_id
    assert told["root"]["agent"] == {"id": ada.id, "name": "ada"}
    assert (told["root"]["turns"], told["root"]["limit"]) == (3, 3)
    assert told["extend_with"] == f"hopline root extend {root_id} N"
    while not (told_of := await noted(mesh, "root.notified")):
        await mesh.clock.settle()
    assert [event["root_id"] for event in told_of] == [root_id]
    await mesh.clock.advance(60)
    assert len(taken.posts) == 1
    # Extended and exhausted again, it is said again; what was extended before it was said is not.
    await mesh.admin.turns.ExtendRoot(extend(root_id, 1))
    await ada.send(bob)
    taken.problem = "it answered 500"
    await refusal(ada.send(bob))
    await written(mesh)
    await until(lambda: len(taken.posts) == 2, "the second notice")
    await mesh.admin.turns.ExtendRoot(extend(root_id, 1))
    await mesh.clock.advance(120)
    assert len(taken.posts) == 2


async def test_an_exhausted_root_says_its_limit_and_its_owner_finds_it(mesh: RelayMesh) -> None:
    ada, bob, root_id = await spent(mesh)
    error = await refusal(ada.send(bob))
    assert error.reason == "root_exhausted"
    assert not error.retryable
    assert error.details == {"rail": "root_turns", "limit": 3, "used": 3, "root_id": root_id}
    await refusal(ada.send(bob))
    (event,) = await noted(mesh, "root.exhausted")
    assert (event["root_id"], event["turns"], event["refused_id"]) == (root_id, 3, ada.id)
    owner = await mesh.admin.people.ListUsers(identity_pb2.ListUsersRequest())
    assert event["owner_id"] == owner.users[0].id
    found = await mesh.admin.turns.ListExhaustedRoots(pb.ListExhaustedRootsRequest())
    assert [(each.id, each.agent.name, each.turns, each.limit) for each in found.roots] == [
        (root_id, "ada", 3, 3)
    ]


async def test_an_extension_lets_exactly_so_many_more_start(mesh: RelayMesh) -> None:
    ada, bob, root_id = await spent(mesh)
    await refusal(ada.send(bob))
    root = (await mesh.admin.turns.ExtendRoot(extend(root_id, 10))).root
    assert (root.turns, root.limit, root.extra_turns, root.HasField("exhausted_at")) == (3, 13, 10, False)
    results = await asyncio.gather(*(attempt(ada.send(bob)) for _ in range(100)))
    refused = [each for each in results if isinstance(each, HoplineError)]
    assert len(refused) == 90
    assert refused[0].details["limit"] == 13
    # Exhausted anew, it is noted anew.
    assert len(await noted(mesh, "root.exhausted")) == 2
    (event,) = await noted(mesh, "root.extended")
    assert (event["root_id"], event["turns"]) == (root_id, 10)


async def test_an_extension_outlives_a_restart_and_the_loss_of_counters(mesh: RelayMesh) -> None:
    ada, bob, root_id = await spent(mesh)
    await mesh.admin.turns.ExtendRoot(extend(root_id, 2))
    await mesh.reopen()
    await ada.send(bob)
    await mesh.forget_counters(mesh.relay.admission.epoch + 5)
    await ada.send(bob)
    assert (await refusal(ada.send(bob))).details["used"] == 5


async def test_the_same_request_extends_once(mesh: RelayMesh) -> None:
    _, _, root_id = await spent(mesh)
    request_id = str(uuid.uuid4())
    for _ in range(3):
        root = (await mesh.admin.turns.ExtendRoot(extend(root_id, 5, request_id))).root
        assert root.limit == 8
    error = await refusal(mesh.admin.turns.ExtendRoot(extend(root_id, 6, request_id)))
    assert error.reason == "request_id_conflict"


async def test_a_root_is_named_by_any_of_its_turns(mesh: RelayMesh) -> None:
    _, bob, root_id = await spent(mesh)
    turn_id = (await bob.take()).turn_id
    root = (await mesh.admin.turns.ExtendRoot(pb.ExtendRootRequest(turn_id=turn_id, turns=1))).root
    assert (root.id, root.agent.name) == (root_id, "ada")
    assert (await mesh.admin.turns.GetRoot(pb.GetRootRequest(turn_id=turn_id))).root == root


async def test_only_who_administers_the_agent_it_began_with_extends_it(mesh: RelayMesh) -> None:
    ada, bob, root_id = await spent(mesh)
    turn_id = (await bob.take()).turn_id
    agents = [await mesh.person("vera"), await mesh.person("olga"), await mesh.person("nora")]
    vera, olga, nora = agents
    await mesh.grant("vera", identity_pb2.ROLE_ADMIN, bob.id)
    await mesh.grant("olga", identity_pb2.ROLE_OPERATOR, ada.id)
    by_turn, by_root = pb.ExtendRootRequest(turn_id=turn_id, turns=1), extend(root_id, 1)
    for call in (vera.turns.ExtendRoot(by_turn), olga.turns.ExtendRoot(by_root)):
        assert (await refusal(call)).reason == "permission_denied"
    hidden = await refusal(nora.turns.ExtendRoot(by_root))
    nowhere = await refusal(nora.turns.ExtendRoot(extend(f"{root_id[:-1]}x", 1)))
    assert hidden.reason == nowhere.reason == "not_found"
    assert hidden.message.replace(root_id, "") == nowhere.message.replace(f"{root_id[:-1]}x", "")
    assert (await refusal(ada.turns.ExtendRoot(by_root))).reason == "permission_denied"
    await refusal(ada.send(bob))
    await written(mesh)
    for person in agents:
        assert not (await person.turns.ListExhaustedRoots(pb.ListExhaustedRootsRequest())).roots
    await mesh.grant("olga", identity_pb2.ROLE_ADMIN, ada.id)
    assert (await olga.turns.ListExhaustedRoots(pb.ListExhaustedRootsRequest())).roots
    await olga.turns.ExtendRoot(by_root)
    await ada.send(bob)


async def test_a_root_that_an_agent_opened_is_its_owners(mesh: RelayMesh) -> None:
    await mesh.policy(root_turns=1)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    turn_id = (await bob.take()).turn_id
    root = (await mesh.admin.turns.GetRoot(pb.GetRootRequest(turn_id=turn_id))).root
    assert (root.agent.name, root.turns, root.limit) == ("ada", 1, 1)
    assert (await refusal(bob.send(ada))).details["root_id"] == root.id


async def test_exhausted_roots_are_listed_page_by_page(mesh: RelayMesh) -> None:
    await mesh.policy(root_turns=1)
    ada = await mesh.agent("ada")
    expected = []
    for number in range(5):
        peer = await mesh.agent(f"peer {number}")
        await ada.send(peer)
        await peer.take()
        expected.append((await refusal(peer.send(ada))).details["root_id"])
        await written(mesh)
        await mesh.clock.advance(0.01)
    found, token = [], ""
    while True:
        request = pb.ListExhaustedRootsRequest(page_size=2, page_token=token)
        page = await mesh.admin.turns.ListExhaustedRoots(request)
        found += [root.id for root in page.roots]
        token = page.next_page_token
        if not token:
            break
    assert found == expected[::-1]


async def test_an_answer_that_comes_back_after_the_counters_were_lost_finds_its_roots_budget_spent(
    mesh: RelayMesh,
) -> None:
    await mesh.policy(root_turns=2, pair_budget="0", causality_window_seconds=0)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asking, answering = await mesh.worker(ada), await mesh.worker(bob)
    await mesh.admin.sessions.Prompt(session_pb2.PromptRequest(agent=ada.id, text="go", wait_seconds=0))
    turn = await asking.next()
    call = asyncio.create_task(asking.ask(turn, bob, wait=50))
    while not (asked := await answering.claim(1)):
        await mesh.clock.settle()
    await answering.end(asked[0], "yes")
    view = await call
    await asking.end(turn, "done")
    await mesh.passes(60)
    await mesh.forget_counters(1_000)
    await bob.send(await mesh.agent("cy"))
    # They are rebuilt while nothing of the root is alive; then it turns out that the answer never arrived.
    mesh.relay.handlers.lost(await mesh.relay.authenticator.principal(ada.token), view)
    await mesh.relay._hand_over.drained()
    again = await asking.next()
    assert again.root_id == turn.root_id
    error = await refusal(asking.send(again, bob))
    assert (error.reason, error.details["used"]) == ("root_exhausted", 2)
