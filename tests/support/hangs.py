"""Four ways in which an `ask` hangs, staged on a real mesh, for those who have to find out why and end it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopline_client import Turn

from tests.support.mesh_process import Held, Process, Space, until

TURN_STATES_OPEN = {"queued", "running", "waiting_for_owner"}


@dataclass
class Hang:
    """An agent that was asked something and waits: its turn, and what stands in the way."""

    space: Space
    turn_id: str
    worker: Process | None = None

    async def state(self) -> str:
        """Return how the turn stands."""
        found = await self.space.mesh.cli("tree", self.turn_id, "--workspace", self.space.name)
        return str(next(each["status"] for each in found["turns"] if each["id"] == self.turn_id))

    async def over(self, expected: str = "completed") -> None:
        """Wait until the turn has ended."""

        async def ended() -> bool:
            return await self.state() not in TURN_STATES_OPEN

        await until(ended, "the end of the turn")
        assert await self.state() == expected


async def _asked(space: Space, peer: str) -> str:
    """Have the agent `lead` ask a peer within a turn, and wait for the answer."""

    async def ask(turn: Turn) -> str:
        return str((await turn.mesh.ask(peer, "look at it", wait_seconds=50)).text)

    (lead,) = await space.agents("lead")
    await space.work(lead, ask)
    begun = await space.mesh.cli("chat", "lead", "go", "--wait", "0", "--workspace", space.name)

    async def waits() -> bool:
        found = await space.mesh.cli("tree", begun["turn_id"], "--workspace", space.name)
        return len(found["turns"]) > 1

    await until(waits, "the ask")
    return str(begun["turn_id"])


async def stopped_worker(space: Space) -> Hang:
    """The peer's worker was killed while it worked."""
    (peer,) = await space.agents("peer")
    worker = await space.attach(peer, "sleep", "600")
    turn_id = await _asked(space, "peer")

    async def works() -> bool:
        found = await space.mesh.cli("tree", turn_id, "--workspace", space.name)
        return any(each["agent"]["name"] == "peer" and each["status"] == "running" for each in found["turns"])

    await until(works, "the peer's turn")
    worker.kill_with_children()
    return Hang(space, turn_id, worker)


async def owners_question(space: Space) -> Hang:
    """The peer has asked its owner."""
    (peer,) = await space.agents("peer")

    async def ask_owner(turn: Turn) -> str:
        found = await turn.mesh.ask_owner("Deploy 1.2?", options=["yes", "no"], wait_seconds=50)
        return f"the owner says {found.answer}"

    await space.work(peer, ask_owner)
    return Hang(space, await _asked(space, "peer"))


async def full_run_queue(space: Space) -> Hang:
    """Another agent has the only run slot."""
    await space.policy(concurrent_runs=2)
    hog, peer = await space.agents("hog", "peer")
    held = Held()
    await space.work(hog, held)

    async def answer(turn: Turn) -> str:
        return "looked at"

    await space.work(peer, answer)
    full = asyncio.Event()

    async def ask(turn: Turn) -> str:
        await turn.mesh.send("hog", "work")
        await full.wait()
        return str((await turn.mesh.ask("peer", "look at it", wait_seconds=50)).text)

    (lead,) = await space.agents("lead")
    await space.work(lead, ask)
    begun = await space.mesh.cli("chat", "lead", "go", "--wait", "0", "--workspace", space.name)
    turn_id = begun["turn_id"]
    await held.begun()
    await space.policy(concurrent_runs=1)
    full.set()

    async def waits() -> bool:
        found = await space.mesh.cli("tree", turn_id, "--workspace", space.name)
        return any(each["agent"]["name"] == "peer" for each in found["turns"])

    await until(waits, "the ask")
    return Hang(space, turn_id)


@contextlib.asynccontextmanager
async def stuck_hook(space: Space, folder: Path) -> AsyncIterator[Hang]:
    """A plugin's hook takes every message in and says nothing."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    manifest: dict[str, Any] = {
        "key": "censor",
        "name": "Censor",
        "version": "1",
        "endpoint": f"127.0.0.1:{port}",
        "hooks": [{"kind": "inter_agent_message", "order": 1, "fail_mode": "fail_closed"}],
    }
    file = folder / "censor.yaml"
    file.write_text(json.dumps(manifest))  # JSON is YAML
    await space.mesh.cli("plugin", "install", str(file), "--yes", "--workspace", space.name)
    lead, peer = await space.agents("lead", "peer")

    async def answer(turn: Turn) -> str:
        return "looked at"

    async def ask(turn: Turn) -> str:
        while True:
            found = await turn.mesh.ask("peer", "look at it", wait_seconds=50)
            if found.status == "completed":
                return str(found.text)

    await space.work(peer, answer)
    await space.work(lead, ask)
    begun = await space.mesh.cli("chat", "lead", "go", "--wait", "0", "--workspace", space.name)
    try:
        yield Hang(space, begun["turn_id"])
    finally:
        server.close()
