"""CreditService."""

from __future__ import annotations

from typing import Any

from hopline.quota.v1 import credit_pb2 as pb
from hopline.quota.v1.credit_pb2_grpc import CreditServiceServicer
from hopline_rpc.auth import current_principal
from hopline_rpc.clock import to_timestamp
from hopline_rpc.paging import Pager, page_size

from hopline_quota.credits import Credits
from hopline_quota.domain import money
from hopline_quota.domain.values import Balance
from hopline_quota.store.ledger import Deposit


class CreditServicer(CreditServiceServicer):
    """What was paid in and what is left."""

    def __init__(self, paying: Credits, pager: Pager) -> None:
        self._paying = paying
        self._pager = pager

    async def Deposit(self, request: pb.DepositRequest, context: Any) -> pb.DepositResponse:
        """Pay in."""
        made = await self._paying.deposit(
            current_principal(), request.amount, request.note, request.request_id
        )
        return pb.DepositResponse(deposit=_deposit(made))

    async def GetBalance(self, request: pb.GetBalanceRequest, context: Any) -> pb.GetBalanceResponse:
        """Tell what is there."""
        caller = current_principal()
        balance = await self._paying.balance(caller)
        return pb.GetBalanceResponse(
            credits=credits_message(balance, self._paying.price(caller.workspace_id))
        )

    async def ListDeposits(self, request: pb.ListDepositsRequest, context: Any) -> pb.ListDepositsResponse:
        """Show a page of what was paid in."""
        caller, size = current_principal(), page_size(request.page_size)
        query = ("deposits", caller.workspace_id)
        position = self._pager.position(query, request.page_token)
        before = str(position[0]) if position else ""
        found = await self._paying.deposits(caller, before, size + 1)
        response = pb.ListDepositsResponse(deposits=[_deposit(each) for each in found[:size]])
        if len(found) > size:
            response.next_page_token = self._pager.token(query, [found[size - 1].id])
        return response


def credits_message(balance: Balance, price: str) -> pb.Credits:
    """Write a balance, and the price of a turn."""
    return pb.Credits(
        balance=money.write(balance.left),
        deposited=money.write(balance.deposited),
        charged=money.write(balance.charged),
        price=price,
    )


def _deposit(made: Deposit) -> pb.Deposit:
    return pb.Deposit(
        id=made.id,
        amount=money.write(made.amount),
        note=made.note,
        user_id=made.user_id,
        user_name=made.user_name,
        created_at=to_timestamp(made.created_at),
    )
