"""The form of an agent's definition: its fields, out of a definition and back into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hopline.registry.v1 import agent_pb2 as pb
from hopline.registry.v1 import model_pb2

from hopline_console.forms import Choice, Field, choices_of
from hopline_console.forms.fields import Value
from hopline_console.visit import Visit

_AGENT: Final = pb.Agent.DESCRIPTOR
_MODELS: Final = 200
_WAKE: Final = ("wake_kind", "webhook_url", "webhook_secret")

_SAID: Final = (
    Field("name", "Name", hint="What people and agents read. It may repeat."),
    Field("description", "What it does", "area", "By this, other agents choose whom they turn to.", rows=3),
)
_TOLD: Final = (
    Field("soul", "Persona", "area", "Who it is, for its model.", rows=6),
    Field("instructions", "Instructions", "area", "What it is to do and how, for its model.", rows=8),
    Field(
        "thinking_level",
        "Thinking level",
        "choice",
        choices=choices_of(pb.ThinkingLevel.DESCRIPTOR, "as its worker has it"),
    ),
    Field(
        "reply_mode",
        "Answers",
        "choice",
        "Auto: the last message of a turn is the answer. All: everything it writes."
        " Implicit: only what it sends.",
        choices=choices_of(pb.ReplyMode.DESCRIPTOR),
    ),
)
_PLACE: Final = (
    Field(
        "kind",
        "Kind",
        "choice",
        "Receive only: it reads, replies and asks its owner, and starts nothing.",
        choices=choices_of(pb.AgentKind.DESCRIPTOR),
    ),
    Field(
        "parent_agent_id",
        "Lead",
        hint="Id or slug of the main agent whose subagent it is; empty: a main agent.",
    ),
    Field("is_group_only_callable", "Only its lead and siblings may reach it", "flag"),
    Field("is_default", "It is the workspace's default agent", "flag"),
    Field(
        "reach",
        "Whom it may start something on",
        "lines",
        "Ids or slugs, one a line; empty: every agent that its owner may use.",
    ),
    Field("tools", "Tools it is offered", "lines", "Names, one a line; empty: the usual list."),
    Field("labels", "Labels", "pairs", "NAME=VALUE, one a line."),
)
_RUN: Final = (
    Field(
        "runtime",
        "Runs",
        "choice",
        choices=choices_of(pb.AgentRuntime.DESCRIPTOR),
    ),
    Field(
        "wake_kind",
        "Woken by",
        "choice",
        "How a worker is started that has work and is not connected."
        " A webhook is for admins of the workspace to set.",
        choices=choices_of(pb.WakeKind.DESCRIPTOR),
        paths=("wake",),
    ),
    Field("webhook_url", "Webhook address", hint="Only with a webhook.", longest=2000),
    Field(
        "webhook_secret",
        "Webhook secret",
        "secret",
        "16 to 256 bytes that sign what is sent; shown to nobody. Empty: the one there is stays.",
        longest=256,
        autocomplete="new-password",
    ),
)
_FIRST: Final = (
    Field("slug", "Slug", hint="By this others address it, and it never changes. Empty: made from the name."),
)
_LATER: Final = (Field("owner_id", "Owner", hint="Id or name of a person. Whoever owns it is its admin."),)


async def fields_for(visit: Visit, *, new: bool) -> tuple[Field, ...]:
    """Return the fields of the form, with the workspace's models to choose from."""
    model = await _model_field(visit)
    ends = _FIRST if new else _LATER
    fields = (
        _SAID[0],
        *(ends if new else ()),
        *_SAID[1:],
        model,
        *_TOLD,
        *_PLACE,
        *_RUN,
        *(() if new else ends),
    )
    return tuple(each.within(_AGENT) if each.name in _AGENT.fields_by_name else each for each in fields)


async def _model_field(visit: Visit) -> Field:
    page = await visit.mesh.models.ListModels(model_pb2.ListModelsRequest(page_size=_MODELS))
    if not page.models:
        return Field("model_id", "Model", hint="Any name that its worker knows; empty: its worker chooses.")
    default = next((each.display_name for each in page.models if each.is_default), "none: its worker chooses")
    choices = [Choice("", f"the workspace's default ({default})")]
    choices += [Choice(each.id, each.display_name) for each in page.models]
    return Field("model_id", "Model", "choice", choices=choices)


def values_of(agent: pb.Agent, slugs: Mapping[str, str], people: Mapping[str, str]) -> dict[str, Value]:
    """Return what stands in the form for a definition: agents by slug, its owner by name."""
    parent = agent.parent_agent_id
    return {
        "name": agent.name,
        "description": agent.description,
        "model_id": agent.model_id,
        "soul": agent.soul,
        "instructions": agent.instructions,
        "thinking_level": str(int(agent.thinking_level)),
        "reply_mode": str(int(agent.reply_mode)),
        "kind": str(int(agent.kind)),
        "parent_agent_id": slugs.get(parent, parent),
        "is_group_only_callable": agent.is_group_only_callable,
        "is_default": agent.is_default,
        "reach": sorted(slugs.get(each, each) for each in agent.reach),
        "tools": list(agent.tools),
        "labels": dict(sorted(agent.labels.items())),
        "runtime": str(int(agent.runtime)),
        "wake_kind": str(int(agent.wake.kind) or int(pb.WAKE_KIND_NONE)),
        "webhook_url": agent.wake.webhook_url,
        "webhook_secret": "",
        "owner_id": people.get(agent.owner_id, agent.owner_id),
    }


def new_values() -> dict[str, Value]:
    """Return what stands in the form of a new agent."""
    usual = pb.Agent(
        kind=pb.AGENT_KIND_STANDARD, reply_mode=pb.REPLY_MODE_AUTO, runtime=pb.AGENT_RUNTIME_LOCAL
    )
    return {**values_of(usual, {}, {}), "slug": ""}


def definition(values: Mapping[str, Any]) -> pb.Agent:
    """Return the definition that the values of a form stand for."""
    agent = pb.Agent()
    for name, value in values.items():
        if name in _WAKE:
            continue
        if name in ("reach", "tools"):
            getattr(agent, name).extend(value)
        elif name == "labels":
            agent.labels.update(value)
        elif name in ("thinking_level", "reply_mode", "kind", "runtime"):
            setattr(agent, name, int(value))
        else:
            setattr(agent, name, value)
    if "wake_kind" in values:
        agent.wake.kind = int(values["wake_kind"])  # type: ignore[assignment]
        agent.wake.webhook_url = values["webhook_url"]
        agent.wake.webhook_secret = values["webhook_secret"]
    return agent


def paths_of(changed: Sequence[str]) -> list[str]:
    """Return the fields of the contract that changed fields of the form belong to."""
    return list(dict.fromkeys("wake" if name in _WAKE else name for name in changed))
