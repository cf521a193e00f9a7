"""Credits in the counters and in the ledger: exact, charged once, given back once, paid in once."""

from __future__ import annotations

import asyncio
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hopline.quota.v1 import credit_pb2 as pb
from hopline.quota.v1.credit_pb2_grpc import CreditServiceStub
from hopline_quota.domain import money
from hopline_quota.domain.values import (
    Admitted,
    Begin,
    End,
    EndKind,
    Kind,
    Price,
    Record,
    SeedCredit,
    SeedState,
    SeedTurn,
)
from hopline_rpc.channels import ClientChannel, bearer
from hopline_rpc.errors import HoplineError
from hypothesis import given
from hypothesis import strategies as st

from tests.quota.builders import WIDE, Desk, admitted, refused
from tests.quota.mesh import Mesh

PRICED = WIDE._replace(turn_price=3)


async def left(desk: Desk) -> int:
    return (await desk.store.balance("ws")).left


async def ends(desk: Desk, turn: str, price: Price, kind: EndKind = EndKind.ENDED) -> None:
    await desk.store.end(desk.epoch, [End(turn, "ws", 0, kind, price)])


@given(st.integers(min_value=-(10**18), max_value=10**18))
def test_an_amount_is_written_as_the_number_it_is(amount: int) -> None:
    text = money.write(amount)
    assert Decimal(text) == Decimal(amount).scaleb(-6)
    assert money.read(text.lstrip("-")) == abs(amount)


@pytest.mark.parametrize(
    ("text", "amount"), [("1", 10**6), ("0.000001", 1), ("12.5", 12_500_000), ("0.1", 10**5)]
)
def test_a_decimal_number_is_read_exactly(text: str, amount: int) -> None:
    assert money.read(text) == amount


async def test_the_last_credit_starts_a_turn_and_one_millionth_less_does_not(desk: Desk) -> None:
    desk.store.deposited("ws", 5)
    admitted(await desk.start("a", "b", limits=PRICED))
    refusal = refused(await desk.start("a", "b", limits=PRICED), "credits_exhausted")
    assert (refusal.rail, dict(refusal.figures)) == ("credits", {"balance": "0.000002", "price": "0.000003"})
    desk.store.deposited("ws", 1)
    admitted(await desk.start("a", "b", limits=PRICED))
    assert await left(desk) == 0


async def test_of_a_hundred_at_once_credit_for_ten_starts_exactly_ten(desk: Desk) -> None:
    desk.store.deposited("ws", 32)
    found = await desk.admit(*(desk.item("a", "b", limits=PRICED) for _ in range(100)))
    assert len([each for each in found if isinstance(each, Admitted)]) == 10
    assert await left(desk) == 2


async def test_answers_pass_at_zero_and_are_charged(desk: Desk) -> None:
    item = desk.item("a", "b", kind=Kind.ANSWER, limits=PRICED, root="R")
    admitted((await desk.admit(item))[0])
    refused((await desk.admit(desk.item("p", "b", kind=Kind.PERSON, limits=PRICED)))[0], "credits_exhausted")
    assert await left(desk) == -3


async def test_what_queues_no_turn_costs_nothing(desk: Desk) -> None:
    admitted(await desk.start("a", "b", limits=PRICED, turns=False))
    assert await left(desk) == 0


async def test_a_refund_gives_back_exactly_once_whatever_else_says_so(desk: Desk) -> None:
    desk.store.deposited("ws", 9)
    await desk.start("a", "b", key="k", limits=PRICED)
    await desk.run("k/b", "b")
    await desk.refund("k")
    await desk.refund("k")
    await ends(desk, "k/b", Price.GIVEN_BACK)
    assert await left(desk) == 9


async def test_a_turn_that_has_run_keeps_its_price_and_a_late_refund_changes_nothing(desk: Desk) -> None:
    desk.store.deposited("ws", 9)
    await desk.start("a", "b", key="k", limits=PRICED)
    await desk.commit("k")
    for attempt in (1, 2):
        await desk.store.begin(desk.epoch, [Begin("k/b", "ws", "b", 1, "R", attempt, False, 0)])
        await ends(desk, "k/b", Price.OPEN, EndKind.REQUEUED)
        assert await left(desk) == 6
    await ends(desk, "k/b", Price.KEPT, EndKind.DROPPED)
    await ends(desk, "k/b", Price.GIVEN_BACK, EndKind.DROPPED)
    assert await left(desk) == 6


async def test_a_seed_replaces_what_was_charged_and_not_what_was_paid_in(desk: Desk) -> None:
    desk.store.deposited("ws", 100)
    await desk.start("a", "b", limits=PRICED)
    turn = SeedTurn("t", "ws", "b", 1, "R", 0, SeedState.QUEUED, False, False, 0.0, price=3)
    await desk.seed(2, Record(turns=(turn,), credits=(SeedCredit("ws", 40),)))
    assert await left(desk) == 60
    await ends(desk, "t", Price.GIVEN_BACK, EndKind.DROPPED)
    assert await left(desk) == 63


async def test_workspaces_pay_for_themselves_alone(desk: Desk) -> None:
    desk.store.deposited("other", 100)
    refused(await desk.start("a", "b", limits=PRICED), "credits_exhausted")
    admitted(await desk.start("a", "b", limits=PRICED, workspace="other"))
    assert await left(desk) == 0


# -- the ledger -------------------------------------------------------------------------------------


def credits_of(mesh: Mesh, token: str = "") -> Any:
    channel = ClientChannel(mesh.quota.server.channel(), bearer(token or mesh.tokens["admin"]))
    return CreditServiceStub(channel)


async def balance(mesh: Mesh) -> str:
    found = await credits_of(mesh).GetBalance(pb.GetBalanceRequest())
    return str(found.credits.balance)


async def test_a_deposit_is_there_after_a_restart(tmp_path: Path) -> None:
    mesh = await Mesh.open(tmp_path)
    for amount in ("10.25", "0.000001"):
        await credits_of(mesh).Deposit(pb.DepositRequest(amount=amount, note=f"of {amount}"))
        await mesh.clock.advance(0.01)
    await mesh.close()
    mesh = await Mesh.open(tmp_path)
    await mesh.seed()
    assert await balance(mesh) == "10.250001"
    found = await credits_of(mesh).ListDeposits(pb.ListDepositsRequest(page_size=1))
    assert [(each.amount, each.note, each.user_name) for each in found.deposits] == [
        ("0.000001", "of 0.000001", "admin")
    ]
    token = found.next_page_token
    found = await credits_of(mesh).ListDeposits(pb.ListDepositsRequest(page_size=1, page_token=token))
    assert [each.amount for each in found.deposits] == ["10.25"]
    assert not found.next_page_token
    await mesh.close()


async def test_the_same_request_many_times_at_once_pays_in_once(mesh: Mesh) -> None:
    await mesh.seed()
    request = pb.DepositRequest(amount="7", request_id=str(uuid.uuid4()))
    made = await asyncio.gather(*(credits_of(mesh).Deposit(request) for _ in range(20)))
    assert len({each.deposit.id for each in made}) == 1
    assert await balance(mesh) == "7"
    request.amount = "8"
    with pytest.raises(HoplineError) as error:
        await credits_of(mesh).Deposit(request)
    assert error.value.reason == "request_id_conflict"
    assert await balance(mesh) == "7"


@pytest.mark.parametrize(
    "amount", ["0", "0.000000", "-1", "1e3", "1.0000001", "", "1,5", "1000000000", "NaN", " 1"]
)
async def test_what_is_no_amount_is_refused_by_its_name(mesh: Mesh, amount: str) -> None:
    await mesh.seed()
    with pytest.raises(HoplineError) as error:
        await credits_of(mesh).Deposit(pb.DepositRequest(amount=amount))
    assert error.value.reason == "invalid_argument"
    assert error.value.violations[0][0] == "amount"
    assert await balance(mesh) == "0"


async def test_a_workspace_pays_in_no_more_than_can_be_counted(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mesh.seed()
    monkeypatch.setattr(money, "MOST", 10 * money.UNIT)
    await credits_of(mesh).Deposit(pb.DepositRequest(amount="9.5"))
    with pytest.raises(HoplineError) as error:
        await credits_of(mesh).Deposit(pb.DepositRequest(amount="0.500001"))
    assert error.value.reason == "limit_reached"
    await credits_of(mesh).Deposit(pb.DepositRequest(amount="0.5"))
    assert await balance(mesh) == "10"


async def test_the_balance_is_not_made_up_while_the_counters_are_lost(mesh: Mesh) -> None:
    with pytest.raises(HoplineError) as error:
        await credits_of(mesh).GetBalance(pb.GetBalanceRequest())
    assert error.value.reason == "unavailable"
