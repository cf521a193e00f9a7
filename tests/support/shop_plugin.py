"""A plugin for tests, run as a process: tools, a skill, a command, and work that it starts itself."""

from __future__ import annotations

import os
from typing import Any

from hopline_client.plugin import Chat, Event, Plugin

plugin = Plugin(
    "shop",
    name="Shop",
    endpoint=os.environ.get("SHOP_ENDPOINT", "127.0.0.1:7500"),
    permissions=["session", "agents.read", "agents.write"],
    agents=[{"key": "librarian", "name": "Librarian"}],
    skills=[{"name": "selling", "description": "Before you sell.", "text": "Smile, then name the price."}],
    commands=[{"name": "research", "description": "Look something up.", "agent_key": "librarian"}],
)


@plugin.tool
def stock(item: str) -> int:
    """Say how many of an item there are."""
    return {"pear": 3}.get(item, 0)


@plugin.tool
async def research(question: str, chat: Chat) -> dict[str, Any]:
    """Hand a question to the librarian; the answer comes later, as a message."""
    spawned = await chat.spawn(question, agent="shop-librarian")
    return {"outcome": spawned.outcome, "session_id": spawned.session_id}


@plugin.tool
async def consult(question: str) -> dict[str, Any]:
    """Ask the librarian, and wait for the answer."""
    librarian = plugin.host.connection("librarian")
    return await librarian.call("ask", {"message": question})


@plugin.on("plugin_installed")
async def set_up(event: Event) -> None:
    await plugin.host.agents.create("librarian", "Librarian", description="Looks things up.")


@plugin.on("session_started")
async def greet(event: Event) -> None:
    lines = (await event.chat.read()).lines
    if any("what is new" in line.text for line in lines):
        await event.chat.spawn("what is new today?", agent="shop-librarian")


if __name__ == "__main__":
    plugin.main()
