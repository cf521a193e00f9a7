"""What the measurements of one run share: its settings, the mesh, the floors, and how rounds are played."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from tests.bench.mesh import Mesh
from tests.bench.processes import Child

AGENTS: Final = 64
ROUNDS: Final = 5
STARTS: Final = 5
SECONDS: Final = 1.5
_WARM_SECONDS: Final = 0.5

Play = Callable[[float], Mapping[str, Any]]
Median = dict[str, float]


@dataclass
class Rig:
    """One run. What is started here stays up until the end of the run."""

    stack: ExitStack
    peers: bool = False
    tokens: dict[str, str] = field(default_factory=dict)

    @cached_property
    def mesh(self) -> Mesh:
        """The mesh as it comes, limits lifted: `sender-N` and `recipient-N`, `asker-N` and `worker-N`."""
        mesh = self.stack.enter_context(Mesh("mesh"))
        mesh.lift_limits()
        roles = ("sender", "recipient", "asker", "worker")
        self.tokens = mesh.create_agents([name for role in roles for name in agents(role)] + ["reader"])
        return mesh

    def tokens_of(self, role: str) -> list[str]:
        """Return the tokens of the agents of one role."""
        return [self.tokens[name] for name in agents(role)]

    @cached_property
    def echo_server(self) -> Child:
        """The bare server that everything is compared with."""
        return self.stack.enter_context(Child("grpc-echo", "tests.bench.floors.grpc_echo", {}))

    @cached_property
    def echo(self) -> Child:
        """The load on it."""
        target = self.echo_server.ready["target"]
        return self.stack.enter_context(Child("load-echo", "tests.bench.load.unary", {"target": target}))


def agents(role: str) -> list[str]:
    """Return the names of the agents of one role."""
    return [f"{role}-{number}" for number in range(AGENTS)]


def interleaved(
    plays: Mapping[str, Play], rounds: int = ROUNDS, seconds: float = SECONDS
) -> dict[str, Median]:
    """Play each in turn, round after round, and return the medians of what they gave.

    The machine's speed drifts: what is compared must have been measured at the same time. A first, short
    round warms everything up and does not count.
    """
    found: dict[str, list[Mapping[str, Any]]] = {name: [] for name in plays}
    for play in plays.values():
        play(_WARM_SECONDS)
    for _ in range(rounds):
        for name, play in plays.items():
            found[name].append(play(seconds))
    return {
        name: {key: statistics.median(each[key] for each in answers) for key in answers[0]}
        for name, answers in found.items()
    }


def rounds_of(child: Child, **request: Any) -> Play:
    """Return the play that asks a child for a round."""
    return lambda seconds: child.ask({**request, "seconds": seconds})
