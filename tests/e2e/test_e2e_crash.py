"""A mesh that is killed under load and started again on the same data."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from dataclasses import dataclass, field

from hopline_client import HoplineError
from hopline_client import Mesh as Client

from tests.support.mesh_process import Agent, MeshProcess, Space, shout, until
from tests.support.record import (
    charges_match_the_record,
    log_is_as_it_was_sealed,
    thread_reads_as_it_is_stored,
    threads_have_no_gaps,
)

RECEIVERS = ("answering", "pulling")
# What a client cannot know the outcome of.
UNKNOWN = {"unavailable", "deadline_exceeded"}


@dataclass
class Start:
    """Something that a client tried to start, and what it was told of it."""

    agent: Agent
    text: str
    to: tuple[str, ...]
    asks: bool
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    message_id: str = ""
    turn_id: str = ""

    async def attempt(self, client: Client) -> None:
        """Try it once."""
        if self.asks:
            asked = await client.ask(self.to[0], self.text, wait_seconds=2, request_id=self.request_id)
            self.message_id, self.turn_id = asked.message_id, asked.turn_id
        else:
            sent = await client.send(self.to, self.text, request_id=self.request_id)
            self.message_id = sent.message_id


class Load:
    """Clients that send and ask until the mesh is gone."""

    def __init__(self, space: Space, senders: list[Agent]) -> None:
        self._space = space
        self._senders = senders
        self._numbers = itertools.count()
        self.starts: list[Start] = []

    @property
    def accepted(self) -> list[Start]:
        return [each for each in self.starts if each.message_id]

    async def run(self) -> None:
        """Go on until each client has found the mesh gone."""
        await asyncio.gather(*(self._client(sender) for sender in self._senders for _ in range(4)))

    async def _client(self, sender: Agent) -> None:
        client = self._space.client(sender)
        while True:
            start = self._next(sender)
            self.starts.append(start)
            try:
                await start.attempt(client)
            except HoplineError as error:
                if error.reason not in UNKNOWN:
                    raise
                return

    def _next(self, sender: Agent) -> Start:
        number = next(self._numbers)
        to = (RECEIVERS, RECEIVERS[:1], RECEIVERS[:1], RECEIVERS[1:])[number % 4]
        return Start(sender, f"number {number}", to, asks=number % 4 == 2)


async def repeat(space: Space, starts: list[Start]) -> None:
    """Try again with the same request_id, which is what a client does that was not told the outcome."""
    for start in starts:
        told = start.message_id
        await start.attempt(space.client(start.agent))
        assert told in ("", start.message_id), f"{start.text}: accepted as {told}, now {start.message_id}"


async def test_what_was_accepted_is_there_once_and_every_ask_ends_after_a_kill_under_load(
    own_mesh: MeshProcess, own_space: Space
) -> None:
    mesh, space = own_mesh, own_space
    senders = await space.agents("one", "two", "three")
    answering, pulling = await space.agents(*RECEIVERS)
    await space.policy(pair_budget="0", sent_per_day=10_000, received_per_day=10_000, inbox_backlog=10_000)
    await space.work(answering, shout)
    load = Load(space, senders)
    running = asyncio.create_task(load.run())
    await until(lambda: running.done() or len(load.accepted) >= 120, "the load")
    await asyncio.to_thread(mesh.kill)
    await running
    told = {start.message_id for start in load.accepted}
    unknown = [start for start in load.starts if not start.message_id]
    assert unknown, "nobody was in a call when the mesh was killed"

    await mesh.restart()
    found = {row[0] for row in mesh.rows("SELECT id FROM messages WHERE kind IN ('message', 'ask')")}
    assert told <= found, f"{len(told - found)} accepted messages are lost"
    await repeat(space, [*unknown, *load.accepted[::20]])

    async def all_ended() -> bool:
        return not mesh.rows(
            "SELECT id FROM turns WHERE agent_id = ? AND ended_at IS NULL LIMIT 1", answering.id
        )

    await until(all_ended, "the end of every turn of the agent with a worker")
    await asks_ended(space, load)
    messages_are_there_once(mesh, load)
    threads_have_no_gaps(mesh)
    await thread_reads_as_it_is_stored(mesh, space)
    await log_is_as_it_was_sealed(space)
    for agent in (*senders, answering, pulling):
        await charges_match_the_record(mesh, space, agent)


async def asks_ended(space: Space, load: Load) -> None:
    asks = [start for start in load.starts if start.asks]
    assert asks
    for start in asks:
        found = await space.client(start.agent).check(turn_id=start.turn_id, wait_seconds=0)
        assert (found.status, found.reply) == ("completed", start.text.upper())
    rows = space.mesh.rows("SELECT state, count(*) FROM debts GROUP BY state")
    assert rows == [("answered", len(asks))]


def messages_are_there_once(mesh: MeshProcess, load: Load) -> None:
    rows = mesh.rows("SELECT body, id FROM messages WHERE kind IN ('message', 'ask') ORDER BY body")
    assert rows == sorted((start.text, start.message_id) for start in load.starts)
    deliveries = mesh.rows(
        "SELECT m.body, count(*) FROM messages m JOIN deliveries d ON d.message_id = m.id"
        " WHERE m.kind IN ('message', 'ask') GROUP BY m.id ORDER BY m.body"
    )
    assert deliveries == sorted((start.text, len(start.to)) for start in load.starts)
    turns = mesh.rows("SELECT message_id, agent_id FROM turns WHERE cause IN ('message', 'ask')")
    assert len(turns) == len(set(turns)) == sum(len(start.to) for start in load.starts)
