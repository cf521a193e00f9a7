"""Credits: a price per turn, a balance that is exact whatever happens, and answers that always travel."""

from __future__ import annotations

import asyncio

from hopline.quota.v1 import credit_pb2 as credit
from hopline.registry.v1 import identity_pb2
from hopline.relay.v1 import delegation_pb2, session_pb2
from hopline_relay.store.schema import credit_accounts, turns
from hopline_rpc.errors import HoplineError
from sqlalchemy import Connection, func, or_, select

from tests.support.relay_mesh import Caller, RelayMesh, attempt, refusal

# On SQLite alone: after time has passed these look before a sweep on PostgreSQL has come round.

_WIDE = {"pair_budget": "0", "sent_per_day": 10_000, "received_per_day": 10_000}


async def priced(mesh: RelayMesh, price: str, deposit: str) -> tuple[Caller, Caller]:
    await mesh.policy(credits=price, **_WIDE)
    if deposit:
        await mesh.deposit(deposit)
    return await mesh.agent("ada"), await mesh.agent("bob")


async def charged_by_the_record(mesh: RelayMesh) -> int:
    """Return the sum of the prices of all turns that have run or wait, which the account must equal."""

    def read(connection: Connection) -> tuple[int, int]:
        ran = or_(turns.c.state == "queued", turns.c.attempt > 0)
        total = connection.execute(select(func.sum(turns.c.price)).where(ran)).scalar_one()
        account = connection.execute(select(func.sum(credit_accounts.c.charged))).scalar_one()
        return total or 0, account or 0

    total, account = await mesh.relay.journal.read(read)
    assert total == account
    return total


async def test_a_turn_costs_its_price_and_at_zero_nothing_new_starts(mesh: RelayMesh) -> None:
    ada, bob = await priced(mesh, "1.5", "3")
    await ada.send(bob)
    assert await mesh.balance() == "1.5"
    await ada.ask(bob)
    assert await mesh.balance() == "0"
    for call in (ada.send(bob), ada.ask(bob)):
        error = await refusal(call)
        assert error.reason == "credits_exhausted"
        assert not error.retryable
        assert error.details == {"rail": "credits", "balance": "0", "price": "1.5"}
        assert "answers still travel" in error.message
    await mesh.deposit("1.5")
    await ada.send(bob)
    assert await mesh.balance() == "0"


async def test_people_are_held_back_by_credits_and_by_nothing_else(mesh: RelayMesh) -> None:
    _, bob = await priced(mesh, "1", "1")
    prompt = session_pb2.PromptRequest(agent=bob.id, text="go", wait_seconds=0)
    await mesh.admin.sessions.Prompt(prompt)
    error = await refusal(mesh.admin.sessions.Prompt(prompt))
    assert error.reason == "credits_exhausted"
    assert (await refusal(mesh.admin.send(bob))).reason == "credits_exhausted"


async def test_an_answer_travels_and_wakes_with_nothing_left(mesh: RelayMesh) -> None:
    ada, bob = await priced(mesh, "1", "2")
    view, sent = await ada.ask(bob), await ada.send(bob)
    worker = await mesh.worker(bob)
    turn = await worker.next()
    assert turn.turn_id == view.turn_id
    await worker.end(turn, "here")
    taken = await bob.take()
    assert [message.id for message in taken.messages] == [sent.message_id]
    await bob.reply(sent.message_id, "there")
    assert {message.body for message in (await ada.take()).messages} == {"here", "there"}
    # What comes back is charged like every turn, and never refused: the balance goes below zero.
    assert await mesh.balance() == "-2"
    assert await charged_by_the_record(mesh) == 4_000_000
    await mesh.deposit("2.5")
    assert (await refusal(ada.send(bob))).details["balance"] == "0.5"


async def test_an_answer_that_a_call_waits_for_starts_no_turn_and_costs_nothing(mesh: RelayMesh) -> None:
    ada, bob = await priced(mesh, "1", "1")
    worker = await mesh.worker(bob)
    asking = asyncio.create_task(ada.ask(bob, wait=30))
    turns = await worker.claim()
    while not turns:
        turns = await worker.claim()
    await worker.end(turns[0], "now")
    assert (await asking).reply == "now"
    assert await mesh.balance() == "0"


async def test_a_turn_that_is_tried_again_is_charged_once(mesh: RelayMesh) -> None:
    ada, bob = await priced(mesh, "1", "5")
    worker = await mesh.worker(bob)
    await ada.ask(bob)
    for number in (1, 2):
        assert (await worker.next()).attempt == number
        assert await mesh.balance() == "4"
        await mesh.passes(31)
    turn = await worker.next()
    assert turn.attempt == 3
    await worker.end(turn, "at last")
    assert await mesh.balance() == "3"  # and the answer that woke
    assert await charged_by_the_record(mesh) == 2_000_000


async def test_a_turn_that_never_ran_is_given_back(mesh: RelayMesh) -> None:
    ada, bob = await priced(mesh, "0.000001", "0.000003")
    views = [await ada.ask(bob) for _ in range(3)]
    assert await mesh.balance() == "0"
    worker = await mesh.worker(bob)
    ran = await worker.next()
    await mesh.admin.turns.Cancel(_cancel(views[1].turn_id))
    assert await charged_by_the_record(mesh) == 2
    assert await mesh.balance() == "0.000001"
    await mesh.admin.turns.Cancel(_cancel(ran.turn_id))
    assert await mesh.balance() == "0.000001"


async def test_a_turn_that_ran_before_is_not_given_back_when_it_is_dropped_later(mesh: RelayMesh) -> None:
    ada, bob = await priced(mesh, "1", "1")
    view = await ada.ask(bob)
    worker = await mesh.worker(bob)
    await worker.next()
    await mesh.passes(31)
    await mesh.admin.turns.Cancel(_cancel(view.turn_id))
    assert await mesh.balance() == "0"
    assert await charged_by_the_record(mesh) == 1_000_000


async def test_of_a_hundred_sends_at_once_credit_for_ten_turns_starts_exactly_ten(mesh: RelayMesh) -> None:
    ada, bob = await priced(mesh, "0.1", "1")
    results = await asyncio.gather(*(attempt(ada.send(bob)) for _ in range(100)))
    refused = [each for each in results if isinstance(each, HoplineError)]
    assert len(refused) == 90
    assert {error.reason for error in refused} == {"credits_exhausted"}
    assert len((await bob.take(limit=200)).messages) == 10
    assert await mesh.balance() == "0"


async def test_a_fan_out_that_credit_does_not_cover_reaches_nobody(mesh: RelayMesh) -> None:
    ada, bob = await priced(mesh, "1", "2")
    others = [await mesh.agent("cid"), await mesh.agent("dan")]
    error = await refusal(ada.send(bob, *others))
    assert error.reason == "credits_exhausted"
    assert "each of the 3 turns" in error.message
    assert await mesh.balance() == "2"
    await ada.send(*others)
    assert await mesh.balance() == "0"


async def test_a_balance_is_the_same_after_a_restart_and_after_counters_are_lost(mesh: RelayMesh) -> None:
    ada, bob = await priced(mesh, "0.3", "10")
    views = [await ada.ask(bob) for _ in range(4)]
    worker = await mesh.worker(bob)
    await worker.end(await worker.next(), "one")
    await mesh.admin.turns.Cancel(_cancel(views[3].turn_id))
    before = await mesh.balance()
    assert before == "8.8"  # three that ran or wait, and an answer
    await mesh.reopen()
    assert await mesh.balance() == before
    await mesh.forget_counters(mesh.relay.admission.epoch + 5)
    await ada.send(bob)
    assert await mesh.balance() == "8.5"
    # What was queued before the counters were lost is given back all the same.
    await mesh.admin.turns.Cancel(_cancel(views[2].turn_id))
    assert await mesh.balance() == "8.8"
    assert await charged_by_the_record(mesh) == 1_200_000


async def test_what_was_queued_while_turns_were_free_stays_free(mesh: RelayMesh) -> None:
    ada, bob = await priced(mesh, "off", "")
    view = await ada.ask(bob)
    await mesh.policy(credits="5")
    assert (await refusal(ada.ask(bob))).reason == "credits_exhausted"
    worker = await mesh.worker(bob)
    assert (await worker.next()).turn_id == view.turn_id
    assert await mesh.balance() == "0"
    await mesh.policy(credits="off")
    await ada.ask(bob)
    assert await charged_by_the_record(mesh) == 0


async def test_a_price_that_changes_holds_for_what_comes_later(mesh: RelayMesh) -> None:
    ada, bob = await priced(mesh, "1", "10")
    early = await ada.ask(bob)
    await mesh.policy(credits="4")
    await ada.ask(bob)
    assert await mesh.balance() == "5"
    await mesh.admin.turns.Cancel(_cancel(early.turn_id))
    assert await mesh.balance() == "6"


async def test_an_agent_sees_the_credits_of_its_workspace_in_its_usage(mesh: RelayMesh) -> None:
    ada, bob = await priced(mesh, "2", "5")
    await ada.send(bob)
    shown = (await mesh.usage(ada)).credits
    assert (shown.balance, shown.deposited, shown.charged, shown.price) == ("3", "5", "2", "2")
    await mesh.policy(credits="off")
    assert (await mesh.usage(ada)).credits.price == "off"


async def test_nothing_of_credits_is_shown_or_written_where_they_are_off(mesh: RelayMesh) -> None:
    ada, bob = await priced(mesh, "off", "")
    await ada.ask(bob)
    assert not (await mesh.usage(ada)).HasField("credits")
    rows = await mesh.relay.journal.read(lambda connection: connection.execute(select(credit_accounts)).all())
    assert rows == []


async def test_only_an_admin_pays_in_and_only_the_workspaces_people_look(mesh: RelayMesh) -> None:
    viewer = await mesh.person("vera", identity_pb2.ROLE_VIEWER)
    nobody = await mesh.person("nora")
    deposit = credit.DepositRequest(amount="5")
    assert (await refusal(viewer.credits.Deposit(deposit))).reason == "permission_denied"
    assert (await viewer.credits.GetBalance(credit.GetBalanceRequest())).credits.balance == "0"
    for call in (
        nobody.credits.GetBalance(credit.GetBalanceRequest()),
        nobody.credits.ListDeposits(credit.ListDepositsRequest()),
    ):
        assert (await refusal(call)).reason == "permission_denied"


def _cancel(turn_id: str) -> delegation_pb2.CancelRequest:
    return delegation_pb2.CancelRequest(turn_id=turn_id)
