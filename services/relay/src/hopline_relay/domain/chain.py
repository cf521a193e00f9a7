"""The chain of the audit log: what is hashed of an event, and how one event hangs on the one before.

    link(0) = SHA-256("hopline audit log", a line feed, the workspace's id)
    link(n) = SHA-256(link(n-1) + canonical(event n))

A link depends on the events up to it and on nothing else, neither on who sealed it nor in which batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

LINK_BYTES: Final = 32
# What is hashed of an event, in this order. A column that is added later goes to the end, under a condition
# that leaves the events before it as they were.
COLUMNS: Final = (
    "seq",
    "at",
    "action",
    "actor_kind",
    "actor_id",
    "actor_name",
    "agent_id",
    "thread_id",
    "message_id",
    "turn_id",
    "session_id",
    "details",
    "trace_id",
)
# A JSON array: text in quotes, so that nothing can move from one column into the next. What no column of ours
# holds (bytes) is written all the same, and is not what was sealed.
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=repr).encode


@dataclass(frozen=True, slots=True)
class Head:
    """Where the chain stands after an event."""

    seq: int
    link: bytes

    @property
    def text(self) -> str:
        """Return the link in hexadecimal."""
        return self.link.hex()


def beginning(workspace_id: str) -> Head:
    """Return the head of a log that is empty."""
    return Head(0, sha256(f"hopline audit log\n{workspace_id}".encode()).digest())


def next_link(link: bytes, event: Sequence[Any]) -> bytes:
    """Return the link of an event (its `COLUMNS`) that follows the one with `link`."""
    return sha256(link + _encode(list(event)).encode("utf-8", "surrogatepass")).digest()


def links(link: bytes, events: Iterable[Sequence[Any]]) -> list[bytes]:
    """Return the links of events that follow each other."""
    found = []
    for event in events:
        link = next_link(link, event)
        found.append(link)
    return found
