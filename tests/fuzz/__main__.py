"""`make fuzz`: all properties at random, round after round, until the time is over or something is found."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

# Inputs of a round, against those of the tests.
_TIMES: Final = 5


def main() -> int:
    """Play rounds; returns the exit status of the first that failed, or 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="begin no new round after so long (300)")
    parser.add_argument("--seed", type=int, help="play the one round of this seed")
    parser.epilog = "All other words go to pytest, such as: -k tunnel"
    given, words = parser.parse_known_args()
    ends = time.monotonic() + given.seconds
    while True:
        seed = given.seed if given.seed is not None else random.SystemRandom().randrange(2**31)
        print(f"seed {seed}", flush=True)
        status = _round(seed, words)
        if status:
            print(f"found with seed {seed}; again: make fuzz SEED={seed}", flush=True)
        if status or given.seed is not None or time.monotonic() > ends:
            return status


def _round(seed: int, words: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", str(Path(__file__).parent), f"--hypothesis-seed={seed}"]
    env = {**os.environ, "FUZZ_TIMES": str(_TIMES)}
    return subprocess.run([*command, "-p", "no:cacheprovider", *words], env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
