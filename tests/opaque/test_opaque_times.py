"""How long an answer takes tells nobody whether what was named is hidden or never existed."""

from __future__ import annotations

import random
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.opaque import questions
from tests.opaque.hidden import NEVER, Asker, hide
from tests.opaque.times import by_chance, difference, leaks
from tests.support.mesh_process import ROOT, MeshProcess, processes

# Through the pipe it is the gateway's answer again, with a process more of noise in it.
DOORS = [questions.over_grpc, questions.over_http, questions.over_tunnel]


@pytest.mark.parametrize("door", [*DOORS, questions.over_own_endpoints], ids=lambda door: door.__name__)
async def test_the_time_of_an_answer_does_not_tell_what_is_hidden(asker: Asker, door: Any) -> None:
    told = {}
    async with door(asker) as found:
        # A name and an id are looked up in the same map; a stream that says nothing lasts until its deadline.
        timed = [each for each in found if not each.name.endswith("by name") and "/Watch" not in each.name]
        for question in timed:
            if leaking := await leaks(question, asker.space.mesh.up.pid):
                told[question.name] = leaking
    assert told == {}


class LeakyMesh(MeshProcess):
    """A mesh that looks twice for sessions that there are, and refuses twice the slugs that somebody has."""

    def launch(self) -> None:
        """Begin to start it."""
        words = ("up", "--data", str(self.data), "--any-port", NEVER)
        self.up = self.processes.start("up", sys.executable, "-m", "tests.opaque.leaky_up", *words, cwd=ROOT)


@pytest.fixture
async def betrayed(tmp_path: Path) -> AsyncIterator[Asker]:
    """The same in a mesh that leaks."""
    with processes(tmp_path) as started:
        mesh = LeakyMesh(started)
        mesh.start()
        async with mesh.space() as space:
            yield await hide(space)


async def test_one_more_look_into_the_record_would_be_seen_at_every_door(betrayed: Asker) -> None:
    for door in DOORS:
        async with door(betrayed) as found:
            question = next(each for each in found if each.name.endswith("heck session_id by id"))
            pair = {why: question.references[why] for why in ("between others", "never there")}
            seen = await leaks(replace(question, references=pair), betrayed.space.mesh.up.pid, first=50)
            assert list(seen) == ["between others"], question.name
    async with questions.over_own_endpoints(betrayed) as found:
        question = next(each for each in found if each.name.endswith("by slug"))
        pair = {why: question.references[why] for why in ("out_of_reach", "never there")}
        seen = await leaks(replace(question, references=pair), betrayed.space.mesh.up.pid, first=50)
        assert list(seen) == ["out_of_reach"]


def test_samples_of_the_same_thing_are_seldom_told_apart() -> None:
    source = random.Random(1)

    def samples(shift: float = 1.0) -> list[float]:
        return [source.lognormvariate(0, 0.3) * shift for _ in range(100)]

    assert sum(by_chance(samples(), samples()) < 0.01 for _ in range(1000)) < 30
    assert all(by_chance(samples(1.5), samples()) < 1e-4 for _ in range(100))
    assert difference([1.2] * 30, [1.0] * 30) == pytest.approx(0.2)
