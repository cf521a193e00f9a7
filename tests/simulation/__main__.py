"""Play many seeds on all cores: `make simulate [SEEDS=1000] [STEPS=1000] [SEED=first or only one]`.

Prints how far it is, then what was done and refused, and for each violation the story of its last steps
and the command that plays it again. Ends with 1 when there was one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.simulation.running import Outcome, play

_LINE_SECONDS = 10.0


def main() -> int:
    """Run."""
    # The order in which a set is walked has to be the same each time, in the workers too.
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], environment)
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, help="play this seed alone, and tell all of its last steps")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _one(play(arguments.seed, arguments.steps))
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    return _summary(list(_many(seeds, arguments.steps, arguments.jobs)), arguments.steps)


def _many(seeds: range, steps: int, jobs: int) -> Iterator[Outcome]:
    began = told = time.monotonic()
    done = played = wrong = 0
    with ProcessPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(play, seed, steps) for seed in seeds]):
            outcome = future.result()
            done, played, wrong = done + 1, played + outcome.steps, wrong + bool(outcome.violation)
            if outcome.violation:
                _tell(outcome, steps)
            now = time.monotonic()
            if now - told >= _LINE_SECONDS:
                told = now
                print(
                    f"{done}/{len(seeds)} seeds, {played} steps, {played / (now - began):.0f} a second,"
                    f" {wrong} violations",
                    flush=True,
                )
            yield outcome


def _tell(outcome: Outcome, steps: int) -> None:
    print("\n".join(["", *outcome.story]))
    print(f"--- seed {outcome.seed}, step {outcome.steps}: {outcome.violation}")
    print(f"    again: make simulate SEED={outcome.seed} STEPS={steps}", flush=True)


def _one(outcome: Outcome) -> int:
    print("\n".join(outcome.story))
    print(f"\nseed {outcome.seed}: {outcome.steps} steps, {outcome.messages} messages, {outcome.digest}")
    print(outcome.violation or "no violation")
    return 1 if outcome.violation else 0


def _summary(outcomes: list[Outcome], steps: int) -> int:
    did: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for outcome in outcomes:
        did.update(outcome.did)
        refused.update(outcome.refused)
    wrong = sorted((each for each in outcomes if each.violation), key=lambda each: each.seed)
    print("\ndone:    " + ", ".join(f"{name} {count}" for name, count in sorted(did.items())))
    print("refused: " + ", ".join(f"{name} {count}" for name, count in refused.most_common()))
    for outcome in wrong:
        print(f"violation in seed {outcome.seed}: {outcome.violation.splitlines()[0][:200]}")
        print(f"    again: make simulate SEED={outcome.seed} STEPS={steps}")
    print(
        f"{len(outcomes)} seeds, {sum(each.steps for each in outcomes)} steps,"
        f" {sum(each.messages for each in outcomes)} messages, {len(wrong)} violations"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
