"""Play many seeds on all cores: `make simulate [SEEDS=100] [STEPS=1000] [FIRST=1] [JOBS=cores] [SEED=n]`.

Prints how far it is now and then, and for each violation the story of its last steps and the command that
plays it again. The last line says what was played, and so does build/simulation.json. Ends with 1 when
anything was wrong. Ctrl-C or SIGTERM ends it early, with the same words about what was played until then.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.simulation.many import play_many
from tests.simulation.running import Outcome, play


def main() -> int:
    """Run."""
    # The order in which a set is walked has to be the same each time, in the workers too.
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], environment)
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100, help="how many (100)")
    parser.add_argument("--steps", type=int, default=1000, help="of each seed (1000)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one a core)")
    parser.add_argument("--seed", type=int, help="play this seed alone, and tell all of its last steps")
    parser.add_argument("--report", type=Path, default=Path("build/simulation.json"))
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _one(play(arguments.seed, arguments.steps))
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    return play_many(seeds, arguments.steps, arguments.jobs, arguments.report)


def _one(outcome: Outcome) -> int:
    print("\n".join(outcome.story))
    print(f"\nseed {outcome.seed}: {outcome.steps} steps, {outcome.messages} messages, {outcome.digest}")
    print(outcome.violation or "no violation")
    return 1 if outcome.violation else 0


if __name__ == "__main__":
    sys.exit(main())
