"""What there is to measure of the counters: how near the fullest of each kind is to its limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hopline_directory import Directory
from hopline_rpc.metrics import Family, gauge, gauges

from hopline_quota.store import Store


def measured(store: Store, directory: Directory) -> Sequence[Family]:
    """Return the greatest part of each limit that anybody uses, whoever that is."""

    def limits(workspace_id: str) -> Mapping[str, int]:
        policy = directory.policy(workspace_id)
        return {
            "sent_per_day": policy.sent_per_day,
            "received_per_day": policy.received_per_day,
            "inbox_backlog": policy.inbox_backlog,
            "root_turns": policy.root_turns,
            "concurrent_runs": policy.concurrent_runs,
        }

    fullest, slots = store.fullest(limits)
    text = "The greatest part of a limit that is used anywhere, by the limit's policy key."
    return [
        gauges("hopline.quota.used", "1", text, fullest, "hopline.limit"),
        gauge("hopline.run_slots.used", "{slot}", "Run slots that are taken, in all workspaces.", slots),
    ]
