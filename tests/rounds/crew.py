"""What the crew does with its turns: as scripted models would, by chance."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf import message_factory
from hopline.runtime.v1 import tunnel_pb2 as pb

from tests.rounds.cast import LEAD, SPECIALISTS
from tests.simulation.story import Story
from tests.simulation.workers import Start, Worker

# What a worker may call, and with what.
_REQUESTS: Final[dict[str, Any]] = {
    field.name: message_factory.GetMessageClass(field.message_type)
    for field in pb.Call.DESCRIPTOR.fields
    if field.message_type
}
# Words that the built-in rule for reports takes for a claim, with and without what it wants beside it.
CLAIM: Final = "it is done"
EVIDENCE: Final = "it is done, verified: tests pass"


@dataclass
class Crew:
    """The minds of a lead and its specialists; each turn is worked on in steps, one at a time."""

    rng: random.Random
    story: Story
    workers: dict[str, Worker] = field(default_factory=dict)
    # Turns in hand, and how many steps each still takes.
    work: dict[tuple[str, str], int] = field(default_factory=dict)
    children: list[str] = field(default_factory=list)
    todos: list[str] = field(default_factory=list)
    timers: list[str] = field(default_factory=list)
    # In which turn each call was made, by worker and number.
    asked: dict[tuple[str, int], str] = field(default_factory=dict)
    did: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    # Once true, whatever is in hand is ended, and nothing new begun.
    at_home: bool = False

    def started(self, worker: Worker, start: Start) -> None:
        """Take a turn: it goes on for some steps."""
        name = worker.agent.name
        self.did[f"{'lead' if name == LEAD else 'specialist'} turn: {start.cause}"] += 1
        self.story.tell(f"    {name} gets {start.turn_id[-6:]} ({start.cause}, depth {start.depth})")
        worker.accept(start)
        self.work[name, start.turn_id] = 0 if self.at_home else self.rng.choice((0, 1, 1, 2, 4))

    def step(self) -> None:
        """Go on with one of the turns that are in hand."""
        ready = [(name, turn_id) for name, turn_id in self.work if turn_id in self.workers[name].held]
        self.work = {key: self.work[key] for key in ready}
        if not ready:
            return
        name, turn_id = self.rng.choice(ready)
        worker = self.workers[name]
        if not worker.attached:
            return
        start = worker.held[turn_id]
        if self.at_home:
            self._end(worker, start, {"answer": "that is all"})
        elif self.work[name, turn_id] > 0:
            self.work[name, turn_id] -= 1
            (self._lead_calls if name == LEAD else self._specialist_calls)(worker, start)
        else:
            (self._lead_ends if name == LEAD else self._specialist_ends)(worker, start)

    # -- the lead ----------------------------------------------------------------------------------

    def _lead_calls(self, worker: Worker, start: Start) -> None:
        rng = self.rng
        specialist = self.workers[rng.choice(sorted(SPECIALISTS))].agent
        choices: list[tuple[int, str, dict[str, Any]]] = [
            (
                8,
                "start_subagent",
                {"agent": specialist.id, "task": "look into it", "is_fire_and_forget": rng.random() < 0.15},
            ),
            (1, "start_self_subagent", {"task": "do it for me"}),
            (2, "message_agent", {"agent": specialist.id, "text": "a word"}),
            (2, "ask", {"agent": specialist.id, "text": "well?", "wait_seconds": rng.choice((0, 20))}),
            (2, "add_todos", {"texts": ["one more thing"]}),
            (
                1,
                "set_timer",
                {"delay_seconds": rng.choice((10, 60, 600)), "message": "look again"},
            ),
            (1, "reply_to_human", {"text": "so far so good"}),
        ]
        if self.children:
            child = rng.choice(self.children)
            choices += [
                (2, "close_subagent", {"session_id": child}),
                (
                    1,
                    "send_message_to_session",
                    {"session_id": child, "text": "and this"},
                ),
            ]
        if self.todos:
            todo = rng.choice(self.todos)
            choices += [
                (4, "complete_todo", {"todo_id": todo}),
                (1, "remove_todo", {"todo_id": todo}),
                (1, "snooze_todo", {"todo_id": todo, "seconds": rng.choice((30, 700))}),
            ]
        if self.timers:
            choices.append((1, "cancel_timer", {"timer_id": rng.choice(self.timers)}))

        ((_, method, request),) = rng.choices(choices, [weight for weight, _, _ in choices])
        self._call(worker, start, method, request)

    def _lead_ends(self, worker: Worker, start: Start) -> None:
        outcomes: list[dict[str, Any]] = [{"answer": "here is what we found"}] * 6
        outcomes += [{"answer": ""}] * 3 + [{"failure": "it broke"}, {"canceled": True}]
        self._end(worker, start, self.rng.choice(outcomes))

    # -- the specialists ---------------------------------------------------------------------------

    def _specialist_calls(self, worker: Worker, start: Start) -> None:
        rng = self.rng
        text = rng.choice((CLAIM, EVIDENCE, "what I found"))
        choices: list[tuple[int, str, dict[str, Any]]] = [
            (5, "report_to_caller", {"text": text}),
            (1, "message_agent", {"agent": LEAD, "text": "a question"}),
            (1, "add_todos", {"texts": ["read on"]}),
            (1, "start_subagent", {"agent": "oracle", "task": "help me"}),
        ]
        if self.todos:
            choices.append((2, "complete_todo", {"todo_id": rng.choice(self.todos)}))

        ((_, method, request),) = rng.choices(choices, [weight for weight, _, _ in choices])
        self._call(worker, start, method, request)

    def _specialist_ends(self, worker: Worker, start: Start) -> None:
        rng = self.rng
        if rng.random() < 0.1:
            self.story.tell(f"{worker.agent.name} crashes")
            self.did["crashes"] += 1
            worker.forget()
            return
        outcomes: list[dict[str, Any]] = [{"answer": "my last words"}] * 4
        outcomes += [{"answer": CLAIM}, {"answer": ""}, {"answer": ""}, {"failure": "it broke"}]
        self._end(worker, start, rng.choice(outcomes))

    # -- either ------------------------------------------------------------------------------------

    def _call(self, worker: Worker, start: Start, method: str, request: dict[str, Any]) -> None:
        self.story.tell(f"{worker.agent.name} calls {method} in {start.turn_id[-6:]}")
        self.did[f"calls {method}"] += 1
        number = worker.call(start.turn_id, **{method: _REQUESTS[method](**request)})
        self.asked[worker.agent.name, number] = method

    def answered(self, worker: Worker, result: Any) -> None:
        """Remember what there is to close, complete and cancel."""
        kind = result.WhichOneof("result")
        method = self.asked.pop((worker.agent.name, result.call_id), "")
        if kind == "error":
            self.did[f"refused {method}: {result.error.code}"] += 1
            if result.error.code == "internal":
                self.broken.append(f"{method} of {worker.agent.name} failed: {result.error.message}")
            return
        answer = getattr(result, kind)
        if kind in ("start_subagent", "start_self_subagent") and answer.start.session_id:
            self.children = [*self.children[-10:], answer.start.session_id]
        elif kind == "add_todos":
            self.todos = [*self.todos[-20:], *(todo.id for todo in answer.todos)]
        elif kind == "set_timer":
            self.timers = [*self.timers[-5:], answer.timer.id]
        elif kind == "report_to_caller":
            self.did[f"reports: delivered {answer.is_delivered}"] += 1
        elif kind == "reply_to_human":
            self.did[f"replies to the human: {answer.status}"] += 1

    def _end(self, worker: Worker, start: Start, outcome: dict[str, Any]) -> None:
        self.story.tell(f"{worker.agent.name} ends {start.turn_id[-6:]}: {outcome}")
        self.work.pop((worker.agent.name, start.turn_id), None)
        worker.end(start, **outcome)
