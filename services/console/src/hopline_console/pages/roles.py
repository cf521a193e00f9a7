"""What a person may do with the agents on a page: nothing is offered that the mesh would refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from hopline.registry.v1 import agent_pb2
from hopline_rpc.errors import HoplineError

from hopline_console.page import Page
from hopline_console.words import ADMIN


async def roles_on(page: Page, agent_ids: Iterable[str]) -> dict[str, int]:
    """Return the person's role on each of a page's agents; 0 on those that are gone or not theirs to see."""
    wanted = list(dict.fromkeys(each for each in agent_ids if each))
    whole = int((await page.me()).workspace_role)
    if whole >= ADMIN:
        return dict.fromkeys(wanted, whole)
    return dict(zip(wanted, await asyncio.gather(*(_role(page, each) for each in wanted)), strict=True))


async def _role(page: Page, agent_id: str) -> int:
    try:
        return int((await page.mesh.agents.GetAgent(agent_pb2.GetAgentRequest(agent=agent_id))).role)
    except HoplineError as error:
        if error.reason == "not_found":
            return 0
        raise
