"""One run: a crew, so many rounds, a look after each step, and all at rest at the end of each round."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import shutil
import tempfile
import traceback
from collections.abc import Callable
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from hopline.relay.v1 import delegation_pb2, draft_pb2, session_pb2
from hopline.relay.v1.draft_pb2_grpc import DraftServiceStub
from hopline_relay.plugins.calling import PluginCalls
from hopline_rpc.errors import HoplineError

from tests.rounds.cast import LEAD, SPECIALISTS, Made, hire, members, prepare
from tests.rounds.checks import Checks
from tests.rounds.crew import Crew
from tests.rounds.plugins import KEYS, Plugins
from tests.simulation.quotas import Violation
from tests.simulation.running import MIDNIGHT, ROOT, Errors, Outcome
from tests.simulation.story import Story
from tests.simulation.virtual import VirtualLoop
from tests.simulation.workers import Worker
from tests.simulation.world import Member, World, copied

_STEPS: Final = (5, 60)
# So many looks of some minutes until everything must have come to rest, whatever was lost on the way.
_RESTS: Final = 40


class Rounds:
    """A run of one seed: `rounds` prompts of a person, each played until the crew is at rest."""

    def __init__(self, seed: int, rounds: int, loop: VirtualLoop, stopped: Callable[[], bool]) -> None:
        self.stopped = stopped
        self.rng = random.Random(seed)
        self.rounds = rounds
        self.loop = loop
        self.outcome = Outcome(seed)
        self.story = Story()
        self.errors = Errors()
        self.crew = Crew(self.rng, self.story)
        self.made: Made = {}
        self.world: World
        self.person: Member
        self.checks: Checks
        self.plugins: Plugins
        # The turn that the person waits for, and its session.
        self.prompted: list[str] = []
        self.sessions: list[str] = []

    async def run(self, template: Path, made: Made) -> Outcome:
        """Play everything; never raises for what the mesh does wrong."""
        folder = template.with_name(f"{template.name}-played")
        log = logging.getLogger("hopline")
        log.addHandler(self.errors)
        asked = patch.object(PluginCalls, "call", self._call_plugin)
        asked.start()
        try:
            await self._open(copied(template, folder), made)
            for _ in range(self.rounds):
                if self.stopped():
                    self.outcome.cut_short = True
                    break
                await self._round()
                self.outcome.steps += 1
        except Violation as violation:
            self.outcome.violation = str(violation)
            self.story.lines.extend(self.checks.evidence(str(violation)))
        finally:
            self.checks.close()
            if self.world.channels and not self.world.process.dead:
                await self.world.kill()
            asked.stop()
            log.removeHandler(self.errors)
            shutil.rmtree(folder)
            outcome = self.outcome
            outcome.story, outcome.digest = list(self.story.lines), self.story.digest
            outcome.did = self.crew.did
        return outcome

    async def _open(self, folder: Path, made: Made) -> None:
        rng = self.rng
        self.made = dict(made)
        self.world = World(folder, self.loop, random.Random(rng.random()), MIDNIGHT, rng.getrandbits(32))
        await self.world.open()
        self.checks = Checks(self.world.quotas)
        self.person = Member(self.world, "the person", "", self.world.admin.token, "default")
        await self._set_policy()
        for number, (name, member) in enumerate(members(self.world, self.made, (LEAD, *SPECIALISTS)).items()):
            self._employ(name, member, number)
        self.plugins = Plugins(rng, self.story, self.crew.did, members(self.world, self.made, KEYS))

    async def _call_plugin(
        self, plugin: Any, stub: Any, method: str, request: Any, *, seconds: float, lane: str
    ) -> Any:
        """Stand in for the network between the relay and the plugins' endpoints."""
        return await self.plugins.call(plugin, method, request, seconds)

    def _employ(self, name: str, member: Member, number: int) -> None:
        worker = Worker(member, number, self.crew.started, self.crew.answered)
        worker.max_turns = self.rng.randint(1, 4) if name == LEAD else self.rng.randint(1, 2)
        self.crew.workers[name] = worker
        worker.connect()

    # -- one round ---------------------------------------------------------------------------------

    async def _round(self) -> None:
        rng = self.rng
        self.story.tell("-- a round")
        await self._prompt()
        for _ in range(rng.randint(*_STEPS)):
            self.story.step += 1
            (action,) = rng.choices(list(self._mix), list(self._mix.values()))
            await action(self)
            await self.loop.settle()
            self._look()
        await self._come_to_rest()

    async def _prompt(self) -> None:
        request = session_pb2.PromptRequest(agent=LEAD, text="find out", wait_seconds=0)
        if self.sessions and self.rng.random() < 0.5:
            request.session_id = self.rng.choice(self.sessions)
        answer = await self._by_person("prompts", self.person.sessions.Prompt(request))
        if answer is not None:
            self.prompted = [*self.prompted[-5:], answer.turn.turn_id]
            self.sessions = [*self.sessions[-3:], answer.turn.session_id]

    async def _work(self) -> None:
        for _ in range(self.rng.choice((1, 2, 4))):
            self.crew.step()
            await self.loop.settle()

    async def _tick(self) -> None:
        for worker in self.crew.workers.values():
            worker.beat()
        await self.loop.run_for(self.rng.choice((0.1, 1.0, 5.0)))

    async def _wait(self) -> None:
        """Let so much time pass in silence that a lease, a timer or a window is over."""
        seconds = self.rng.choice((31.0, 65.0, 601.0))
        self.story.tell(f"{seconds:.0f} s pass in silence")
        self.loop.skip(seconds)
        await self.loop.run_for(1.0)

    async def _reconnect(self) -> None:
        for worker in self.crew.workers.values():
            if not worker.open:
                worker.connect()

    async def _lose(self) -> None:
        """Kill a worker, or cut its line."""
        worker = self.rng.choice(list(self.crew.workers.values()))
        self.story.tell(f"{worker.agent.name} is lost")
        (worker.forget if self.rng.random() < 0.5 else worker.hang_up)()

    async def _cancel(self) -> None:
        if self.prompted:
            request = delegation_pb2.CancelRequest(turn_id=self.rng.choice(self.prompted))
            await self._by_person("cancels", self.person.turns.Cancel(request))

    async def _release(self) -> None:
        if self.sessions:
            request = draft_pb2.ReleaseDraftRequest(session_id=self.rng.choice(self.sessions))
            await self._by_person("releases", self._drafts().ReleaseDraft(request))

    def _drafts(self) -> Any:
        return DraftServiceStub(self.person._channel("relay"))

    async def _pause(self) -> None:
        name = self.rng.choice((*SPECIALISTS, LEAD))
        agent = self.crew.workers[name].agent
        self.story.tell(f"{name} is paused, then resumed")
        await self.world.pause(agent)
        await self.loop.run_for(self.rng.choice((0.0, 2.0)))
        await self.world.resume(agent)

    async def _replace(self) -> None:
        """Delete a specialist, and hire another under its name."""
        name = self.rng.choice(list(SPECIALISTS))
        old = self.crew.workers[name]
        self.story.tell(f"{name} is deleted, and another hired")
        await self.world.delete(old.agent)
        await self.loop.settle()
        old.forget()
        self.made[name] = await hire(self.world, name, self.made[LEAD][0])
        self._employ(name, Member(self.world, name, *self.made[name]), old.number)

    async def _kill(self) -> None:
        rounds = self.rng.randrange(12)
        self.story.tell(f"the mesh is killed after {rounds} rounds")
        for _ in range(rounds):
            await asyncio.sleep(0)
        self.checks.close()
        await self.world.kill()
        await self.world.open()

    async def _restart(self) -> None:
        self.story.tell("the mesh is restarted")
        await self.loop.settle()
        self.checks.close()
        await self.world.reopen()

    async def _set_policy(self) -> None:
        rng = self.rng
        await self.world.policy(
            concurrent_runs=rng.choice((1, 2, 3, 10)),
            root_turns=rng.choice((8, 30, 200)),
            turn_seconds=rng.choice((60, 3600)),
            messages_per_thread=rng.choice((3, 20)),
            sent_per_day=100_000,
            received_per_day=100_000,
            pair_budget="0",
            refusals="0",
            evidence_required=rng.choice((True, False)),
        )

    _mix: Final[dict[Callable[[Any], Any], float]] = {
        _work: 40,
        _tick: 14,
        _reconnect: 6,
        _prompt: 1,
        _wait: 1,
        _lose: 1.5,
        _cancel: 1,
        _release: 1,
        _pause: 0.7,
        _replace: 0.5,
        _kill: 0.4,
        _restart: 0.3,
        _set_policy: 0.4,
    }

    # -- at rest -----------------------------------------------------------------------------------

    async def _come_to_rest(self) -> None:
        """Have the crew end what it holds, and let time pass until nothing is left to do."""
        self.story.tell("-- the crew comes to rest")
        self.crew.at_home = True
        for _ in range(_RESTS):
            await self._reconnect()
            for _ in range(20):
                self.crew.step()
                await self.loop.run_for(1.0)
                for worker in self.crew.workers.values():
                    worker.beat()
            self._look()
            if self.checks.at_rest():
                break
            self.loop.skip(120.0)
        self.checks.look_at_rest()
        self.crew.at_home = False

    def _look(self) -> None:
        wrong = [*self.world.quotas.broken, *self.crew.broken, *self.errors.found]
        if wrong:
            raise Violation(wrong[0])
        self.checks.look()

    async def _by_person(self, what: str, call: Any) -> Any:
        """Return the answer to a call of the person's, None where it is refused."""
        self.story.tell(f"the person {what}")
        try:
            answer = await call
        except HoplineError as error:
            self.crew.did[f"refused the person: {error.reason}"] += 1
            return None
        self.crew.did[f"the person {what}"] += 1
        return answer


@cache
def _template() -> tuple[Path, Made]:
    """Prepare a folder once for each process."""
    folder = Path(tempfile.mkdtemp(prefix="hopline-crew-", dir=ROOT))
    Finalize(None, shutil.rmtree, args=(folder, True), exitpriority=1)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop: Any = runner.get_loop()
        made = runner.run(prepare(folder, loop))
    return folder, made


def play(seed: int, rounds: int, stopped: Callable[[], bool] = lambda: False) -> Outcome:
    """Play one seed on a loop of its own; an early end when `stopped` says so."""
    template, made = _template()
    gc.collect()
    # What is collected may have something to do at its end: that must not come at any odd moment.
    gc.disable()
    run: Rounds | None = None
    try:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            loop: Any = runner.get_loop()
            run = Rounds(seed, rounds, loop, stopped)
            return runner.run(run.run(template, made))
    except Exception:
        outcome = run.outcome if run is not None else Outcome(seed)
        outcome.violation = f"the rounds themselves failed\n{traceback.format_exc()}"
        return outcome
    finally:
        gc.enable()
