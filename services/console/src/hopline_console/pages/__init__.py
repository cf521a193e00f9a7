"""The pages, a family a file: each has `routes(context)` and, for the menu, `NAV`.

A new family is a file here and its name in `FAMILIES`.
"""

from __future__ import annotations

from typing import Final

from hopline_console.pages import (
    activity,
    agents,
    audit,
    chat,
    credit,
    crews,
    dead,
    escalations,
    floor,
    held,
    hooks,
    models,
    plugins,
    policy,
    schedules,
    sessions,
    threads,
    tokens,
    traces,
    turns,
    usage,
    users,
    webhooks,
)

FAMILIES: Final = (
    floor,
    activity,
    threads,
    turns,
    traces,
    chat,
    sessions,
    escalations,
    held,
    dead,
    usage,
    audit,
    agents,
    crews,
    schedules,
    webhooks,
    plugins,
    hooks,
    users,
    tokens,
    policy,
    models,
    credit,
)
