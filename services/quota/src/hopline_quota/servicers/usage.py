"""UsageService."""

from __future__ import annotations

from typing import Any

from hopline.quota.v1 import usage_pb2 as pb
from hopline.quota.v1.usage_pb2_grpc import UsageServiceServicer
from hopline_rpc.auth import current_principal, subject
from hopline_rpc.clock import to_timestamp

from hopline_quota.servicers.credits import credits_message
from hopline_quota.usage import UsageReader


class UsageServicer(UsageServiceServicer):
    """What is used of each limit."""

    def __init__(self, reader: UsageReader) -> None:
        self._reader = reader

    async def GetUsage(self, request: pb.GetUsageRequest, context: Any) -> pb.GetUsageResponse:
        """Answer for whoever calls; a service asks for the one it brings along."""
        found = await self._reader.usage(subject() or current_principal(), request.agent)
        usage = found.usage
        price = found.limits["credits"]
        counts = price != "off" or usage.balance.deposited
        return pb.GetUsageResponse(
            agent_id=found.agent_id,
            sent_today=usage.sent_today,
            received_today=usage.received_today,
            inbox=usage.queued,
            root_turns=usage.root_turns,
            depth=usage.depth,
            resets_at=to_timestamp(usage.resets_at),
            running=usage.running,
            limits=found.limits,
            credits=credits_message(usage.balance, price) if counts else None,
            root_id=usage.root_id,
            root_limit=found.root_limit,
            pairs=[
                pb.PairUsage(
                    agent_id=pair.agent_id,
                    name=pair.name,
                    used=pair.used,
                    frees_at=None if pair.frees_at is None else to_timestamp(pair.frees_at),
                )
                for pair in found.pairs
            ],
            workspace_sent_today=usage.sent_by_all,
            workspace_sent_limit=found.workspace_sent_limit,
        )
