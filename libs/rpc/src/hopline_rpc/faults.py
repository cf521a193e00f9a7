"""Named points at which a process can be made to die, to show that nothing is lost there.

`HOPLINE_FAULTS=FILE` in the environment switches them on: a process that passes a point whose name stands in
FILE kills itself (SIGKILL). Without the variable a point is a function that does nothing.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Literal

Point = Literal[
    # A send, on its way into the record.
    "relay.send",
    "relay.admitted",
    "relay.offered",
    "relay.committed",
    "relay.settled",
    # A turn, on its way to its worker.
    "relay.begun",
    "relay.claimed",
    "relay.dispatched",
    "relay.accepted",
    # The end of a turn, on its way to whoever asked.
    "relay.ending",
    "relay.answer_admitted",
    "relay.ended",
    "relay.told",
    # A time of a schedule, before its turn is sent and once that is on disk.
    "schedule.due",
    "schedule.fired",
    # A note by which the mesh wakes a session, before it is written and once that is on disk.
    "mesh.wake_admitted",
    "mesh.woken",
    # An answer that was held, before it is woken, sent or given up, and once that is on disk.
    "hold.seen",
    "hold.admitted",
    "hold.sent",
    "hold.ended",
    # A question to an owner, and its answer.
    "escalation.asked",
    "escalation.ended",
    # A crew that is applied: with a member made or changed, as a whole, and once that is on disk.
    "registry.crew_member",
    "registry.crew_applied",
    "registry.crew_committed",
    # A plugin that is installed, and one that is uninstalled: as a whole, and once that is on disk; then the
    # sessions of its agents.
    "registry.plugin_installing",
    "registry.plugin_installed",
    "registry.plugin_ending",
    "registry.plugin_ended",
    "plugin.sessions",
    # A deposit, before whoever paid in hears of it.
    "quota.deposited",
    # A worker's side of a turn.
    "worker.started",
    "worker.accepted",
    "worker.ending",
    "worker.ended",
    # A client's side of a call.
    "client.calling",
    "client.answered",
]

_FILE = os.environ.get("HOPLINE_FAULTS", "")


def _die_if_named(name: Point) -> None:
    try:
        named = Path(_FILE).read_text()
    except FileNotFoundError:
        return
    if named.strip() == name:
        os.kill(os.getpid(), signal.SIGKILL)


def _pass(name: Point) -> None:
    """Do nothing."""


point = _die_if_named if _FILE else _pass
