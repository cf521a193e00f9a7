"""A crew made what its owner wants, in one transaction.

What a dry run says is what was done, and then undone: there is no second way in which to reckon it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hopline_directory import AgentRecord
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.faults import point

from hopline_registry import members
from hopline_registry.core import Tx
from hopline_registry.definitions import check_room, children_of
from hopline_registry.domain import crews
from hopline_registry.domain.agents import Scope
from hopline_registry.domain.crews import Change, Step, Wanted
from hopline_registry.domain.models import named, preferred
from hopline_registry.store import agents as rows
from hopline_registry.store import models as model_rows

_NO_MODEL: Final = "no model of the catalogue matches its models: it runs the default"
_CLOSED: Final = "group_only without a lead: no other agent reaches it"
# Where a member stands in its crew.
_PLACE: Final = ("parent_agent_id", "is_subagent")
# Fields of an agent, by what they are of a member.
_PATHS: Final = {
    "model_id": "models",
    "is_group_only_callable": "group_only",
    "parent_agent_id": "lead",
    "is_subagent": "lead",
}


@dataclass(frozen=True)
class Order:
    """What is to be done."""

    wanted: Sequence[Wanted]
    dry_run: bool = False
    only_missing: bool = False
    # Only if the plan is still this one; empty for any.
    expected_plan_id: str = ""


@dataclass(frozen=True)
class Plan:
    """What was done, or would be."""

    steps: tuple[Step, ...]
    id: str
    dry_run: bool = False


def apply(tx: Tx, scope: Scope, order: Order) -> Plan:
    """Do it, and undo it where it is a dry run."""
    if not order.dry_run:
        return _applied(tx, scope, order)
    kept = len(tx.changes)
    undone = tx.conn.begin_nested()
    try:
        return replace(_applied(tx, scope, order), dry_run=True)
    finally:
        undone.rollback()
        del tx.changes[kept:]


def _applied(tx: Tx, scope: Scope, order: Order) -> Plan:
    if wrong := crews.problem(order.wanted):
        raise invalid(*wrong)
    steps = _Reconciling(tx, scope, order).steps()
    plan = Plan(steps, _plan_id(steps))
    if order.expected_plan_id not in ("", plan.id):
        raise HoplineError(
            "failed_precondition",
            f"the crew {scope.crew!r} is no longer what this plan was made for; make the plan anew",
            details={"plan_id": plan.id},
        )
    counts = {each: sum(step.action == each for step in steps) for each in ("create", "update", "delete")}
    if any(counts.values()):
        details = {"crew": scope.crew, "owner": scope.owner_id, **counts}
        tx.changed(scope.workspace_id, "crew.applied", details)
        point("registry.crew_applied")
    return plan


class _Reconciling:
    """Goes through one crew."""

    def __init__(self, tx: Tx, scope: Scope, order: Order) -> None:
        self._tx = tx
        self._scope = scope
        self._order = order
        self._there = {each.key: each for each in members.members_of(tx, scope)}
        self._catalogue = model_rows.models_of(tx.conn, scope.workspace_id)
        # The lead, and whom new members are put under; once it is made or changed, which comes first.
        self._named: AgentRecord | None = None
        self._lead: AgentRecord | None = None

    def steps(self) -> tuple[Step, ...]:
        """Do all of it; what is refused refuses the whole."""
        there = self._there.values()
        leaders = frozenset(each.id for each in there if children_of(self._tx, each))
        todo = crews.work(self._order.wanted, self._there, leaders)
        self._check(todo.retired)
        done = {each.key: self._settled(each) for each in todo.first}
        # A lead last: nobody is left an orphan who is deleted next.
        leaving = sorted(todo.retired, key=lambda agent: not agent.parent_agent_id)
        retired = sorted((self._retired(each) for each in leaving), key=lambda step: step.agent.key)
        done |= {each.key: self._settled(each) for each in todo.last}
        ordered = sorted(self._order.wanted, key=lambda each: not each.is_lead)
        return (*(done[each.key] for each in ordered), *retired)

    def _check(self, retired: Sequence[AgentRecord]) -> None:
        """Refuse before anything is done what could not be done as a whole."""
        gone = [] if self._order.only_missing else retired
        for agent in gone:
            if agent.is_default:
                raise HoplineError(
                    "failed_precondition",
                    f"the member {agent.key!r} ({agent.slug}) is not wanted any more but is the default,"
                    " which cannot be deleted; make another the default first",
                    details={"key": agent.key, "agent": agent.id},
                )
        new = sum(each.key not in self._there for each in self._order.wanted)
        if new:
            members.check_size(len(self._there) + new - len(gone))
            check_room(self._tx, new, len(gone))

    def _settled(self, wanted: Wanted) -> Step:
        """Make a member, or change it where it differs."""
        before = self._there.get(wanted.key)
        try:
            step = self._created(wanted) if before is None else self._updated(before, wanted)
        except HoplineError as refusal:
            raise _placed(refusal, self._order.wanted.index(wanted)) from None
        point("registry.crew_member")
        if wanted.is_lead:
            self._named, self._lead = step.agent, self._leading(step.agent)
        notes = [step.note, _CLOSED if crews.is_closed(step.agent) else ""]
        return replace(step, is_lead=wanted.is_lead, note="; ".join(filter(None, notes)))

    def _created(self, wanted: Wanted) -> Step:
        values, note = self._values(wanted, self._lead)
        wish = AgentRecord("", self._scope.workspace_id, "", wanted.key, "", key=wanted.key)
        agent = members.add(self._tx, self._scope, replace(wish, **values))
        changes = self._changes(wish, agent, ["name", *values])
        return Step("create", agent, changes=changes, note=note)

    def _updated(self, before: AgentRecord, wanted: Wanted) -> Step:
        values, note = self._values(wanted, self._lead if crews.is_orphan(before) else self._named)
        names = [name for name, value in values.items() if getattr(before, name) != value]
        if names and self._order.only_missing:
            # A subagent without a lead lacks what others lack that are missing as a whole.
            placed = [name for name in names if name in _PLACE]
            if not crews.is_orphan(before) or not placed or (self._lead is None and not wanted.is_lead):
                return Step("kept", before, changes=self._changes(before, replace(before, **values), names))
            names = placed
        if not names:
            return Step("unchanged", before, note=note)
        agent = members.update(self._tx, before, replace(before, **values), names)
        return Step("update", agent, changes=self._changes(before, agent, names), note=note)

    def _leading(self, lead: AgentRecord) -> AgentRecord:
        """Return whom new members are put under: the lead, or its own where it stays a subagent of one."""
        parent = lead.parent_agent_id
        found = rows.agent_by_id(self._tx.conn, lead.workspace_id, parent) if parent else None
        return lead if found is None else found

    def _retired(self, agent: AgentRecord) -> Step:
        if self._order.only_missing:
            return Step("kept", agent, note="is not wanted any more")
        # Those of the crew have another by now, or have gone before it.
        left = ", ".join(child.slug for child in children_of(self._tx, agent))
        members.remove(self._tx, agent)
        return Step("delete", agent, note=f"leaves without a lead: {left}" if left else "")

    def _values(self, wanted: Wanted, lead: AgentRecord | None) -> tuple[dict[str, Any], str]:
        """Return the fields that a member is to have, and what a person should know of them."""
        values, note = dict(wanted.values), ""
        if wanted.models is not None:
            model = preferred(self._catalogue, wanted.models)
            values["model_id"] = "" if model is None else model.id
            note = _NO_MODEL if wanted.models and model is None else ""
        lead = None if wanted.is_lead else lead
        values["parent_agent_id"] = "" if lead is None else lead.id
        values["is_subagent"] = lead is not None
        return values, note

    def _changes(self, before: AgentRecord, agent: AgentRecord, names: Sequence[str]) -> tuple[Change, ...]:
        """Return what differs, as people see it; where a member stands is one thing."""
        fields = sorted({name for name in names if name != "is_subagent" or "parent_agent_id" not in names})
        changes = (crews.shown(name, self._plain(name, before), self._plain(name, agent)) for name in fields)
        return tuple(each for each in changes if each.before != each.after or each.field == "name")

    def _plain(self, name: str, agent: AgentRecord) -> object:
        value = getattr(agent, name)
        if name == "parent_agent_id" and value:
            lead = rows.agent_by_id(self._tx.conn, agent.workspace_id, value)
            return value if lead is None else lead.slug
        if name == "model_id" and value:
            model = named(self._catalogue, value)
            return value if model is None else model.model_identifier
        return value


def _placed(refusal: HoplineError, number: int) -> HoplineError:
    """Say of a refusal which member it is about, by its path in the request."""
    if not refusal.violations:
        return refusal
    places = []
    for path, text in refusal.violations:
        field = path.removeprefix("agent").lstrip(".")
        places.append((f"members[{number}].{_PATHS.get(field, field)}".rstrip("."), text))
    return HoplineError(
        refusal.reason,
        "; ".join(f"{path}: {text}" for path, text in places),
        details=refusal.details,
        violations=places,
        quota=refusal.quota,
    )


def _plan_id(steps: Sequence[Step]) -> str:
    """Return the same for the same plan; who would be made has no id yet."""
    said = [
        (
            each.action,
            each.agent.key,
            "" if each.action == "create" else each.agent.id,
            each.agent.slug,
            [(change.field, change.before, change.after, change.digest) for change in each.changes],
            each.note,
        )
        for each in steps
    ]
    return hashlib.sha256(repr(said).encode()).hexdigest()[:32]
