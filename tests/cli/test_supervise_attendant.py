"""When a supervisor starts an agent's worker, ends it, and starts it again: on a clock moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hopline_cli.supervise.attendant import END_SECONDS, HEALTHY_SECONDS, Attendant, State, pause
from hopline_rpc.clock import ManualClock
from hopline_rpc.errors import HoplineError
from hypothesis import given
from hypothesis import strategies as st

IDLE = 300.0
WORK, NOTHING = State(waiting=1), State()


class Worker:
    """A worker that ends when the test says so, or when it is asked to."""

    def __init__(self, *, obeys: bool = True) -> None:
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.asked: list[bool] = []
        self.closed = False
        self._obeys = obeys

    def end(self, *, at_once: bool = False) -> None:
        self.asked.append(at_once)
        if (self._obeys or at_once) and not self.exited.done():
            self.exited.set_result(-9 if at_once else 0)

    async def close(self) -> None:
        assert self.exited.done()
        self.closed = True


class Stage:
    """An attendant whose workers are played."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.workers: list[Worker] = []
        self.refusals: list[HoplineError] = []
        self.obeys = True
        self.attendant = Attendant("bob", IDLE, self._start, self.clock, lambda: 1.0)
        self.running = asyncio.create_task(self.attendant.run())

    async def _start(self) -> Worker:
        if self.refusals:
            raise self.refusals.pop()
        self.workers.append(Worker(obeys=self.obeys))
        return self.workers[-1]

    async def told(self, state: State | None) -> None:
        self.attendant.told(state)
        await self.clock.settle()

    async def crash(self, status: int = 1) -> None:
        """Let the last worker end by itself."""
        self.workers[-1].exited.set_result(status)
        await self.clock.settle()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    stage.attendant.stop()
    for _ in range(100):
        await stage.clock.advance(1)
    await stage.running


async def test_a_worker_is_started_when_there_is_work_and_only_one(stage: Stage) -> None:
    await stage.told(NOTHING)
    await stage.clock.advance(1000)
    assert stage.workers == []
    await stage.told(WORK)
    await stage.told(State(waiting=2))
    await stage.told(State(running=1, is_attached=True))
    assert len(stage.workers) == 1


@pytest.mark.parametrize(
    "state", [State(waiting=1, is_attached=True), State(waiting=1, problem="the agent is paused")]
)
async def test_none_is_started_where_another_works_or_nothing_may_run(stage: Stage, state: State) -> None:
    await stage.told(state)
    assert stage.workers == []
    await stage.told(WORK)
    assert len(stage.workers) == 1


async def test_it_is_ended_after_a_time_with_nothing_to_do(stage: Stage) -> None:
    await stage.told(WORK)
    await stage.told(State(running=1, is_attached=True))
    await stage.clock.advance(10 * IDLE)
    await stage.told(State(is_attached=True))
    await stage.clock.advance(IDLE - 1)
    assert stage.workers[0].asked == []
    await stage.told(State(running=1, is_attached=True))  # work begins the count anew
    await stage.told(State(is_attached=True))
    await stage.clock.advance(IDLE - 1)
    assert stage.workers[0].asked == []
    await stage.clock.advance(1)
    assert stage.workers[0].asked == [False]
    assert stage.workers[0].closed
    await stage.told(NOTHING)
    await stage.told(WORK)
    assert len(stage.workers) == 2  # at once: to be ended is no failure


async def test_work_that_came_while_it_ended_starts_another(stage: Stage) -> None:
    stage.obeys = False
    await stage.told(WORK)
    await stage.told(State(is_attached=True))
    await stage.clock.advance(IDLE)
    assert stage.workers[0].asked == [False]
    await stage.told(State(waiting=1, is_attached=True))
    await stage.told(WORK)
    assert len(stage.workers) == 1
    await stage.crash(0)
    assert len(stage.workers) == 2


async def test_one_that_does_not_end_is_killed(stage: Stage) -> None:
    stage.obeys = False
    await stage.told(WORK)
    await stage.told(NOTHING)
    await stage.clock.advance(IDLE + END_SECONDS - 1)
    assert stage.workers[0].asked == [False]
    await stage.clock.advance(1)
    assert stage.workers[0].asked == [False, True]
    assert stage.workers[0].closed


async def test_one_that_crashes_is_started_again_ever_more_slowly(stage: Stage) -> None:
    await stage.told(WORK)
    for failures in range(1, 9):
        await stage.crash()
        assert stage.workers[-1].closed
        seconds = pause(failures, 1.0)
        await stage.clock.advance(seconds - 0.01)
        assert len(stage.workers) == failures
        await stage.clock.advance(0.01)
        assert len(stage.workers) == failures + 1
    assert seconds == 60.0


async def test_one_that_was_well_for_a_while_is_started_again_soon(stage: Stage) -> None:
    await stage.told(WORK)
    for _ in range(5):
        await stage.crash()
        await stage.clock.advance(60)
    await stage.told(State(running=1, is_attached=True))
    await stage.clock.advance(HEALTHY_SECONDS)
    before = len(stage.workers)
    await stage.crash()
    await stage.told(WORK)
    await stage.clock.advance(1)
    assert len(stage.workers) == before + 1


async def test_after_a_crash_with_nothing_to_do_none_is_started(stage: Stage) -> None:
    await stage.told(WORK)
    await stage.told(State(is_attached=True))
    await stage.crash()
    await stage.told(NOTHING)
    await stage.clock.advance(1000)
    assert len(stage.workers) == 1


async def test_what_cannot_be_started_is_tried_again_like_a_crash(stage: Stage) -> None:
    stage.refusals = [HoplineError("not_found", "there is no agent"), HoplineError("unavailable", "away")]
    await stage.told(WORK)
    await stage.clock.advance(0.9)
    assert len(stage.refusals) == 1
    await stage.clock.advance(0.1)
    assert (stage.refusals, stage.workers) == ([], [])
    await stage.clock.advance(2)
    assert len(stage.workers) == 1


async def test_while_the_mesh_is_not_heard_what_runs_goes_on_and_nothing_is_started(stage: Stage) -> None:
    await stage.told(WORK)
    await stage.told(State(is_attached=True))
    await stage.told(None)
    await stage.clock.advance(10 * IDLE)
    assert stage.workers[0].asked == []
    await stage.crash()
    await stage.clock.advance(1000)
    assert len(stage.workers) == 1
    await stage.told(WORK)
    assert len(stage.workers) == 2


@pytest.mark.parametrize("state", [WORK, State(running=1, is_attached=True)])
async def test_stopped_it_ends_its_worker_and_returns(stage: Stage, state: State) -> None:
    await stage.told(WORK)
    await stage.told(state)
    stage.attendant.stop()
    await stage.clock.settle()
    assert stage.workers[0].asked == [False]
    assert stage.workers[0].closed
    assert stage.running.done()


async def test_stopped_while_it_waits_to_start_again_it_returns_at_once(stage: Stage) -> None:
    await stage.told(WORK)
    await stage.crash()
    stage.attendant.stop()
    await stage.clock.settle()
    assert stage.running.done()


@given(st.integers(1, 1_000_000), st.floats(0, 1))
def test_pauses_grow_within_bounds(failures: int, chance: float) -> None:
    assert 0.5 <= pause(failures, chance) <= 60.0
    assert pause(failures, chance) <= 1.0 * 2.0 ** min(failures - 1, 20)
