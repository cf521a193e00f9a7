"""Some rounds of a crew in every run of the tests; `make rounds` plays as many as one likes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from hopline_relay import holding
from hopline_relay.domain.handing import Standing
from hopline_relay.store import debting

from tests.rounds import plugins
from tests.rounds.playing import play

SEEDS, ROUNDS = 12, 8


def rounds(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Play rounds in a process of its own, whose sets are walked in the same order each time."""
    return subprocess.run(
        [sys.executable, "-m", "tests.rounds", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONHASHSEED": "0"},
    )


def test_a_crew_comes_to_rest_whatever_happens_to_it() -> None:
    played = rounds("--seeds", "5", "--rounds", str(ROUNDS), "--jobs", "1")
    assert played.returncode == 0, played.stdout + played.stderr
    assert f"{5 * ROUNDS} rounds; 0 violations" in played.stdout


def test_a_seed_is_played_the_same_way_each_time() -> None:
    first, second = (rounds("--seed", "7", "--rounds", "3").stdout for _ in range(2))
    assert first == second
    assert "no violation" in first


def held_for_good(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(holding, "next_step", lambda *_, **__: "wait")


def hooks_without_a_fuse(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Standing, "is_withheld", lambda *_: False)
    # Often, yet not always: where every reaction waits for another, none of them is ever written.
    patch.setattr(plugins, "REACTS", 0.8)


def debts_that_stay_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(debting, "close", lambda *_: None)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (held_for_good, "answers that are held without a reason"),
        (hooks_without_a_fuse, "reactions to reactions beyond what is allowed"),
        (debts_that_stay_open, "debts without a live debtor"),
    ],
)
def test_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], found: str
) -> None:
    plant(monkeypatch)
    violations = (play(seed, ROUNDS).violation for seed in range(1, SEEDS + 1))
    assert any(found in each for each in violations)
