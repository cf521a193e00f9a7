"""The words and values that the relay's rules are written in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

TurnState = Literal["queued", "running", "completed", "failed", "canceled"]
DeliveryState = Literal[
    "queued", "delivered", "taken", "answered", "done", "failed", "dead", "vetoed", "withdrawn"
]
MessageKind = Literal[
    "message",
    "ask",
    "prompt",
    "reply",
    "answer",
    "notice",
    "question",
    "owner_answer",
    "tool",
    "todo",
    "timer",
    "draft",
    "task",
    "peer",
    "report",
]
PartyKind = Literal["agent", "user", "schedule", "webhook", "mesh"]

# A lease of a turn on a tunnel, and how long a worker whose stream broke may take to come back.
LEASE_SECONDS: Final = 30.0
# A lease of messages that an agent pulled; any call of the agent renews it.
PULL_LEASE_SECONDS: Final = 600.0
MAX_ATTEMPTS: Final = 3
MAX_WAIT_SECONDS: Final = 50
MAX_ANSWER_BYTES: Final = 256 * 1024
REQUEST_SECONDS: Final = 86_400.0
MAX_INBOX_PAGE: Final = 200
DEFAULT_PAGE: Final = 50
TITLE_LENGTH: Final = 60
# Messages that carry something back: they start nothing of their sender's own.
ANSWERS: Final = frozenset({"reply", "answer", "notice", "owner_answer", "report"})
# Notes by which the mesh itself wakes a session (`mesh_wakes.py`): open todos, a timer, a held draft.
# They go on with what they go back to, as answers do, and are counted among what its root has started.
WAKES: Final = frozenset({"todo", "timer", "draft"})
# Messages that may be owed an answer, by the final message of the turn that serves them if by nothing else.
QUESTIONS: Final = frozenset({"ask", "prompt", "task", "peer"})
# The first message to a child that an agent has started; what agents say in their standing conversation and
# into each other's sessions; what a child reports.
TASK: Final = "task"
PEER: Final = "peer"
REPORT: Final = "report"
# How many unfinished children a session may have.
MAX_CHILDREN: Final = 20
# The call of a server tool, and its turn. Such a turn is never queued and never tried again, runs beside the
# turns of its session, and its result is told to whoever called or, once that one has gone, to nobody.
TOOL: Final = "tool"
# The state of a delivery that a hook has kept from its recipient.
VETOED: Final = "vetoed"
# What a plugin puts into a session that it was handed.
POST: Final = "post"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who did something: an agent, a user, a service or the mesh itself."""

    kind: str
    id: str
    name: str = ""
    # In whose name an agent acts: what its owner is called at that moment.
    owner: str = ""


MESH: Final = Actor("mesh", "mesh", "the mesh")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a turn or a debt ended without an answer: a code for programs, a sentence for people."""

    code: str
    message: str


def sibling(prefix: str, identifier: str) -> str:
    """Return the id of another kind that goes with this one: what belongs together is recognised by it."""
    return f"{prefix}_{identifier.partition('_')[2]}"


def clamp_wait(seconds: int | None) -> int:
    """Return how long a call waits: at most 50 s, which is also what it waits unless told otherwise."""
    return MAX_WAIT_SECONDS if seconds is None else min(seconds, MAX_WAIT_SECONDS)


def extend_chain(chain: str, sender_id: str, agent_id: str) -> str:
    """Return the chain of a turn of `agent_id`: the agents from the root on, ids between spaces.

    `chain` is that of the turn it comes from; without one the chain begins with the sender, if an agent.
    """
    return " ".join(part for part in (chain or sender_id, agent_id) if part)


def session_title(name: str, number: int, *, tools: bool = False, standing: bool = False) -> str:
    """Return the title of the session in which an agent hears from `name`, or of the calls of its tools.

    `standing`: of its end of the conversation that it has with `name`.
    """
    title = f"With {name}" if standing else f"Tools for {name}" if tools else f"From {name}"
    return title if number == 1 else f"{title} ({number})"


def title_of(text: str) -> str:
    """Return the title of a session that a person opens with `text`: its first words."""
    line = " ".join(text.split())
    if len(line) <= TITLE_LENGTH:
        return line or "Conversation"
    return line[: TITLE_LENGTH - 1].rstrip() + "…"


def lowest_free(numbers: dict[int, bool]) -> int:
    """Return the lowest number that is free, or the next one. `numbers` maps each to whether it is busy."""
    free = [number for number, busy in numbers.items() if not busy]
    return min(free) if free else max(numbers, default=0) + 1
