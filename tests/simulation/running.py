"""One run: a world, a mix of actions, so many steps, a look after each, and the end of all time."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import random
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from tests.simulation.actions import Actions
from tests.simulation.changes import Changes
from tests.simulation.children import Children
from tests.simulation.quotas import Violation
from tests.simulation.records import Records
from tests.simulation.sources import Sources
from tests.simulation.virtual import VirtualLoop
from tests.simulation.world import Member, World, copied, prepare

_DAY = 86_400.0
MIDNIGHT = 1_767_225_600.0 + 3 * _DAY  # UTC, some days after the folder was prepared
# Before and after a long silence time passes timer by timer, or every call would end at its deadline.
_GENTLE = 0.3
ROOT = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


@dataclass
class Outcome:
    """How a run came out. `violation` is empty when nothing was wrong."""

    seed: int
    steps: int = 0
    violation: str = ""
    cut_short: bool = False  # the run was interrupted
    story: list[str] = field(default_factory=list)
    actions: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    did: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    digest: str = ""


class Errors(logging.Handler):
    """Collects what the mesh logs as errors: in a simulation nothing is broken, so nothing may be."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.found.append(logging.Formatter().format(record))


class Simulation:
    """A run of one seed."""

    def __init__(self, seed: int, steps: int, loop: VirtualLoop, stopped: Callable[[], bool]) -> None:
        self.stopped = stopped
        self.rng = random.Random(seed)
        self.steps = steps
        self.loop = loop
        self.outcome = Outcome(seed)
        self.errors = Errors()
        self.world: World
        self.actions: Actions
        self.changes: Changes
        self.children: Children
        self.sources: Sources
        self.records: Records
        self.caps: list[int] = []

    async def run(self, template: Path, cast: dict[str, tuple[str, str]]) -> Outcome:
        """Play everything; never raises for what the mesh does wrong."""
        folder = template.with_name(f"{template.name}-played")  # the same for every seed of a process
        log = logging.getLogger("hopline")
        log.addHandler(self.errors)
        try:
            await self._open(copied(template, folder), cast)
            await self._play()
        except Violation as violation:
            self.outcome.violation = str(violation)
            self.outcome.story += self.records.evidence(str(violation))
        finally:
            await self._close()
            log.removeHandler(self.errors)
            shutil.rmtree(folder)
        return self.outcome

    async def _open(self, folder: Path, cast: dict[str, tuple[str, str]]) -> None:
        rng = self.rng
        wall = MIDNIGHT + rng.choice((-rng.random() * 3600, rng.random() * _DAY)) - self.loop.time()
        self.world = World(folder, self.loop, random.Random(rng.random()), wall, rng.getrandbits(32))
        await self.world.open()
        *members, stranger = [Member(self.world, name, *made) for name, made in cast.items()]
        person = Member(self.world, "the person", "", self.world.admin.token, "default")
        self.actions = Actions(self.world, members, person, rng)
        self.changes = Changes(self.actions, stranger)
        self.children = Children(self.actions)
        self.sources = Sources(self.actions)
        self.records = Records(self.world.quotas, self.changes.may_reach)
        await self._set_policy(self._policy(windows=True))

    async def _close(self) -> None:
        self.records.close()
        for task in list(self.actions.calls):
            task.cancel()
        if self.world.channels and not self.world.process.dead:
            await self.world.kill()

    # -- playing -----------------------------------------------------------------------------------

    async def _play(self) -> None:
        story = self.actions.story
        mix = self._mix()
        try:
            while story.step < self.steps:
                if self.stopped():
                    self.outcome.cut_short = True
                    return
                for _ in range(self.rng.choice((1, 1, 2, 3, 5, 10))):
                    story.step += 1
                    (action,) = self.rng.choices(list(mix), list(mix.values()))
                    self.outcome.actions[action.__name__.strip("_")] += 1
                    result = action()
                    if result is not None:
                        await result
                    for _ in range(self.rng.choice((0, 0, 1, 4))):
                        await asyncio.sleep(0)
                await self.loop.settle()
                self._look()
            await self._end()
        finally:
            outcome, quotas = self.outcome, self.world.quotas
            outcome.steps, outcome.did, outcome.refused = story.step, story.did, story.refused
            outcome.messages = len(self.records.messages)
            outcome.digest = story.digest
            outcome.story = list(story.lines)
            outcome.most["depth"] = quotas.deepest
            outcome.most["slots"] = quotas.highest_slots

    def _mix(self) -> dict[Callable[[], Any], float]:
        """Return what happens in this run and how often: another mix for each seed."""
        actions = self.actions
        usual: dict[Callable[[], Any], float] = {
            actions.send: 10,
            actions.again: 2,
            actions.ask: 10,
            actions.call_tool: 5,
            actions.answer_tool: 8,
            actions.check: 5,
            actions.ask_owner: 3,
            actions.answer_owner: 3,
            actions.take: 8,
            actions.reply: 8,
            actions.finish: 2,
            actions.read_thread: 3,
            actions.look_around: 2,
            actions.cancel: 2,
            actions.give_up: 2,
            actions.attach: 5,
            actions.accept: 3,
            actions.end_turn: 12,
            actions.end_again: 1,
            actions.call_from_turn: 12,
            actions.cancel_worker_call: 1,
            actions.lose_worker: 1.5,
            actions.prompt: 3,
            self.children.start: 6,
            self.children.report: 5,
            self.children.say: 2,
            self.children.talk: 2,
            self.children.close: 1,
            self.sources.schedule: 0.7,
            self.sources.deliver: 3,
            actions.person_cancels: 1,
            actions.look_at_dead: 1,
            actions.act_on_dead: 1.5,
            actions.pause: 0.7,
            self.changes.recreate: 0.3,
            self.changes.replug: 0.3,
            self.changes.change_reach: 0.7,
            self.changes.cross: 3,
            actions.deposit: 0.7,
            actions.extend_root: 0.7,
            self._tick: 12,
            self._sleep_long: 0.7,
            self._set_clock: 0.3,
            self._change_policy: 0.5,
            self._kill: 0.1,
            self._restart: 0.05,
            self._lose_counters: 0.15,
        }
        return {
            action: weight * self.rng.choice((0, 0.3, 1, 1, 1, 3)) for action, weight in usual.items()
        } | {self._tick: 12.0}

    def _wrong(self) -> list[str]:
        return [*self.world.quotas.broken, *self.actions.broken, *self.errors.found]

    def _look(self) -> None:
        """Check everything after a step."""
        wrong = self._wrong()
        if wrong:
            raise Violation(wrong[0])
        self.records.thread_cap = max(self.caps)
        self.records.look()
        self.changes.looked()
        del self.caps[:-1]

    # -- time --------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Let a little time pass; workers send their heartbeats."""
        for worker in self.actions.workers:
            worker.beat()
        seconds = self.rng.choice((0.05, 0.3, 1.0, 4.0, 11.0))
        self.actions.story.tell(f"{seconds} s pass")
        await self._pass(seconds)

    async def _sleep_long(self) -> None:
        """Let so much time pass that something is over."""
        seconds = self.rng.choice((31.0, 55.0, 120.0, 601.0, 700.0, 3601.0, 30_000.0, _DAY + 1))
        self.actions.story.tell(f"{seconds:.0f} s pass in silence")
        await self._pass(seconds)

    async def _pass(self, seconds: float) -> None:
        gently = min(seconds, _GENTLE)
        await self.loop.run_for(gently)
        self.loop.skip(seconds - gently)
        await self.loop.run_for(_GENTLE)

    def _set_clock(self) -> None:
        """Set the wall clock forward or back; durations are measured by another."""
        seconds = self.rng.choice((-_DAY, -3600.0, -5.0, 5.0, 3600.0, _DAY))
        self.actions.story.tell(f"the wall clock is set by {seconds:.0f} s")
        self.world.time.set_by(seconds)

    # -- the mesh ----------------------------------------------------------------------------------

    def _policy(self, *, windows: bool = False) -> dict[str, Any]:
        rng = self.rng
        values: dict[str, Any] = {
            "max_depth": rng.choice((1, 2, 3, 4, 8)),
            "root_turns": rng.choice((3, 8, 20, 200)),
            "messages_per_thread": rng.choice((2, 3, 5, 20)),
            "sent_per_day": rng.choice((5, 20, 200, 2000)),
            "received_per_day": rng.choice((10, 30, 500, 2000)),
            "concurrent_runs": rng.choice((1, 2, 3, 10)),
            "inbox_backlog": rng.choice((2, 5, 20, 1000)),
            "refuse_cycles": rng.choice(("off", "off", "warn", "on")),
            "turn_seconds": rng.choice((60, 3600)),
            "queue_seconds": rng.choice((120, 3600, 86_400)),
            "agents": 25,
            "batch_inbox": rng.random() < 0.8,
            "refusals": "0",
            "credits": rng.choice(("off", "off", "off", "0.5", "1.000001")),
        }
        if windows:
            values["causality_window_seconds"] = rng.choice((0, 60, 600))
            values["pair_budget"] = rng.choice(("0", "2/60s", "5/300s", "30/300s"))
        return values

    async def _set_policy(self, values: dict[str, Any]) -> None:
        self.caps.append(values["messages_per_thread"])
        shown = " ".join(f"{key}={value}" for key, value in values.items())
        self.actions.story.tell(f"the policy becomes {shown}")
        await self.world.policy(**values)

    async def _change_policy(self) -> None:
        """Change the limits while everything runs."""
        await self._set_policy(self._policy())

    async def _kill(self) -> None:
        """Kill the mesh in the middle of whatever it does, and start it again."""
        rounds = self.rng.randrange(12)
        self.actions.story.tell(f"the mesh is killed after {rounds} rounds")
        for _ in range(rounds):
            await asyncio.sleep(0)
        self.records.close()
        await self.world.kill()
        await self.world.open()

    async def _restart(self) -> None:
        """Stop the mesh in good order, and start it again."""
        self.actions.story.tell("the mesh is restarted")
        await self.loop.settle()
        self.records.close()
        await self.world.reopen()

    async def _lose_counters(self) -> None:
        """Have the quota service lose all that it counts."""
        await self.loop.settle()
        epoch = self.world.quotas.epoch + 1000
        self.actions.story.tell("the counters are lost")
        await self.world.forget_counters(epoch)

    # -- the end -----------------------------------------------------------------------------------

    async def _end(self) -> None:
        """Let everything come to its end: nobody works any more, and all time passes."""
        actions = self.actions
        actions.story.tell("everyone stops, and all time passes")
        for worker in actions.workers:
            worker.forget()
        for agent in actions.cast:
            actions.resume(agent)
        await self.loop.settle()
        await self.sources.end()
        # What was begun under a clock that was set back since is due by that clock.
        ahead = self.world.time.latest() - self.world.time.now()
        for seconds in (60.0, 700.0, 4000.0, *[_DAY + 60.0] * (5 + math.ceil(ahead / _DAY))):
            await self._pass(seconds)
            await self._pass(1.0)
        await self._pass(5.0)
        self._look()
        if actions.calls:
            raise Violation(f"calls that never returned: {sorted(actions.calls.values())}")
        self.records.look_at_the_end()
        self.records.look_at_uninstalled(self.changes.uninstalled)


@cache
def _template() -> tuple[Path, dict[str, tuple[str, str]]]:
    """Prepare a folder once for each process."""
    folder = Path(tempfile.mkdtemp(prefix="hopline-cast-", dir=ROOT))
    # Not atexit, which workers of a pool end without.
    Finalize(None, shutil.rmtree, args=(folder, True), exitpriority=1)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop: Any = runner.get_loop()
        prepared = runner.run(prepare(folder, loop))
    # What is there by now stays; looking through it before every seed would take longer than many steps.
    gc.collect()
    gc.freeze()
    return folder, prepared


def play(seed: int, steps: int, stopped: Callable[[], bool] = lambda: False) -> Outcome:
    """Play one seed on a loop of its own; an early end when `stopped` says so."""
    template, cast = _template()
    # What is collected may have something to do at its end: that must not come at any odd moment.
    gc.collect()
    gc.disable()
    simulation: Simulation | None = None
    try:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            loop: Any = runner.get_loop()
            simulation = Simulation(seed, steps, loop, stopped)
            return runner.run(simulation.run(template, cast))
    except Exception:
        outcome = simulation.outcome if simulation is not None else Outcome(seed)
        outcome.violation = f"the simulation itself failed\n{traceback.format_exc()}"
        return outcome
    finally:
        gc.enable()
