"""The tools by family. A tool's name is found in exactly one of these modules."""

from __future__ import annotations

from hopline_gateway.toolkit import Tool
from hopline_gateway.tools import (
    asks,
    delegation,
    human,
    identity,
    messages,
    owner,
    sessions,
    threads,
    todos,
)

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
    "message_agent",
    "start_subagent",
    "start_self_subagent",
    "report_to_caller",
    "send_message_to_session",
    "list_agent_sessions",
    "read_session",
    "close_subagent",
    "reply_to_human",
    "todo_write",
    "todo_list",
    "todo_complete",
    "todo_remove",
    "todo_snooze",
    "notify_session_in",
    "notify_list",
    "notify_cancel",
)
_FAMILIES = (identity, messages, asks, threads, owner, delegation, sessions, human, todos)
_FOUND = {tool.name: tool for family in _FAMILIES for tool in family.TOOLS}

TOOLS: dict[str, Tool] = {name: _FOUND[name] for name in _ORDER}
