"""Schedules and webhooks: what starts turns at depth 0 in a person's name while the person is elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from hopline_relay.domain.values import Actor

SCHEDULE: Final = "schedule"
WEBHOOK: Final = "webhook"
# The kinds, which are also the channels of their sessions. Each source has one session: what comes while a
# turn runs there waits in it, in order.
SOURCES: Final = frozenset({SCHEDULE, WEBHOOK})

MAX_SCHEDULES: Final = 100
MAX_WEBHOOKS: Final = 100
# Signatures are good for so long before and after the time they name.
FRESH_SECONDS: Final = 300.0
# How long the secret before stays valid beside a new one.
ROTATION_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Source:
    """A schedule or a webhook, and the person in whose name it starts things."""

    kind: Literal["schedule", "webhook"]
    id: str
    name: str
    author_id: str

    @property
    def actor(self) -> Actor:
        """How the record names it."""
        return Actor(self.kind, self.id, self.name)


@dataclass(frozen=True, slots=True)
class Firing:
    """One time of a schedule, taken by the transaction that writes its turn.

    `due_at` is what has to stand in the record for it; `next_at` takes its place (None: there is none).
    `missed` times before this moment had passed unseen.
    """

    workspace_id: str
    schedule_id: str
    agent_id: str
    due_at: float
    next_at: float | None
    missed: int


def standing_title(kind: str, name: str) -> str:
    """Return the title of a source's session."""
    return f"{kind.capitalize()} {name}"


def name_in(title: str) -> str:
    """Return the name of the source whose session has this title."""
    return title.partition(" ")[2]
