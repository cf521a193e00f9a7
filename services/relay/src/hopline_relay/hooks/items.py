"""What hooks are asked about, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from hopline.hooks.v1.hook_pb2 import HookContext
from hopline_directory import PluginRecord

MESSAGE: Final = "inter_agent_message"
TODO: Final = "todo_added"
SCHEDULED: Final = "notify_scheduled"
DELIVERED: Final = "notify_delivered"
SYSTEM_PROMPT: Final = "system_prompt"
KINDS: Final = (MESSAGE, TODO, SCHEDULED, DELIVERED, SYSTEM_PROMPT)

FAIL_CLOSED: Final = "fail_closed"
# In the place of a plugin's id.
BUILT_IN: Final = "hopline"


@dataclass(frozen=True, slots=True)
class Words:
    """What is said; only messages have a subject and a payload."""

    text: str
    subject: str = ""
    payload: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a hook says: other words, or why the item goes no further; neither, and it passes."""

    words: Words | None = None
    veto: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an item stands: what a plugin does because of it counts one further on.

    `session_id` is the session in which it came about, and which a plugin is handed with it.
    """

    workspace_id: str
    session_id: str = ""
    # Who runs that session, and its channel where that is at hand.
    agent_id: str = ""
    channel: str = ""
    depth: int = 0
    root_id: str = ""
    generation: int = 0
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that hooks are asked about, once.

    `most`: bytes of text that it takes. `request` writes what a plugin is asked, for a plugin and the words
    as they are by then. `is_report`: a subagent's to its caller.
    """

    kind: str
    event_id: str
    origin: Origin
    words: Words
    most: int
    request: Callable[[PluginRecord, HookContext, Words], Any]
    is_report: bool = False

    @property
    def workspace_id(self) -> str:
        """Its workspace."""
        return self.origin.workspace_id


@dataclass(frozen=True, slots=True)
class Note:
    """What the audit log says of one hook; never the text."""

    kind: str
    plugin_id: str
    plugin_name: str
    outcome: Literal["rewrote", "vetoed", "dropped", "failed"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Shaped:
    """What hooks have made of an item: canceled with a reason, dropped with no text left, or its words."""

    words: Words
    canceled: str = ""
    notes: tuple[Note, ...] = ()

    @property
    def goes_on(self) -> bool:
        """Whether anything is left to deliver."""
        return not self.canceled and bool(self.words.text)
