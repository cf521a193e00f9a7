"""The rails: for each, whether one more would pass its limit, and what its refusal says.

Every function returns None where there is room. Texts are read by models: they say what happened and
what can be done about it, and give no figures of anybody but the sender. A recipient is named by its id,
which the caller may replace by the name it shows.
"""

from __future__ import annotations

from hopline_quota.domain import money
from hopline_quota.domain.values import Limits, Refusal


def over_depth(depth: int, limits: Limits) -> Refusal | None:
    """Check the depth at which a start would run."""
    if depth <= limits.max_depth:
        return None
    text = (
        f"too many agents in a row: this would run at depth {depth} and the limit is {limits.max_depth}; "
        "finish with what you have and answer whoever asked you"
    )
    return Refusal("depth_exceeded", text, limits.max_depth, depth, rail="max_depth")


def over_root(root_id: str, used: int, extra: int, wanted: int, limits: Limits) -> Refusal | None:
    """Check the turns that a root has started, with `extra` granted by a person and `wanted` to come."""
    limit = limits.root_turns + extra
    if used + wanted <= limit:
        return None
    text = (
        f"the request that all this goes back to has started {used} of {limit} turns and cannot start "
        f"{wanted} more; answer with what you have, or have a person extend it"
    )
    return Refusal("root_exhausted", text, limit, used, rail="root_turns", figures=(("root_id", root_id),))


def over_sent(used: int, used_by_all: int, limits: Limits, resets_at: float) -> Refusal | None:
    """Check what the sender, and all agents of its workspace together, sent on this day."""
    if used >= limits.sent_per_day:
        text = (
            f"you have sent {used} of {limits.sent_per_day} messages today; "
            "the count starts again at 00:00 UTC"
        )
        return Refusal("quota_exceeded", text, limits.sent_per_day, used, resets_at, rail="sent_per_day")
    limit = limits.agents * limits.sent_per_day
    if used_by_all >= limit:
        text = (
            "the agents of this workspace have together sent all the messages they may today; "
            "the count starts again at 00:00 UTC"
        )
        return Refusal("quota_exceeded", text, limit, used_by_all, resets_at, rail="sent_per_day")
    return None


def over_received(recipient: str, used: int, limits: Limits, resets_at: float) -> Refusal | None:
    """Check what a recipient received on this day."""
    if used < limits.received_per_day:
        return None
    text = (
        f"{recipient} cannot receive more messages today; try again after 00:00 UTC, or send to another agent"
    )
    return Refusal(
        "quota_exceeded", text, resets_at=resets_at, recipient_id=recipient, rail="received_per_day"
    )


def over_backlog(recipient: str, queued: int, limits: Limits) -> Refusal | None:
    """Check the turns that wait in a recipient's queue."""
    if queued < limits.inbox_backlog:
        return None
    text = f"the inbox of {recipient} is full; try again when it has worked some of it off"
    return Refusal("inbox_full", text, recipient_id=recipient, rail="inbox_backlog")


def over_pair(recipient: str, frees_at: float | None, limits: Limits) -> Refusal | None:
    """Check the starts between two agents; `frees_at` is when the next has room, None for now."""
    if frees_at is None:
        return None
    budget = limits.pair_budget
    text = (
        f"you and {recipient} have started {budget} exchanges within {limits.pair_window_seconds} seconds, "
        "the most that two agents may; do without a further message, or wait until it frees"
    )
    return Refusal("pair_budget_exceeded", text, budget, budget, frees_at, recipient, "pair_budget")


def over_credits(balance: int, turns: int, limits: Limits) -> Refusal | None:
    """Check what is left for the turns that a message would start."""
    price = limits.turn_price
    if not price or balance >= price * turns:
        return None
    left, each = money.write(balance), money.write(price)
    text = (
        f"the workspace has {left} credits left and each of the {turns} turns that this starts costs {each}"
        if turns > 1
        else f"the workspace has {left} credits left and a turn costs {each}"
    )
    text += "; answers still travel, and nothing new starts until an admin deposits more"
    return Refusal("credits_exhausted", text, rail="credits", figures=(("balance", left), ("price", each)))
