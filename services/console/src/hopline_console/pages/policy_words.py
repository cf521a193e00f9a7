"""The keys of a policy in plain words, and how each is asked for."""

from __future__ import annotations

from typing import Final

from hopline.registry.v1 import workspace_pb2 as pb

from hopline_console.forms import Choice, Field

_RATE: Final = "COUNT/SECONDSs, such as 30/300s; 0 for off."
_CYCLES: Final = (
    Choice("off", "off: it passes"),
    Choice("warn", "warn: it passes, and is said"),
    Choice("on", "on: it is refused"),
)


def _number(name: str, label: str, hint: str = "") -> Field:
    return Field(name, label, "number", hint, required=True)


FIELDS: Final = tuple(
    each.within(pb.Policy.DESCRIPTOR)
    for each in (
        _number("max_depth", "Agents in a row", "How deep a chain of delegations may go."),
        _number(
            "root_turns",
            "Turns from one start",
            "How many turns may go back to one act of a person, schedule or webhook.",
        ),
        _number("messages_per_thread", "Messages in a thread"),
        _number("sent_per_day", "Sent a day", "By one agent, in a UTC day."),
        _number("received_per_day", "Received a day", "By one agent, in a UTC day."),
        Field("pair_budget", "Starts between two agents", hint=f"In both directions. {_RATE}", required=True),
        _number("concurrent_runs", "Turns at once", "In the whole workspace; more wait in line."),
        _number("inbox_backlog", "Waiting for one agent", "Unread messages and queued turns."),
        _number("agents", "Agents", "In the workspace."),
        Field("refuse_cycles", "An agent that is in the chain already", "choice", choices=_CYCLES),
        Field("credits", "Price of a turn", hint="off, or a number such as 0.25.", required=True),
        _number("subagent_depth", "Subagents in a row", "How many subagents may stand one below another."),
        _number("hook_generations", "Hook generations", "How often hooks may act on what hooks have caused."),
        Field("refusals", "Refusals of one caller", hint=f"More are turned away. {_RATE}", required=True),
        _number(
            "causality_window_seconds",
            "Ended turns count for",
            "Seconds in which a turn that has ended still counts for depth.",
        ),
        _number("turn_seconds", "Longest turn", "In seconds."),
        _number("queue_seconds", "Longest wait of a turn", "In seconds, before it is run."),
        _number(
            "retention_days",
            "Records are kept",
            "In days; 0 keeps them for ever. Older ones are deleted in the background.",
        ),
        Field("batch_inbox", "A wake hands over the whole inbox as one turn", "flag"),
        Field("require_isolation", "Workers without isolation are refused", "flag"),
        Field("redact_credentials", "Credentials are taken out of what agents say", "flag"),
        Field("evidence_required", "Reports without evidence say so", "flag"),
    )
)
LABELS: Final = {each.name: each.label for each in FIELDS}
