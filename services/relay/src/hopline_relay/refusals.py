"""Refusals: each goes into the audit log with its true reason; too many from one caller are `overloaded`.

Repeats of one refusal within a minute share one row, which counts them.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from hopline_directory import Directory
from hopline_rpc.calls import CallInfo
from hopline_rpc.clock import Clock, to_timestamp
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal
from sqlalchemy import bindparam, func, select, update

from hopline_relay.batching import Batcher
from hopline_relay.callers import actor_of
from hopline_relay.domain.values import Actor
from hopline_relay.drafts import Draft
from hopline_relay.journal import Journal
from hopline_relay.store.book import Book, in_its_name
from hopline_relay.store.schema import audit_events, audit_seals

_SAME_SECONDS: Final = 60.0
_KEPT: Final = 10_000
# What is no refusal: the mesh itself failed.
_FAILURES: Final = frozenset({"unavailable", "internal", "overloaded", "deadline_exceeded"})

Key = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class _Refusal:
    """What was refused to whom; the first detail says what kind of thing it was."""

    action: str
    principal: Principal
    error: HoplineError
    target: str
    details: dict[str, Any]
    agent_id: str = ""
    thread_id: str = ""
    trace_id: str = ""
    # How the log names the caller, where it is nobody that the registry knows.
    actor: Actor | None = None


@dataclass(slots=True)
class _Counted:
    """A row of the log that counts repeats."""

    refusal: _Refusal
    actor: Actor
    at: float
    # With the true reason, which is worked out when the row is written: the answer has been given by then.
    details: dict[str, Any] = field(default_factory=dict)
    count: int = 1
    written: int = 0
    seq: int = 0
    # How many an earlier row counts, which was sealed before its minute was over.
    before: int = 0


class Refusals:
    """Remembers who was refused what."""

    def __init__(self, journal: Journal, directory: Directory, clock: Clock) -> None:
        self._journal = journal
        self._directory = directory
        self._clock = clock
        self._recent: OrderedDict[Key, _Counted] = OrderedDict()
        self._by_caller: OrderedDict[str, deque[float]] = OrderedDict()
        self._writes: Batcher[_Counted, None] = Batcher("refusals", self._write)
        # `(principal, root_id)`: it was refused turns of a root that has started all it may.
        self.on_exhausted: Callable[[Principal, str], None] = lambda principal, root_id: None

    def check(self, principal: Principal) -> None:
        """Refuse a caller that was refused too often lately."""
        wait = self._over_the_limit(principal)
        if wait is None:
            return
        rate = self._directory.policy(principal.workspace_id).refusals
        used = len(self._by_caller[principal.id])
        text = f"{used} of your calls were refused lately; wait before you try again"
        details: dict[str, Any] = {
            "rail": "refusals",
            "limit": rate.count if rate is not None else used,
            "used": used,
            "resets_at": to_timestamp(self._clock.now() + wait).ToJsonString(),
        }
        if rate is not None:
            details["window_seconds"] = rate.seconds
        raise HoplineError("overloaded", text, details=details, quota=("refusals", text), retry_after=wait)

    def used(self, principal: Principal) -> tuple[int, float | None]:
        """Return how many calls were refused lately, and for how many seconds none is looked at any more."""
        wait = self._over_the_limit(principal)
        return len(self._by_caller.get(principal.id, ())), wait

    def note(self, draft: Draft, error: HoplineError) -> None:
        """Put a refusal of a draft into the log."""
        if error.reason in _FAILURES or error.noted or draft.firing is not None:
            return  # a schedule notes itself what became of its times
        if error.reason == "root_exhausted":
            self.on_exhausted(draft.principal, str(error.details["root_id"]))
        details: dict[str, Any] = {"kind": draft.kind}
        if draft.to:
            details["to"] = list(draft.to)
        refusal = _Refusal(
            "message.refused",
            draft.blamed,
            error,
            _target(draft, error),
            details,
            self._agent_id(draft),
            draft.thread_id,
            draft.traceparent[3:35],
            draft.source.actor if draft.source is not None else None,
        )
        self._note(refusal)

    def note_call(self, call: CallInfo, error: HoplineError) -> None:
        """Put the refusal of any other call of an agent, a person or a plugin into the log."""
        principal = call.principal
        if principal is None or principal.kind == "service" or error.reason in _FAILURES or error.noted:
            return
        details = {"method": call.method.rpartition("/")[2]}
        self._note(_Refusal("call.refused", principal, error, _named(error), details))

    def _note(self, refusal: _Refusal) -> None:
        principal, error, now = refusal.principal, refusal.error, self._clock.now()
        error.noted = True
        self._journal.meters.refusals[error.reason] += 1
        kind, reason, target = next(iter(refusal.details.values())), error.reason, refusal.target
        if self._over_the_limit(principal) is not None:
            # Who asks for name after name must not fill the disk: what is too much shares one row.
            refusal = _Refusal("call.refused", principal, _too_many(), "", {"method": ""})
            kind = reason = target = ""
        self._count(principal)
        key = (principal.workspace_id, principal.id, reason, kind, target)
        known = self._recent.get(key)
        if known is not None and known.at + _SAME_SECONDS > now:
            known.count += 1
            if known.count == known.written + 1:
                self._writes.post(known)
            return
        actor = refusal.actor or actor_of(self._directory, principal)
        counted = _Counted(refusal, actor, now)
        self._recent[key] = counted
        if len(self._recent) > _KEPT:
            self._recent.popitem(last=False)
        self._writes.post(counted)

    async def drained(self) -> None:
        """Wait until everything is on disk."""
        await self._writes.drained()

    def _over_the_limit(self, principal: Principal) -> float | None:
        """Return for how many seconds a caller has been refused too often; None: it has not."""
        times = self._by_caller.get(principal.id)
        rate = self._directory.policy(principal.workspace_id).refusals if times else None
        if not times or rate is None:
            return None
        now = self._clock.monotonic()
        while times and times[0] + rate.seconds <= now:
            times.popleft()
        return times[-rate.count] + rate.seconds - now if len(times) >= rate.count else None

    def _count(self, principal: Principal) -> None:
        rate = self._directory.policy(principal.workspace_id).refusals
        if rate is None:
            return
        times = self._by_caller.setdefault(principal.id, deque(maxlen=rate.count))
        if times.maxlen != rate.count:
            times = self._by_caller[principal.id] = deque(times, maxlen=rate.count)
        times.append(self._clock.monotonic())
        self._by_caller.move_to_end(principal.id)
        if len(self._by_caller) > _KEPT:
            self._by_caller.popitem(last=False)

    def _details(self, refusal: _Refusal) -> dict[str, Any]:
        error = refusal.error
        details = {**refusal.details, "code": error.reason, "message": error.message}
        if error.reason == "not_found" and (named := _named(error)):
            details["reason"] = self._directory.why_hidden(refusal.principal, named)
        return details

    def _agent_id(self, draft: Draft) -> str:
        """Return the recipient's id where the caller named one agent of its workspace by id."""
        if len(draft.to) != 1:
            return ""
        agent = self._directory.agent(draft.principal.workspace_id, draft.to[0])
        return agent.id if agent is not None else ""

    async def _write(self, counted: list[_Counted]) -> list[None]:
        once = list({id(each): each for each in counted}.values())
        counts = [each.count for each in once]
        for each in once:
            each.details = each.details or self._details(each.refusal)

        def op(book: Book) -> list[tuple[int, int]]:
            return [_record(book, each, count) for each, count in zip(once, counts, strict=True)]

        rows = await self._journal.write(op)
        for each, (number, before), count in zip(once, rows, counts, strict=True):
            each.seq, each.before, each.written = number, before, count
            if each.count > count:
                self._writes.post(each)
        return [None] * len(counted)


def _too_many() -> HoplineError:
    """Return what stands in the log for refusals beyond the limit."""
    return HoplineError("overloaded", "refused more often than the policy allows; counted together")


def _named(error: HoplineError) -> str:
    """Return the agent that a refusal names, if it names one."""
    named = error.details.get("agent")
    return named if isinstance(named, str) else ""


def _target(draft: Draft, error: HoplineError) -> str:
    """Return what a refusal is about: the recipient that it names, else what the draft names first."""
    return _named(error) or (draft.to[0] if draft.to else draft.message_id)


_SEALED = (
    select(audit_seals.c.last_seq)
    .where(
        audit_seals.c.workspace_id == bindparam("workspace"), audit_seals.c.first_seq <= bindparam("number")
    )
    .order_by(audit_seals.c.first_seq.desc())
    .limit(1)
    .scalar_subquery()
)
_RECOUNT = (
    update(audit_events)
    .where(
        audit_events.c.workspace_id == bindparam("workspace"),
        audit_events.c.seq == bindparam("number"),
        audit_events.c.seq > func.coalesce(_SEALED, 0),
    )
    .values(details=bindparam("new_details"))
)


def _record(book: Book, each: _Counted, count: int) -> tuple[int, int]:
    """Write a refusal's row, or its new count; returns its number and how many an earlier row counts.

    A row that was sealed meanwhile (the clock was set) stays as it is: the rest is counted in another.
    """
    refusal = each.refusal
    workspace_id = refusal.principal.workspace_id
    if each.seq:
        details = in_its_name(each.actor, {**each.details, "count": count - each.before})
        values = {
            "workspace": workspace_id,
            "number": each.seq,
            "new_details": json.dumps(details, ensure_ascii=False),
        }
        if book.connection.execute(_RECOUNT, values).rowcount:
            return each.seq, each.before
    number = book.note(
        workspace_id,
        refusal.action,
        each.actor,
        agent_id=refusal.agent_id,
        thread_id=refusal.thread_id,
        details={**each.details, "count": count - each.written},
        trace_id=refusal.trace_id,
        at=each.at,
    )
    return number, each.written
