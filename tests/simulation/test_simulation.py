"""Some seeds of the simulation in every run of the tests; `make simulate` plays as many as one likes."""

from __future__ import annotations

import os
import subprocess
import sys

SEEDS, STEPS = 6, 400


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the simulation in a process of its own, whose sets are walked in the same order each time."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONHASHSEED": "0"},
    )


def test_random_agents_break_no_promise() -> None:
    played = simulate("--seeds", str(SEEDS), "--steps", str(STEPS), "--jobs", "1")
    assert played.returncode == 0, played.stdout + played.stderr


def test_a_seed_is_played_the_same_way_each_time() -> None:
    first, second = (simulate("--seed", "7", "--steps", "150").stdout for _ in range(2))
    assert first == second
    assert "no violation" in first
