"""Who may see whose usage, and what stands in it."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

from hopline_directory import Directory, Policy, Rate
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.principals import Principal

from hopline_quota.credits import rebuilding
from hopline_quota.domain import money
from hopline_quota.domain.values import PairUsed, Usage
from hopline_quota.store import CountersLostError, Store


class NamedPair(NamedTuple):
    """What counts between the agent and another one, as the reader may see that one."""

    agent_id: str
    name: str
    used: int
    frees_at: float | None


class AgentUsage(NamedTuple):
    """What an agent uses, and the limits in force: policy keys and their values as text."""

    agent_id: str
    usage: Usage
    limits: dict[str, str]
    # What its root may start, and what all agents of the workspace may send today.
    root_limit: int
    workspace_sent_limit: int
    pairs: list[NamedPair]


class UsageReader:
    """Answers what is used of each limit."""

    def __init__(self, store: Store, directory: Directory) -> None:
        self._store = store
        self._directory = directory

    async def usage(self, caller: Principal, ref: str) -> AgentUsage:
        """Return the usage of the calling agent, or of one that the calling person may view.

        `unavailable` while there are no counters.
        """
        agent_id = self._agent_id(caller, ref)
        policy = self._directory.policy(caller.workspace_id)
        rate = policy.pair_budget
        try:
            usage = await self._store.usage(
                caller.workspace_id,
                agent_id,
                policy.causality_window_seconds,
                rate.count if rate else 0,
                rate.seconds if rate else 0,
            )
        except CountersLostError:
            raise rebuilding() from None
        return AgentUsage(
            agent_id,
            usage,
            limits_of(policy),
            policy.root_turns + usage.root_extra if usage.root_id else 0,
            policy.agents * policy.sent_per_day,
            [self._named(caller, pair) for pair in usage.pairs],
        )

    def _agent_id(self, caller: Principal, ref: str) -> str:
        if caller.kind == "user" and not ref:
            raise invalid("agent", "needed: whose usage to show, by id, slug or name")
        if caller.kind not in ("agent", "user"):
            raise HoplineError("permission_denied", "usage is shown to an agent itself and to people")
        return self._directory.itself_or_viewed(caller, ref)

    def _named(self, caller: Principal, pair: PairUsed) -> NamedPair:
        agent = self._directory.agent(caller.workspace_id, pair.agent_id)
        if agent is None or not self._directory.may_know(caller, pair.agent_id):
            return NamedPair("", "another agent", pair.used, pair.frees_at)
        return NamedPair(agent.id, agent.name, pair.used, pair.frees_at)


def limits_of(policy: Policy) -> dict[str, str]:
    """Write every limit of a policy the way the policy's keys are set."""
    limits = {each.name: _text(getattr(policy, each.name)) for each in fields(policy)}
    del limits["preset"]
    limits["credits"] = money.write_price(policy.credits)
    return limits


def _text(value: object) -> str:
    if value is None:
        return "0"
    if isinstance(value, Rate):
        return f"{value.count}/{value.seconds}s"
    return str(value).lower() if isinstance(value, bool) else str(value)
