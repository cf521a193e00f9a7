"""Many seeds on many processes: one seed each at a time, whatever becomes of a process."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.simulation.running import Outcome, play
from tests.simulation.summary import Summary

_LINE_SECONDS = 10.0
_SLOW_SECONDS = 120.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Stop:
    """In a worker: what says that it should come to an end."""

    asked: Any = None

    @classmethod
    def prepare(cls, stopped: Any) -> None:
        """Leave signals to the main process, which asks by a flag that both see."""
        cls.asked = stopped
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)


def _play(seed: int, steps: int) -> Outcome:
    return play(seed, steps, lambda: bool(_Stop.asked.value))


def play_many(seeds: range, steps: int, jobs: int, report: Path) -> int:
    """Play them; returns 1 when anything was wrong, 130 when it was interrupted and nothing was."""
    summary = Summary(seeds, steps, jobs)
    run = _Run(summary)
    with run.interruptible():
        told = time.monotonic()
        for outcome in run.outcomes():
            if outcome is not None:
                summary.add(outcome)
                if outcome.violation:
                    _tell(outcome, summary)
            if time.monotonic() - told >= _LINE_SECONDS:
                told = time.monotonic()
                print(", ".join([summary.progress(), *run.slow()]), flush=True)
                summary.write(report)
    summary.interrupted = bool(run.stopped.value)
    summary.write(report)
    print("\n".join(["", *summary.lines()]), flush=True)
    return 1 if summary.wrong else 130 if summary.interrupted else 0


def _tell(outcome: Outcome, summary: Summary) -> None:
    print("\n".join(["", *outcome.story]))
    print(f"--- seed {outcome.seed}, step {outcome.steps}: {outcome.violation}")
    print(f"    again: {summary.again(outcome)}", flush=True)


class _Run:
    """Hands seeds to processes."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary
        self._context = multiprocessing.get_context()
        self._left = iter(summary.seeds)
        self._running: dict[Future[Outcome], tuple[int, float]] = {}
        # Without a lock: it is set in a signal handler.
        self.stopped: Any = self._context.RawValue("b", 0)
        self._pool = self._make_pool()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Have signals end the run in order."""
        before = {each: signal.signal(each, self._stop) for each in _SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _stop(self, *_: object) -> None:
        self.stopped.value = 1

    def outcomes(self) -> Iterator[Outcome | None]:
        """Yield each outcome as it comes, and None now and then."""
        try:
            self._hand_out()
            while self._running:
                done, _ = wait(self._running, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    seed, _ = self._running.pop(future)
                    try:
                        yield future.result()
                    except BrokenProcessPool:
                        # All that the pool was given is lost with it, whichever process died.
                        yield Outcome(seed, violation="a process died while this seed was being played")
                yield None
                self._hand_out()
        finally:
            self._pool.shutdown(cancel_futures=True)

    def slow(self) -> list[str]:
        """Name the seeds that take very long."""
        now = time.monotonic()
        return [
            f"seed {seed} for {now - began:.0f} s"
            for seed, began in self._running.values()
            if now - began > _SLOW_SECONDS
        ]

    def _hand_out(self) -> None:
        """Keep every process busy; none is given more than it plays at once."""
        while len(self._running) < self._summary.jobs and not self.stopped.value:
            seed = next(self._left, None)
            if seed is None:
                return
            self._running[self._submit(seed)] = (seed, time.monotonic())

    def _submit(self, seed: int) -> Future[Outcome]:
        try:
            return self._pool.submit(_play, seed, self._summary.steps_each)
        except BrokenProcessPool:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = self._make_pool()
            return self._pool.submit(_play, seed, self._summary.steps_each)

    def _make_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._summary.jobs, self._context, _Stop.prepare, (self.stopped,))
