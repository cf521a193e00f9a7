"""Some seeds of the simulation in every run of the tests; `make simulate` plays as many as one likes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation import many
from tests.simulation.running import Outcome
from tests.simulation.virtual import VirtualLoop

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


def test_random_agents_break_no_promise(tmp_path: Path) -> None:
    played = simulate(
        "--seeds", str(SEEDS), "--steps", str(STEPS), "--jobs", "1", "--report", str(tmp_path / "r")
    )
    assert played.returncode == 0, played.stdout + played.stderr


def test_a_seed_is_played_the_same_way_each_time() -> None:
    first, second = (simulate("--seed", "7", "--steps", "150").stdout for _ in range(2))
    assert first == second
    assert "no violation" in first


def test_a_run_ends_with_what_was_played_in_a_line_and_in_a_file(tmp_path: Path) -> None:
    report = tmp_path / "build" / "simulation.json"
    given = ("--seeds", "2", "--first", "31", "--steps", "20", "--jobs", "2", "--report", str(report))
    played = simulate(*given)
    written = json.loads(report.read_text())
    assert written["seeds"] == {"first": 31, "asked": 2, "played": 2}
    assert written["steps"] == sum(written["actions"].values()) >= 40
    assert written["violations"] == []
    last = played.stdout.splitlines()[-1]
    assert last.startswith(f"2 seeds (of 31 to 32); {written['steps']} steps; 0 violations; ")
    assert last.endswith(f"commit {written['commit']}")


def test_a_violation_is_told_with_the_command_that_plays_it_again_and_the_other_seeds_are_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong_in_five(seed: int, steps: int, stopped: Callable[[], bool]) -> Outcome:
        return Outcome(seed, steps, "it is wrong" if seed == 5 else "")

    monkeypatch.setattr(many, "play", wrong_in_five)
    report = tmp_path / "simulation.json"
    assert many.play_many(range(4, 8), 10, 2, report) == 1
    told = capsys.readouterr().out
    assert "--- seed 5, step 10: it is wrong\n    again: make simulate SEED=5 STEPS=10\n" in told
    written = json.loads(report.read_text())
    assert written["seeds"]["played"] == 4
    assert [each["seed"] for each in written["violations"]] == [5]


def test_a_process_that_dies_is_told_and_the_other_seeds_are_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies_in_five(seed: int, steps: int, stopped: Callable[[], bool]) -> Outcome:
        if seed == 5:
            os._exit(9)
        return Outcome(seed, steps)

    monkeypatch.setattr(many, "play", dies_in_five)
    report = tmp_path / "simulation.json"
    assert many.play_many(range(5, 9), 10, 1, report) == 1
    written = json.loads(report.read_text())
    assert written["seeds"]["played"] == 4
    assert [each["seed"] for each in written["violations"]] == [5]


def test_an_interrupted_run_says_what_was_played_until_then(tmp_path: Path) -> None:
    report = tmp_path / "simulation.json"
    given = ("--seeds", "1", "--steps", "1000000", "--jobs", "1", "--report", str(report))
    run = subprocess.Popen(
        [sys.executable, "-m", "tests.simulation", *given],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": "0"},
    )
    assert run.stdout is not None
    run.stdout.readline()  # that it has come somewhere
    run.send_signal(signal.SIGTERM)
    told, _ = run.communicate(timeout=60)
    assert run.returncode == 130
    written = json.loads(report.read_text())
    assert written["interrupted"]
    assert written["steps"] == sum(written["actions"].values()) > 0
    assert told.splitlines()[-1].startswith(
        f"interrupted after 0 seeds (of 1 to 1); {written['steps']} steps"
    )


def test_a_seed_is_played_the_same_way_whatever_was_played_before_it() -> None:
    alone = simulate("--seed", "3", "--steps", "200").stdout
    code = "from tests.simulation.running import play; [play(seed, 200).digest for seed in (1, 2)]"
    after = subprocess.run(
        [sys.executable, "-c", f"{code}; print(play(3, 200).digest)"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "0"},
    )
    assert after.stdout.strip() in alone
    assert after.stdout.strip()


def test_time_goes_on_when_the_loop_has_thrown_out_its_cancelled_timers() -> None:
    async def many_cancelled(loop: VirtualLoop) -> list[float]:
        for _ in range(300):
            loop.call_later(50.0, lambda: None).cancel()
        await loop.run_for(1.0)
        seen: list[float] = []
        loop.call_later(2.0, lambda: seen.append(loop.time()))
        await loop.run_for(3.0)
        return seen

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        assert runner.run(many_cancelled(loop)) == [pytest.approx(3.0, abs=0.001)]
