"""The crew of the rounds: a lead with six specialists, on the mesh of the simulation."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from hopline.registry.v1 import agent_pb2 as agents
from hopline_relay.plugins.calling import PluginCalls

from tests.rounds.plugins import hears, install
from tests.simulation.virtual import VirtualLoop
from tests.simulation.world import Member, World

LEAD: Final = "lead"
_AUTO, _IMPLICIT, _ALL = (
    agents.REPLY_MODE_AUTO,
    agents.REPLY_MODE_IMPLICIT,
    agents.REPLY_MODE_ALL,
)
SPECIALISTS: Final[dict[str, dict[str, Any]]] = {
    "oracle": {"reply_mode": _AUTO},
    "librarian": {"reply_mode": _AUTO},
    "navigator": {"reply_mode": _ALL},
    "builder": {"reply_mode": _AUTO},
    "critic": {"reply_mode": _IMPLICIT},
    "tester": {"reply_mode": _ALL},
}
_START: Final = 1_767_225_600.0  # midnight UTC

Made = dict[str, tuple[str, str]]
"""Id and token of each by its name."""


async def prepare(folder: Path, loop: VirtualLoop) -> Made:
    """Make a folder with the crew, and the plugins that look at what it does."""
    world = World(folder, loop, random.Random(0), _START, 0)
    with patch.object(PluginCalls, "call", hears):
        return await _prepared(world)


async def _prepared(world: World) -> Made:
    await world.open()
    lead = await world.agent(LEAD)
    made = {LEAD: (lead.id, lead.token)}
    for name in SPECIALISTS:
        made[name] = await hire(world, name, lead.id)
    made |= await install(world)
    await world.close()
    return made


async def hire(world: World, name: str, lead_id: str) -> tuple[str, str]:
    """Make a specialist of the lead; returns its id and token."""
    agent = await world.agent(
        name, is_subagent=True, parent_agent_id=lead_id, is_group_only_callable=True, **SPECIALISTS[name]
    )
    return agent.id, agent.token


def members(world: World, made: Made, names: Iterable[str]) -> dict[str, Member]:
    """Return some of them on a mesh."""
    return {name: Member(world, name, *made[name]) for name in names}
