"""The limits of a workspace: the presets, by the names of the policy's keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Value = int | str | bool

CUSTOM: Final = "custom"
_DEFAULT: Final[Mapping[str, Value]] = {
    "max_depth": 4,
    "root_turns": 200,
    "messages_per_thread": 20,
    "sent_per_day": 200,
    "received_per_day": 500,
    "pair_budget": "30/300s",
    "concurrent_runs": 10,
    "inbox_backlog": 1000,
    "agents": 25,
    "refuse_cycles": "off",
    "credits": "off",
    "subagent_depth": 1,
    "hook_generations": 4,
    "refusals": "300/60s",
    "causality_window_seconds": 600,
    "turn_seconds": 3600,
    "queue_seconds": 86400,
    "retention_days": 0,
    "batch_inbox": False,
    "require_isolation": False,
    "redact_credentials": False,
    "evidence_required": False,
}
_DIFFERENCES: Final[Mapping[str, Mapping[str, Value]]] = {
    "default": {},
    "strict": {"max_depth": 2},
    "free": {"agents": 2, "concurrent_runs": 1},
    "solo": {"agents": 5, "concurrent_runs": 3},
    "entrepreneur": {"agents": 25, "concurrent_runs": 10},
}
PRESETS: Final[Mapping[str, Mapping[str, Value]]] = {
    name: {"preset": name, **_DEFAULT, **differences} for name, differences in _DIFFERENCES.items()
}
KEYS: Final = tuple(_DEFAULT)


def complete(stored: Mapping[str, Value]) -> dict[str, Value]:
    """Return a policy with the defaults of the keys that came after it was stored."""
    return {**_DEFAULT, **stored}


def changed(policy: Mapping[str, Value], wanted: Mapping[str, Value]) -> dict[str, Value]:
    """Return the policy with some keys replaced; its preset becomes `custom` when that changes anything."""
    merged = {**policy, **wanted}
    if merged != dict(policy):
        merged["preset"] = CUSTOM
    return merged


def differences(before: Mapping[str, Value], after: Mapping[str, Value]) -> dict[str, list[Value]]:
    """Return the keys that differ, each with its old and its new value."""
    return {key: [before[key], after[key]] for key in KEYS if before[key] != after[key]}
