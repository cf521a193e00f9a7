"""Held answers under random acts, some at once: never held for nothing, never sent early, answered once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hopline.relay.v1 import draft_pb2, todo_pb2
from hopline_relay.store import holds
from hopline_relay.turns import ClaimedTurn
from hopline_rpc.errors import HoplineError

from tests.support.holds import Led, led
from tests.support.relay_mesh import RelayMesh, attempt, relay_mesh

STEPS = 40
_LIVE = ("queued", "running")
# What makes something happen; all else is as likely as its fellows.
_OFTEN = {"prompt": 4, "start": 5, "lead": 5, "report": 3, "reply": 2, "note": 2}


class Play:
    """A lead, its subagents and a person who do something at random; looks at the record after each step."""

    def __init__(self, mesh: RelayMesh, crew: Led, seed: int) -> None:
        self.mesh = mesh
        self.crew = crew
        self.random = random.Random(seed)
        self.story: list[str] = []
        # The turns that are at their workers, by agent's name.
        self.turns: dict[str, list[ClaimedTurn]] = {"boss": [], "ann": [], "bo": []}
        self.session = ""
        self.answered: set[str] = set()
        # What was released by a person, or given up, may go out early.
        self.may_be_early = False

    # --- acts -------------------------------------------------------------------------------------

    def acts(self) -> dict[str, Callable[[], Awaitable[Any]]]:
        return {
            "prompt": self.prompt,
            "lead": self.lead,
            "start": self.start,
            "reply": self.reply,
            "report": self.report,
            "child fails": self.child_fails,
            "close": self.close,
            "cancel child": self.cancel_child,
            "release": self.release,
            "cancel prompt": self.cancel_prompt,
            "time": self.time,
            "note": self.note,
            "remove": self.remove,
        }

    async def step(self) -> None:
        acts = list(self.acts())
        weights = [_OFTEN.get(name, 1) for name in acts]
        names = self.random.choices(acts, weights, k=self.random.choice((1, 1, 1, 2, 3)))
        self.story.append(" + ".join(names))
        # Nor does what begins while an answer that was final is on its way.
        self.may_be_early = bool({"release", "cancel prompt"} & set(names) or {"lead", "start"} <= set(names))
        done = asyncio.gather(*(self.acts()[name]() for name in names), return_exceptions=True)
        for result in await done:
            if isinstance(result, BaseException) and not isinstance(result, HoplineError):
                raise result
        await self.look()

    async def prompt(self) -> None:
        new = not self.session or self.random.random() < 0.3
        turn = await attempt(self.crew.prompted_only("" if new else self.session))
        if not isinstance(turn, HoplineError):
            self.session = turn.session_id

    async def _at(self, name: str) -> ClaimedTurn | None:
        worker = self.crew.lead if name == "boss" else self.crew.workers[name]
        self.turns[name] += await worker.claim(3)
        return self.turns[name].pop(0) if self.turns[name] else None

    async def lead(self) -> None:
        turn = await self._at("boss")
        if turn is None:
            return
        what = self.random.choice(("says", "says", "silent", "fails"))
        answer = f"{what} {len(self.story)}" if what == "says" else None
        await self.crew.lead.end(turn, answer, "it broke" if what == "fails" else None)

    async def start(self) -> None:
        turn = await self._at("boss")
        if turn is None:
            return
        for name in self.random.sample(("ann", "bo"), self.random.choice((1, 2))):
            await attempt(self.crew.start(turn, name, forget=self.random.random() < 0.2))
        self.turns["boss"].insert(0, turn)

    async def reply(self) -> None:
        turn = await self._at("boss")
        if turn is None:
            return
        said = await attempt(self.crew.reply(turn, f"told {len(self.story)}"))
        if not isinstance(said, HoplineError) and said.status == draft_pb2.REPLY_STATUS_HELD:
            assert said.waiting_on or said.open_todos
        self.turns["boss"].insert(0, turn)

    async def note(self) -> None:
        if self.random.random() < 0.4 and (turn := await self._at("boss")) is not None:
            request = todo_pb2.AddTodosRequest(texts=["something"])
            handlers = self.mesh.relay.handlers.todos
            await attempt(handlers.add_todos(await self.crew.lead.principal(), request, turn_id=turn.turn_id))
            self.turns["boss"].insert(0, turn)

    async def remove(self) -> None:
        rows = await self.rows("SELECT id FROM todos WHERE state = 'open'")
        if rows:
            request = todo_pb2.RemoveTodoRequest(todo_id=self.random.choice(rows).id)
            await attempt(self.mesh.admin.todos.RemoveTodo(request))

    async def report(self) -> None:
        name = self.random.choice(("ann", "bo"))
        if (turn := await self._at(name)) is not None:
            await self.crew.workers[name].end(turn, self.random.choice(("found it", "")))

    async def child_fails(self) -> None:
        name = self.random.choice(("ann", "bo"))
        if (turn := await self._at(name)) is not None:
            await self.crew.workers[name].end(turn, failure="no")

    async def _child(self) -> Any:
        rows = await self.rows("SELECT session_id, turn_id FROM children WHERE state = 'live'")
        return self.random.choice(rows) if rows else None

    async def close(self) -> None:
        if (child := await self._child()) is not None:
            by = self.random.choice((self.mesh.admin, self.crew.lead.agent))
            await attempt(self.crew.close(child.session_id, by))

    async def cancel_child(self) -> None:
        if (child := await self._child()) is not None:
            await attempt(self.crew.cancel(turn_id=child.turn_id))

    async def release(self) -> None:
        if self.session:
            await attempt(self.crew.release(self.session))

    async def cancel_prompt(self) -> None:
        rows = await self.rows("SELECT turn_id FROM debts WHERE state = 'open' AND creditor_kind = 'user'")
        if rows and self.random.random() < 0.3:
            await attempt(self.crew.cancel(turn_id=self.random.choice(rows).turn_id))

    async def time(self) -> None:
        await self.mesh.clock.advance(self.random.choice((1, 6)))

    async def restart(self) -> None:
        await self.mesh.close_relay()
        await self.mesh.open_relay()
        await self.crew.attach()
        self.turns = {name: [] for name in self.turns}
        for turn in await self.rows("SELECT id FROM turns WHERE state = 'running'"):
            await self.mesh.worker_lost(turn.id)

    # --- what must hold ---------------------------------------------------------------------------

    async def rows(self, query: str) -> list[Any]:
        return await self.mesh.relay.journal.read(
            lambda connection: list(connection.exec_driver_sql(query).all())
        )

    async def look(self) -> None:
        relay = self.mesh.relay
        await relay.left.todos.look()
        await self.crew.settled()
        await relay.holding.catch_up()
        await self.crew.settled()
        held = {row.turn_id: row for row in await self.rows("SELECT * FROM holds")}
        owed = await self.rows(
            "SELECT d.*, t.state AS turn_state FROM debts d JOIN turns t ON t.id = d.turn_id"
            " WHERE d.creditor_kind = 'user'"
        )
        for debt in owed:
            if debt.state == "open":
                assert debt.turn_state in _LIVE or debt.turn_id in held, "owed by nobody"
        for turn_id, row in held.items():
            why, at_work = await relay.journal.read(partial(self._why, row=row))
            assert why or at_work, f"{turn_id} is held for nothing"
        answers = await self.rows(
            "SELECT m.in_reply_to, m.id, m.body, t.root_id, t.id AS turn_id FROM messages m"
            " JOIN turns t ON t.message_id = m.in_reply_to"
            " WHERE t.cause = 'prompt' AND m.kind IN ('answer', 'reply')"
        )
        paid = {debt.message_id: debt.reply_message_id for debt in owed if debt.state == "answered"}
        unpaid = {debt.message_id for debt in owed if debt.state == "open"}
        said = {answer.id: answer for answer in answers}
        # Once a prompt is done with, a lead may say more to its person; that is no answer any more.
        assert not unpaid & {answer.in_reply_to for answer in answers}, "said without being the answer"
        assert all(reply_id in said for reply_id in paid.values()), "answered by nothing"
        for reply_id in set(paid.values()) - self.answered:
            self.answered.add(reply_id)
            early = await self._open(said[reply_id].root_id)
            assert self.may_be_early or not early, f"{said[reply_id].body} is early"

    def _why(self, connection: Any, row: Any) -> tuple[bool, bool]:
        seat = holds.seat_of_hold(row)
        return bool(holds.reasons(connection, seat, self.mesh.clock.now())), holds.at_work(connection, seat)

    async def _open(self, root_id: str) -> list[Any]:
        return await self.rows(
            "SELECT 1 FROM children c JOIN debts d ON d.turn_id = c.turn_id"
            f" WHERE c.state = 'live' AND d.state = 'open' AND c.root_id = '{root_id}'"
        )

    async def finish(self) -> None:
        """Let everything end that can, and see that nobody is left waiting."""
        for _ in range(200):
            busy = False
            for name, worker in [("boss", self.crew.lead), *self.crew.workers.items()]:
                self.turns[name] += await worker.claim(3)
                for turn in self.turns[name]:
                    await worker.end(turn, None if name == "boss" else "done")
                busy = busy or bool(self.turns[name])
                self.turns[name] = []
            await self.look()
            if not busy and not await self.rows("SELECT 1 FROM turns WHERE state = 'queued'"):
                break
        assert await self.rows("SELECT * FROM holds") == []
        assert await self.rows("SELECT * FROM debts WHERE state = 'open'") == []


async def play(folder: Path, seed: int, steps: int = STEPS) -> None:
    async with relay_mesh(folder) as mesh:
        await mesh.policy(pair_budget="0", sent_per_day=100_000, received_per_day=100_000)
        game = Play(mesh, await led(mesh, "ann", "bo"), seed)
        try:
            for number in range(steps):
                await game.step()
                if number % 15 == 14 and game.random.random() < 0.5:
                    game.story.append("restart")
                    await game.restart()
                    await game.look()
            await game.finish()
        except BaseException as error:
            error.add_note(f"seed {seed}: " + "; ".join(game.story))
            raise


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_no_lead_is_held_for_nothing_nor_answers_early_nor_twice(
    tmp_path: Path, seed: int
) -> None:
    await play(tmp_path, seed)
