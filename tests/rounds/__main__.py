"""Play rounds of a crew: `make rounds [SEEDS=20] [ROUNDS=50] [FIRST=1] [JOBS=cores] [SEED=n]`.

Prints each seed as it ends, for a violation the story of its last steps and the command that plays it again,
and at last what was played. Ends with 1 when anything was wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.rounds.playing import play
from tests.simulation.running import Outcome


def main() -> int:
    """Run."""
    # The order in which a set is walked has to be the same each time, in the workers too.
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "tests.rounds", *sys.argv[1:]], environment)
    parser = argparse.ArgumentParser(prog="make rounds", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="how many (20)")
    parser.add_argument("--rounds", type=int, default=50, help="of each seed (50)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one a core)")
    parser.add_argument("--seed", type=int, help="play this seed alone, and tell all of its last steps")
    given = parser.parse_args()
    if given.seed is not None:
        return _told(play(given.seed, given.rounds), given.rounds, whole=True)
    seeds = range(given.first, given.first + given.seeds)
    did: Counter[str] = Counter()
    wrong = played = 0
    with ProcessPoolExecutor(given.jobs) as pool:
        for outcome in pool.map(play, seeds, [given.rounds] * len(seeds)):
            wrong += _told(outcome, given.rounds)
            played += outcome.steps
            did.update(outcome.did)
    print("\n".join(f"  {count:7} {what}" for what, count in sorted(did.items())))
    print(f"{len(seeds)} seeds (of {seeds[0]} to {seeds[-1]}); {played} rounds; {wrong} violations")
    return 1 if wrong else 0


def _told(outcome: Outcome, rounds: int, *, whole: bool = False) -> int:
    """Say how a seed came out; returns 1 when anything was wrong."""
    if whole or outcome.violation:
        print("\n".join(outcome.story))
    how = outcome.violation or "no violation"
    print(f"seed {outcome.seed}: {outcome.steps} rounds, {outcome.digest}: {how}", flush=True)
    if outcome.violation:
        print(f"    again: make rounds SEED={outcome.seed} ROUNDS={rounds}", flush=True)
    return 1 if outcome.violation else 0


if __name__ == "__main__":
    sys.exit(main())
