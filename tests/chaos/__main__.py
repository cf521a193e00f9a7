"""Play rounds of faults on a mesh of processes: `make faults [ROUNDS=300] [SEED=n]`.

Kills, stops, cuts off and slows down each part under load, and looks after each round whether anything that a
caller was told is not so, and whether anything is left. Ends with 1 when something was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import sys

from hopline_cli.progress import bar

from tests.chaos.playing import Played, play


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300, help="how many (300)")
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(1_000_000), help="plays the same faults"
    )
    given = parser.parse_args()
    # Whoever ends it ends its processes with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"seed {given.seed}", flush=True)
    with bar("playing") as tell:
        done = 0

        def told(line: str) -> None:
            nonlocal done
            done += 1
            tell("rounds", done, given.rounds)
            print(line, flush=True)

        played = asyncio.run(play(given.seed, given.rounds, told))
    _summary(played, given.rounds)
    return 1 if played.wrong else 0


def _summary(played: Played, rounds: int) -> None:
    for title, counted in (("befell", played.faults), ("callers were told", played.told)):
        print(f"{title}:", ", ".join(f"{count} {what}" for what, count in sorted(counted.items())))
    if played.wrong:
        print("\n".join(["wrong:", *played.wrong[:20]]))
        print(f"again: make faults ROUNDS={rounds} SEED={played.seed}")
    else:
        print(f"seed {played.seed}: {played.rounds} rounds, nothing wrong")


if __name__ == "__main__":
    sys.exit(main())
