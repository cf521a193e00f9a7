"""Who may start something on whom: the rules alone, over records, with nothing looked up.

Standard library only. `Directory` finds the records and the role; the answers here are the same
wherever they are asked, so that a list, a look-up and the claim of a queued turn cannot differ.
"""

from __future__ import annotations

from hopline_directory.records import OPERATOR, AgentRecord, Relation


def crew_of(agent: AgentRecord) -> str:
    """Return the id of the crew's lead: of a subagent its parent, of a main agent itself.

    Crews have one level: whoever has a parent leads nobody.
    """
    return agent.parent_agent_id or agent.id


def relation(caller: AgentRecord, other: AgentRecord) -> Relation:
    """Tell what `other` is to `caller`."""
    if other.id == caller.parent_agent_id:
        return "lead"
    if other.parent_agent_id == caller.id:
        return "subagent"
    if caller.parent_agent_id and caller.parent_agent_id == other.parent_agent_id:
        return "sibling"
    return "peer"


def why_inactive(agent: AgentRecord) -> str | None:
    """Tell why nothing can be started on an agent, or by it; None when it is active."""
    if agent.deleted:
        return "deleted"
    return None if agent.state == "active" else agent.state


def why_unknown(owner_role: int, crew: str, reach: frozenset[str], other: AgentRecord) -> str | None:
    """Tell why an agent of crew `crew` may not know of `other`, whatever state either is in.

    `owner_role` is the role of the caller's owner on `other`; `crew` and `reach` are the caller's. Two
    callers alike in these see alike, which is what lets them share one view.
    """
    if owner_role < OPERATOR:
        return "no_role"
    if other.is_group_only_callable and other.parent_agent_id != crew:
        return "group_only"
    if reach and other.id not in reach:
        return "out_of_reach"
    return None
