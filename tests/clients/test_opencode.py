"""A real harness under `hopline attach`: OpenCode, with a model whose words are written down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.harness import opencode_home, opencode_run, running_opencodes
from tests.support.mesh_process import Agent, Space, shout, until
from tests.support.model_server import ModelServer, delegating, model_server, text_of


@pytest.fixture(scope="module")
def served() -> Iterator[ModelServer]:
    with model_server() as found:
        yield found


@pytest.fixture(scope="module")
def home(served: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """OpenCode's own settings and data, which its first run takes its time to make."""
    return opencode_home(tmp_path_factory.mktemp("opencode"), served.url, ["planner", "reviewer"])


@pytest.fixture
def models(served: ModelServer) -> ModelServer:
    served.scripts.clear()
    served.requests.clear()
    return served


class Harness:
    """OpenCode as the worker of agents, each with a model of its own name."""

    def __init__(self, space: Space, home: dict[str, str]) -> None:
        self._space = space
        self.home = home

    async def attach(self, agent: Agent) -> None:
        await self._space.attach(agent, *opencode_run(agent.name), env=self.home)

    async def chat(self, agent: Agent, text: str) -> Any:
        """Prompt an agent as a person does."""
        return await self._space.mesh.cli("chat", agent.name, text, "--workspace", self._space.name)


@pytest.fixture
def harness(space: Space, home: dict[str, str]) -> Harness:
    return Harness(space, home)


async def test_its_model_delegates_through_ask_and_nothing_of_it_runs_on_after_the_turn(
    space: Space, models: ModelServer, harness: Harness
) -> None:
    planner, reviewer = await space.agents("planner", "reviewer")
    await space.work(reviewer, shout)
    models.scripts["planner"] = delegating("hopline_ask", agent="reviewer", text="is the plan sound?")
    await harness.attach(planner)
    found = await harness.chat(planner, "plan the trip")
    assert "IS THE PLAN SOUND?" in found["reply"]
    first, second = models.heard("planner")
    # The prompt came in once, as its words; what it gave was read by the model as the tool's result.
    assert [text_of(each).count("plan the trip") for each in first if each["role"] == "user"] == [1]
    assert second[-1]["role"] == "tool"
    assert "status: completed" in text_of(second[-1])
    turns = await space.turns()
    assert [(turn.depth, turn.agent.name) for turn in turns] == [(0, "planner"), (1, "reviewer")]
    await until(lambda: not running_opencodes(harness.home), "the end of OpenCode and its children")


async def test_two_of_them_that_ask_each_other_are_stopped_by_the_depth_rail_and_their_models_read_why(
    space: Space, models: ModelServer, harness: Harness
) -> None:
    planner, reviewer = await space.agents("planner", "reviewer")
    await space.policy(max_depth=1)  # each turn is a whole OpenCode: two show what five would
    models.scripts["planner"] = delegating("hopline_ask", agent="reviewer", text="go on")
    models.scripts["reviewer"] = delegating("hopline_ask", agent="planner", text="go on")
    await harness.attach(planner)
    await harness.attach(reviewer)
    found = await harness.chat(planner, "round and round")
    stopped = "too many agents in a row"
    assert stopped in text_of(models.heard("reviewer")[-1][-1])
    assert stopped in text_of(models.heard("planner")[-1][-1])
    assert stopped in found["reply"]
    turns = await space.turns()
    assert [(turn.depth, turn.agent.name) for turn in turns] == [(0, "planner"), (1, "reviewer")]
    refusal = (await space.events("message.refused"))[0]
    assert refusal.details["code"] == "depth_exceeded"
    await until(lambda: not running_opencodes(harness.home), "the end of OpenCode and its children")
