"""What a crew is to be: who leads, who is made, changed or deleted, and in which order."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from hopline_registry.domain.names import name_problem

if TYPE_CHECKING:
    from hopline_directory import AgentRecord

Action = Literal["create", "update", "delete", "unchanged", "kept"]

MAX_MEMBERS: Final = 20
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Wanted:
    """A member as its crew's owner wants it: `values` are the fields of the agent that were said."""

    key: str
    is_lead: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    # Patterns of models, the best first; None where nothing was said.
    models: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A field of an agent that differs, as people see it: cut, with how long each side is in full."""

    field: str
    before: str
    after: str
    before_length: int
    after_length: int
    # Of both sides in full: texts may differ behind what is shown.
    digest: str


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of one member; `agent` is who it is then, or was."""

    action: Action
    agent: AgentRecord
    is_lead: bool = False
    changes: tuple[Change, ...] = ()
    note: str = ""


class Work(NamedTuple):
    """Who is made or changed, in order, and who is deleted once that is done; then who comes last.

    Whoever leads others now stays a lead until they have another, or are gone.
    """

    first: Sequence[Wanted]
    retired: Sequence[AgentRecord]
    last: Sequence[Wanted]


def problem(wanted: Sequence[Wanted]) -> tuple[str, str] | None:
    """Say what is wrong with the members by themselves, with the path of where; None when nothing is."""
    lead: int | None = None
    seen: dict[str, int] = {}
    for number, each in enumerate(wanted):
        if wrong := name_problem(each.key):
            return f"members[{number}].key", wrong
        if each.key in seen:
            return f"members[{number}].key", f"{each.key!r} is the key of members[{seen[each.key]}] already"
        seen[each.key] = number
        if each.is_lead and lead is not None:
            return f"members[{number}].lead", f"members[{lead}] leads already; a crew has one lead"
        lead = number if each.is_lead else lead
    return None


def work(wanted: Sequence[Wanted], there: Mapping[str, AgentRecord], leaders: frozenset[str]) -> Work:
    """Put a crew's changes in order: the new lead first, so that its id is the parent of the others.

    `leaders` are the ids of the agents that lead somebody now.
    """

    def leads(each: Wanted) -> bool:
        return not each.is_lead and each.key in there and there[each.key].id in leaders

    ordered = sorted(wanted, key=lambda each: not each.is_lead)
    keys = {each.key for each in wanted}
    return Work(
        [each for each in ordered if not leads(each)],
        [agent for agent in there.values() if agent.key not in keys],
        [each for each in ordered if leads(each)],
    )


def is_orphan(agent: AgentRecord) -> bool:
    """Tell whether an agent is a subagent whose lead is gone."""
    return agent.is_subagent and not agent.parent_agent_id


def is_closed(agent: AgentRecord) -> bool:
    """Tell whether an agent is for its group alone, and has none."""
    return agent.is_group_only_callable and not agent.parent_agent_id


def shown(name: str, before: Any, after: Any) -> Change:
    """Return how a change of a field is shown."""
    old, new = _text(before), _text(after)
    digest = hashlib.sha256(repr((old, new)).encode("utf-8", "backslashreplace")).hexdigest()
    return Change(name, old[:_SHOWN], new[:_SHOWN], len(old), len(new), digest)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
