"""What a plugin's hooks are asked about, and what they may say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from hopline_client.plugin.chat import Chat

HookKind = Literal[
    "inter_agent_message", "todo_added", "notify_scheduled", "notify_delivered", "system_prompt"
]
FailMode = Literal["fail_open", "fail_closed"]
HOOK_KINDS: Final[tuple[HookKind, ...]] = (
    "inter_agent_message",
    "todo_added",
    "notify_scheduled",
    "notify_delivered",
    "system_prompt",
)


@dataclass(frozen=True, slots=True)
class Acting:
    """An agent, and where it acts. `key`: of the plugin's own agents, what it created them under."""

    id: str
    slug: str
    name: str
    key: str | None
    # Empty where it is yet to be opened, or nothing runs.
    session_id: str
    turn_id: str


@dataclass(frozen=True, slots=True)
class Hooked:
    """Something on its way. `agent` is who says, adds, sets or runs it; `recipient` whom a message is for."""

    kind: HookKind
    # The same for every hook that is asked about it.
    event_id: str
    text: str
    agent: Acting
    # The session that it comes from: what may be done there.
    chat: Chat
    # How many reactions of plugins it is away from what people and agents do of themselves.
    generation: int
    depth: int
    # Of messages alone.
    recipient: Acting | None = None
    message_kind: str = ""
    subject: str = ""
    payload: Any = None
    is_subagent_report: bool = False
    reply_expected: bool = False
    thread_id: str = ""
    in_reply_to: str = ""
    # Of timers: when it fires, or which one it is.
    fire_at: float | None = None
    timer_id: str = ""
    # Of system prompts: the session's channel and what the turn is for.
    channel: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Veto:
    """It goes no further, and whoever did it is told why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A message goes on in these words; `subject` and `payload` stay unless given. No text: it is dropped."""

    text: str
    subject: str | None = None
    # JSON text; empty for none.
    payload_json: str | None = None


Said = str | Rewrite | Veto | None
"""What a hook says: other words, no, or nothing (it passes)."""
HookHandler = Callable[[Hooked], Awaitable[Said] | Said]
