"""Whether the time of an answer tells one reference from another, by samples taken in random order.

Two clocks are read around each call: the caller's, which sees what an outsider sees, and the processor time
of the mesh, which sees work alone however busy the machine is. No duration is judged by itself, only against
those of the reference that never existed, taken in between on the same connection. A difference counts when
it is both improbable by chance and large, and when it is there again in fresh samples, each time in twice as
many: a small difference that is real is improbable by chance too, and only many samples say how small it is.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Mapping, Sequence
from statistics import median

from tests.opaque.questions import Question

# The share of the control's typical time by which another must differ.
LARGE = 0.10
_CONTROL = "never there"
FIRST = 12
_CONFIRMATIONS = (100, 200, 400)
_SUSPICIOUS, _CERTAIN = 0.02, 1e-4
# It rests when it works less than this between two looks.
_LOOK_SECONDS, _REST = 0.001, 0.0001

Samples = dict[str, list[tuple[float, float]]]


async def leaks(question: Question, pid: int, first: int = FIRST) -> dict[str, tuple[float, float]]:
    """Return what can be told apart, with both differences as shares of the control's time.

    `pid` is the mesh's process; `first` samples say what is worth a closer look.
    """
    shuffler = random.Random(0)
    samples = await _samples(question, question.references, first, shuffler, pid)
    others = sorted(samples.keys() - {_CONTROL})
    suspects = [why for why in others if any(_differences(samples, why, LARGE, _SUSPICIOUS))]
    found = {}
    for why in suspects:
        pair = {name: question.references[name] for name in (why, _CONTROL)}
        still = [True, True]
        for rounds in _CONFIRMATIONS:
            again = await _samples(question, pair, rounds, shuffler, pid)
            seen = _differences(again, why, LARGE, _CERTAIN)
            still = [old and new for old, new in zip(still, seen, strict=True)]
            if not any(still):
                break
        else:
            found[why] = _shares(again, why)
    return found


async def _samples(
    question: Question, references: Mapping[str, str], rounds: int, shuffler: random.Random, pid: int
) -> Samples:
    """Take so many samples of each, each round in an order of its own."""
    processor = (~pid << 3) | 2  # Linux's name for the processor clock of a process (clock_getcpuclockid)
    found: Samples = {why: [] for why in references}
    for _ in range(rounds):
        for why in shuffler.sample(sorted(references), len(references)):
            await _settled(processor)
            began, worked = time.perf_counter(), time.clock_gettime(processor)
            await question.ask(references[why])
            found[why].append((time.perf_counter() - began, time.clock_gettime(processor) - worked))
    return found


async def _settled(processor: int) -> None:
    """Wait until the mesh rests: it writes its log of refusals after the answer."""
    before = time.clock_gettime(processor)
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        now = time.clock_gettime(processor)
        if now - before < _REST:
            return
        before = now


def _differences(samples: Samples, why: str, large: float, alpha: float) -> list[bool]:
    """Tell for each clock whether it tells `why` from what never existed."""
    return [
        abs(share) > large and by_chance(one, other) <= alpha
        for share, one, other in zip(
            _shares(samples, why),
            zip(*samples[why], strict=True),
            zip(*samples[_CONTROL], strict=True),
            strict=True,
        )
    ]


def _shares(samples: Samples, why: str) -> tuple[float, float]:
    one, other = zip(*samples[why], strict=True), zip(*samples[_CONTROL], strict=True)
    wall, work = (difference(a, b) for a, b in zip(one, other, strict=True))
    return wall, work


def difference(one: Sequence[float], other: Sequence[float]) -> float:
    """Return how much longer `one` typically takes than `other`, as a share of `other`'s time.

    Typical is the middle of the lower half: what is above it is mostly the machine doing something else.
    """
    return round(_typical(one) / _typical(other) - 1, 3)


def _typical(samples: Sequence[float]) -> float:
    return median(sorted(samples)[: max(len(samples) // 2, 1)])


def by_chance(one: Sequence[float], other: Sequence[float]) -> float:
    """Return how probable it is that samples of the same thing are ranked as unlike as these.

    Mann and Whitney's test, two-sided, by its normal approximation.
    """
    both = sorted([(value, True) for value in one] + [(value, False) for value in other])
    ranks = sum(rank for rank, (_, is_one) in enumerate(both, 1) if is_one)
    n, m = len(one), len(other)
    expected = n * (n + m + 1) / 2
    deviation = math.sqrt(n * m * (n + m + 1) / 12)
    return math.erfc(abs(ranks - expected) / deviation / math.sqrt(2))
