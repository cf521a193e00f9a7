"""Crews and plans as commands print them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from hopline.registry.v1 import crew_pb2, model_pb2

from hopline_cli.shapes import Json, enum, time

# Fields of an agent, as people know them.
_WORDS: Final = {
    "is_group_only_callable": "group_only",
    "parent_agent_id": "parent",
    "is_subagent": "subagent",
    "model_id": "model",
}
_SIGNS: Final = {"create": "+", "update": "~", "delete": "-", "unchanged": "=", "kept": "!"}
# Texts up to here are shown, longer ones by their length.
_SHORT: Final = 60


def model(value: model_pb2.Model) -> Json:
    """Return a model of the catalogue; prices are text, to be exact, null where they are not known."""
    prices = ("input_usd_per_1m", "output_usd_per_1m", "cached_usd_per_1m")
    return {
        "id": value.id,
        "model_identifier": value.model_identifier,
        "display_name": value.display_name,
        **{name: getattr(value, name) if value.HasField(name) else None for name in prices},  # type: ignore[arg-type]
        "is_default": value.is_default,
        "created_at": time(value, "created_at"),
    }


def crew(value: crew_pb2.Crew) -> Json:
    """Return `{name, owner: {id, name}, members, lead: {id, slug}}`."""
    lead = {"id": value.lead_agent_id, "slug": value.lead_slug}
    return {
        "name": value.name,
        "owner": {"id": value.owner_id, "name": value.owner_name},
        "members": value.member_count,
        "lead": lead if value.lead_agent_id else None,
    }


def planned(value: crew_pb2.PlannedMember) -> Json:
    """Return what becomes of a member; one that would be made has no id."""
    return {
        "action": enum(crew_pb2.PlanAction, "PLAN_ACTION_", value.action),
        "key": value.key,
        "id": value.agent_id or None,
        "slug": value.slug,
        "name": value.name,
        "lead": value.lead,
        "changes": [_change(each) for each in value.changes],
        "note": value.note or None,
    }


def _change(value: crew_pb2.FieldChange) -> Json:
    return {
        "field": _WORDS.get(value.field, value.field),
        "before": value.before,
        "after": value.after,
        "before_length": value.before_length,
        "after_length": value.after_length,
    }


def counts(members: Sequence[Json]) -> dict[str, int]:
    """Return how many members meet with each action."""
    return {action: sum(each["action"] == action for each in members) for action in _SIGNS}


def plan_lines(members: Sequence[Json]) -> Iterator[str]:
    """Yield a plan for people: a line a member, a line for each field that changes."""
    width = max((len(each["key"]) for each in members), default=0)
    for each in members:
        lead = ", lead" if each["lead"] else ""
        yield f"{_SIGNS[each['action']]} {each['action']:<9} {each['key']:<{width}}  {each['slug']}{lead}"
        for change in each["changes"]:
            yield f"      {change['field']}: {_sides(change, is_new=each['action'] == 'create')}"
        if each["note"]:
            yield f"      {each['note']}"


def summary(members: Sequence[Json]) -> str:
    """Return the counts in words: `1 to create, 5 unchanged`."""
    words = {"create": "to create", "update": "to update", "delete": "to delete"}
    said = [f"{count} {words.get(action, action)}" for action, count in counts(members).items() if count]
    return ", ".join(said)


def _sides(change: Json, *, is_new: bool) -> str:
    before, after = change["before_length"], change["after_length"]
    short = max(before, after) <= _SHORT and "\n" not in change["before"] + change["after"]
    if is_new:
        return _quoted(change["after"]) if short else f"{after} characters"
    if short:
        return f"{_quoted(change['before'])} -> {_quoted(change['after'])}"
    return f"{before} -> {after} characters" + (", another text" if before == after else "")


def _quoted(text: Any) -> str:
    return json.dumps(text, ensure_ascii=False)
