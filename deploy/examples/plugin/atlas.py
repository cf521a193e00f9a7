"""A plugin that keeps a crew of three whole: who is missing is made, what has drifted is set again.

It does so when it is installed, at each new version, and whenever a session begins. With `hopline` as in
`.venv/bin/hopline`, beside a mesh that runs:

    python atlas.py manifest > atlas.yaml
    hopline plugin install atlas.yaml --yes --token-file atlas.token --secret-file atlas.secret
    HOPLINE_TOKEN_FILE=atlas.token HOPLINE_PLUGIN_SECRET_FILE=atlas.secret python atlas.py
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from hopline_client.plugin import Event, Plugin

REPORT = "Report back by calling report_to_caller: what you found, and how it can be checked."
LEAD = "planner"
# Preferred models, the best first; where the workspace has none of them, its default.
CREW: dict[str, dict[str, Any]] = {
    LEAD: {
        "name": "Planner",
        "description": "Takes a goal apart and puts the reports together.",
        "instructions": "Hand scoped tasks to your specialists with start_subagent; wait for their reports.",
        "models": ("opus", "gpt-5"),
    },
    "librarian": {
        "name": "Librarian",
        "description": "Finds sources.",
        "instructions": f"Look it up; name each source. {REPORT}",
        "models": ("haiku", "mini"),
    },
    "critic": {
        "name": "Critic",
        "description": "Looks for what is wrong.",
        "instructions": f"Try to refute what you are given. {REPORT}",
        "models": ("sonnet", "gpt-5"),
    },
}

plugin = Plugin(
    "atlas",
    name="Atlas",
    version="1",
    description="A planner with two specialists, kept whole.",
    endpoint=os.environ.get("ATLAS_ENDPOINT", "127.0.0.1:7510"),
    permissions=["agents.read", "agents.write", "models.read"],
    agents=[{"key": key, "name": member["name"]} for key, member in CREW.items()],
    commands=[{"name": "research", "description": "Look something up.", "agent_key": "librarian"}],
)
# Two events at once would set the same thing twice.
whole = asyncio.Lock()


async def reconcile() -> None:
    """Make the crew what CREW says; done again, it changes nothing."""
    models = await plugin.host.models.list()

    def pick(patterns: tuple[str, ...]) -> str | None:
        found = (each for pattern in patterns for each in models if pattern in each.identifier)
        return next((each.id for each in found), None)

    # The lead first: its id is what the specialists stand under.
    lead_id = await provision(LEAD, pick(CREW[LEAD]["models"]), None)
    for key in CREW.keys() - {LEAD}:
        await provision(key, pick(CREW[key]["models"]), lead_id)
    for agent in await plugin.host.agents.list():
        if agent.key not in CREW:
            await plugin.host.agents.delete(agent.id)  # of an earlier version


async def provision(key: str, model_id: str | None, lead_id: str | None) -> str:
    """Make a member, or set it again. To keep what its owner has edited, leave out the update."""
    member = {name: value for name, value in CREW[key].items() if name != "models"}
    if model_id is not None:
        member["model_id"] = model_id
    member |= {"is_subagent": lead_id is not None, "parent_agent_id": lead_id}
    made = await plugin.host.agents.create(key, **member)
    if not made.was_created:
        await plugin.host.agents.update(made.id, enabled=True, **member)
    return made.id


@plugin.on("plugin_installed")
@plugin.on("plugin_updated")
@plugin.on("session_started")
async def heal(event: Event) -> None:
    """Have the crew whole again."""
    async with whole:
        await reconcile()


if __name__ == "__main__":
    plugin.main()
