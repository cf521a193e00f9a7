"""Typical mistakes about whom to address, recognised by the name alone.

A hint never depends on who exists: it says the same whether or not somebody hidden bears the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from hopline_rpc.errors import HoplineError

_EVERYONE: Final = frozenset(
    {"*", "all", "everyone", "everybody", "broadcast", "any", "anyone", "agents", "all agents", "team"}
)
_PEOPLE: Final = frozenset({"user", "human", "owner", "operator", "admin", "me", "myself", "person"})
_PROGRAMS: Final = frozenset(
    {
        "aider",
        "chatgpt",
        "claude code",
        "claude desktop",
        "cline",
        "codex",
        "copilot",
        "cursor",
        "gemini cli",
        "goose",
        "opencode",
        "vscode",
        "windsurf",
        "zed",
    }
)
_MODEL: Final = re.compile(
    r"(claude|gpt|o[134]|gemini|gemma|llama|mistral|mixtral|qwen|deepseek|grok|sonnet|opus|haiku|kimi|glm|phi)"
    r"([-_. :/]?v?\d[\w.:-]*|[-_ ](opus|sonnet|haiku|pro|flash|mini|turbo|instant|large|nano)\b.*|)\Z"
)
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+\Z")


def hint(name: str) -> str:
    """Return what is probably wrong with a recipient's name; empty when nothing comes to mind."""
    plain = name.strip().lower().replace("_", " ").replace("-", " ")
    if plain in _EVERYONE:
        return f"{name!r} is nobody: there is no broadcast; name up to 10 agents in a list."
    if _EMAIL.match(name.strip()):
        return f"{name!r} is an email address; agents are addressed by name or id."
    if name.startswith("@"):
        return f"Write the name without the @: {name[1:]!r}."
    if plain in _PEOPLE:
        return f"{name!r} is a person, not an agent; only agents can be addressed."
    if plain in _PROGRAMS:
        return f"{name!r} is the name of a program; agents have names of their own."
    if _MODEL.match(name.strip().lower().rpartition("/")[2]):
        return f"{name!r} is the name of a model; agents have names of their own."
    return ""


def with_hints(error: HoplineError, names: Iterable[str]) -> HoplineError:
    """Add to a `not_found` what the names asked for suggest."""
    if error.reason != "not_found":
        return error
    hints = [found for name in names if (found := hint(name))]
    if not hints:
        return error
    return HoplineError(
        "not_found",
        " ".join([error.message.rstrip(".") + ".", *hints]),
        details=error.details,
        violations=error.violations,
    )
