"""What a plugin hears of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal

from hopline_client.plugin.chat import Chat

EventKind = Literal["plugin_installed", "plugin_updated", "session_started"]
KINDS: Final[tuple[EventKind, ...]] = ("plugin_installed", "plugin_updated", "session_started")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened. It may come more than once, with the same `id`."""

    id: str
    kind: EventKind
    at: float
    attempt: int
    # The session that has begun; without one where the plugin may not know of it.
    chat: Chat
    # Of an installation or an update.
    version: str = ""
    previous_version: str = ""


Handler = Callable[[Event], Awaitable[None] | None]
