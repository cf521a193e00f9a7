"""The tools by family. A tool's name is found in exactly one of these modules."""

from __future__ import annotations

from hopline_gateway.toolkit import Tool
from hopline_gateway.tools import asks, identity, messages, owner, threads

_ORDER = (
    "whoami",
    "list_agents",
    "send_message",
    "ask",
    "check",
    "read_inbox",
    "reply",
    "done",
    "list_threads",
    "read_thread",
    "ask_owner",
    "cancel",
)
_FOUND = {tool.name: tool for family in (identity, messages, asks, threads, owner) for tool in family.TOOLS}

TOOLS: dict[str, Tool] = {name: _FOUND[name] for name in _ORDER}
