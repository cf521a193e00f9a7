"""The checker, checked: a rail that is off by one, or a step left out, is found within a few seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hopline_directory import Directory
from hopline_directory import rules as directory_rules
from hopline_quota.domain import rails
from hopline_quota.domain.values import Begin
from hopline_quota.store.memory import MemoryStore
from hopline_relay import admission, endings, refusals, starts
from hopline_relay.store import debting, entering, seals, seeding, subtree
from hopline_relay.store import turns as turn_store
from hopline_relay.store.schema import audit_events
from sqlalchemy import bindparam, update

from tests.simulation.running import play
from tests.simulation.world import STRANGER

SEEDS, STEPS = 60, 300


def depth_off_by_one(patch: pytest.MonkeyPatch) -> None:
    true = rails.over_depth
    patch.setattr(rails, "over_depth", lambda depth, limits: true(depth - 1, limits))


def backlog_off_by_one(patch: pytest.MonkeyPatch) -> None:
    true = rails.over_backlog
    patch.setattr(rails, "over_backlog", lambda agent, queued, limits: true(agent, queued - 1, limits))


def credit_for_one_turn_too_many(patch: pytest.MonkeyPatch) -> None:
    true = rails.over_credits
    patch.setattr(rails, "over_credits", lambda left, turns, limits: true(left, turns - 1, limits))


def prices_never_given_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admission, "never_ran", lambda row: False)


def one_slot_too_many(patch: pytest.MonkeyPatch) -> None:
    true = MemoryStore._begin

    def begin(self: MemoryStore, item: Begin, now: float) -> bool:
        return true(self, item._replace(concurrent_runs=item.concurrent_runs + 1), now)

    patch.setattr(MemoryStore, "_begin", begin)


def one_message_too_many(patch: pytest.MonkeyPatch) -> None:
    true = entering._enter

    def enter(message: Any, known: Any) -> Any:
        message.cap += bool(message.cap)
        return true(message, known)

    patch.setattr(entering, "_enter", enter)


def refunds_forgotten(patch: pytest.MonkeyPatch) -> None:
    true = admission.Admission.settle

    def settle(self: Any, key: str, *, committed: bool) -> None:
        true(self, key, committed=True)

    patch.setattr(admission.Admission, "settle", settle)


def ends_not_told(patch: pytest.MonkeyPatch) -> None:
    true = admission.end_item

    def end_item(row: Any) -> Any:
        item = true(row)
        item.attempt += bool(item.attempt)
        return item

    patch.setattr("hopline_relay.endings.end_item", end_item)


def debts_left_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(debting, "close", lambda connection, closed: None)


def ended_turns_not_seeded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(seeding, "_add_ended", lambda *_: set())


def refusals_counted_in_sealed_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(seals, "COUNTED_SECONDS", 0.0)
    unguarded = update(audit_events).where(
        audit_events.c.workspace_id == bindparam("workspace"), audit_events.c.seq == bindparam("number")
    )
    patch.setattr(refusals, "_RECOUNT", unguarded.values(details=bindparam("new_details")))


def reach_ignored(patch: pytest.MonkeyPatch) -> None:
    true = directory_rules.why_unknown
    patch.setattr(
        directory_rules,
        "why_unknown",
        lambda role, crew, reach, other: true(role, crew, frozenset(), other),
    )


def workspaces_crossed(patch: pytest.MonkeyPatch) -> None:
    true = Directory._one

    def one(self: Any, view: Any, ref: str) -> Any:
        strangers = (workspace.agents.get(ref) for workspace in self._state.workspaces.values())
        found = next((agent for agent in strangers if agent is not None and agent.name == STRANGER), None)
        return found or true(self, view, ref)

    patch.setattr(Directory, "_one", one)


def batches_end_without_what_rides_along(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(endings, "along", lambda plan, rows: [])
    patch.setattr(turn_store, "beside", lambda connection, rows: [])


def cancels_end_one_turn_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(subtree, "below", lambda *_, **__: [])


def sessions_bound_to_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(starts, "_may_prompt_in", lambda draft, session: True)


@pytest.mark.parametrize(
    "fault",
    [
        sessions_bound_to_nobody,
        reach_ignored,
        workspaces_crossed,
        depth_off_by_one,
        backlog_off_by_one,
        credit_for_one_turn_too_many,
        prices_never_given_back,
        one_slot_too_many,
        one_message_too_many,
        refunds_forgotten,
        ends_not_told,
        debts_left_open,
        ended_turns_not_seeded,
        refusals_counted_in_sealed_rows,
        batches_end_without_what_rides_along,
        cancels_end_one_turn_alone,
    ],
    ids=lambda fault: fault.__name__.replace("_", " "),
)
def test_a_planted_fault_is_found(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    assert any(play(seed, STEPS).violation for seed in range(1, SEEDS + 1))
