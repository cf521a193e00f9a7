"""Who may see whose usage, and what stands in it."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

from hopline_directory import VIEWER, Directory, Policy, Rate, not_found
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.principals import Principal

from hopline_quota.credits import rebuilding
from hopline_quota.domain.values import Usage
from hopline_quota.store import CountersLostError, Store


class AgentUsage(NamedTuple):
    """What an agent uses, and the limits in force: policy keys and their values as text."""

    agent_id: str
    usage: Usage
    limits: dict[str, str]


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
        try:
            usage = await self._store.usage(caller.workspace_id, agent_id, policy.causality_window_seconds)
        except CountersLostError:
            raise rebuilding() from None
        return AgentUsage(agent_id, usage, limits_of(policy))

    def _agent_id(self, caller: Principal, ref: str) -> str:
        if caller.kind == "user":
            if not ref:
                raise invalid("agent", "needed: whose usage to show, by id, slug or name")
            return self._directory.resolve_for_person(caller, ref, VIEWER).id
        if caller.kind != "agent":
            raise HoplineError("permission_denied", "usage is shown to an agent itself and to people")
        own = self._directory.agent(caller.workspace_id, caller.id)
        names = (caller.id,) if own is None else (own.id, own.slug, own.name)
        if ref and ref not in names:
            raise not_found(ref)
        return caller.id


def limits_of(policy: Policy) -> dict[str, str]:
    """Write every limit of a policy the way the policy's keys are set."""
    limits = {each.name: _text(getattr(policy, each.name)) for each in fields(policy)}
    del limits["preset"]
    if policy.credits is None:
        limits["credits"] = "off"
    return limits


def _text(value: object) -> str:
    if value is None:
        return "0"
    if isinstance(value, Rate):
        return f"{value.count}/{value.seconds}s"
    return str(value).lower() if isinstance(value, bool) else str(value)
