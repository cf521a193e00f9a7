"""`/policy`: the limits of the workspace, in plain words; one or many changed, or all by a preset."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import workspace_pb2 as pb
from hopline_rpc.errors import HoplineError
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.blocks import Ask, Block, Cell, Code, Facts, Link, Links, Note, Table, yes_no
from hopline_console.context import ConsoleContext
from hopline_console.forms import Field, Filled, Form, seen
from hopline_console.nav import Item
from hopline_console.pages.policy_words import FIELDS, LABELS
from hopline_console.visit import Visit, routed
from hopline_console.words import ADMIN

NAV: Final = (Item("Set up", "Policy", "/policy"),)

_FORM: Final = Form(
    "/policy",
    "The limits",
    "Save",
    FIELDS,
    "Only what you change is sent. It holds everywhere at once.",
    sees=True,
)


def routes(context: ConsoleContext) -> list[Route]:
    """Return the pages of the policy."""
    return [
        *routed(context, "/policy", get=show, post=change),
        *routed(context, "/policy/presets/{preset}", get=look, post=apply),
    ]


async def _policy(visit: Visit) -> pb.Policy:
    return (await visit.mesh.workspaces.GetPolicy(pb.GetPolicyRequest())).policy


def _values(policy: pb.Policy) -> dict[str, Any]:
    return {each.name: getattr(policy, each.name) for each in FIELDS}


async def show(visit: Visit) -> Response:
    """Show the limits in force."""
    policy = await _policy(visit)
    return await _page(visit, policy, _FORM.empty(**_values(policy)))


async def _page(visit: Visit, policy: pb.Policy, filled: Filled) -> Response:
    said = (
        f"It is the preset {policy.preset!r}."
        if policy.preset != "custom"
        else "It is like no preset any more."
    )
    blocks: list[Block] = []
    if visit.role < ADMIN:
        blocks.append(Facts("The limits", [(each.label, _shown(policy, each)) for each in FIELDS]))
        return await visit.page("Policy", blocks, lead=said)
    presets = (await visit.mesh.workspaces.GetPresets(pb.GetPresetsRequest())).presets
    links = [Link(f"Preset {each.preset}", f"/policy/presets/{each.preset}") for each in presets]
    return await visit.page("Policy", [Links("Presets", links), Ask(filled)], lead=said, filled=filled)


def _shown(policy: pb.Policy, field: Field) -> Cell:
    value = getattr(policy, field.name)
    return yes_no(value) if isinstance(value, bool) else str(value)


async def change(visit: Visit) -> Response:
    """Change the keys that the person changed."""
    visit.require(visit.role, ADMIN)
    policy = await _policy(visit)
    filled = _FORM.read(await visit.posted())
    filled.hold_against(_values(policy))

    async def act() -> Response:
        changed = filled.changed()
        if not changed:
            return visit.done("/policy", "Nothing was changed.")
        wanted = pb.Policy(**{name: filled.values[name] for name in changed})
        mask = FieldMask(paths=changed)
        request = pb.UpdatePolicyRequest(policy=wanted, update_mask=mask, expected=policy)
        await visit.mesh.workspaces.UpdatePolicy(request)
        return visit.done("/policy", f"Changed: {', '.join(LABELS[name] for name in changed)}.")

    return await visit.answer(filled, act, lambda: _page(visit, policy, filled))


async def look(visit: Visit) -> Response:
    """Show what a preset would change."""
    visit.require(visit.role, ADMIN)
    preset, policy = await _preset(visit), await _policy(visit)
    return await _preset_page(visit, preset, policy, _apply_form(preset).empty())


async def _preset(visit: Visit) -> pb.Policy:
    name = visit.path("preset")
    presets = (await visit.mesh.workspaces.GetPresets(pb.GetPresetsRequest())).presets
    for each in presets:
        if each.preset == name:
            return each
    raise HoplineError("not_found", "there is no such preset")


def _apply_form(preset: pb.Policy) -> Form:
    return Form(
        f"/policy/presets/{preset.preset}",
        f"Apply {preset.preset}",
        "Replace the policy",
        intro="Every limit becomes what the preset says.",
        sees=True,
    )


async def _preset_page(visit: Visit, preset: pb.Policy, policy: pb.Policy, filled: Filled) -> Response:
    rows: list[list[Cell]] = [
        [each.label, _shown(policy, each), _shown(preset, each)]
        for each in FIELDS
        if getattr(policy, each.name) != getattr(preset, each.name)
    ]
    table = Table(
        "What it changes", ("Limit", "Now", "Then"), rows, "Nothing: all limits stand there already."
    )
    filled.seen = seen.digest(FIELDS, _values(policy))
    back = Links("Policy", [Link("Back to the policy", "/policy")])
    code: Block = Facts("", [("Preset", Code(preset.preset))])
    blocks: list[Block] = [back, code, table]
    blocks.append(Ask(filled) if rows or preset.preset != policy.preset else Note("It is in force."))
    return await visit.page(f"Preset {preset.preset}", blocks, filled=filled)


async def apply(visit: Visit) -> Response:
    """Replace the policy by a preset, if it still is what the person saw."""
    visit.require(visit.role, ADMIN)
    preset, policy = await _preset(visit), await _policy(visit)
    filled = _apply_form(preset).read(await visit.posted())
    if seen.read(filled.seen) != seen.read(seen.digest(FIELDS, _values(policy))):
        filled.problem = "Somebody else has changed the policy meanwhile; look at what it would change now."

    async def act() -> Response:
        await visit.mesh.workspaces.ApplyPreset(pb.ApplyPresetRequest(preset=preset.preset))
        return visit.done("/policy", f"The policy is the preset {preset.preset} now.")

    return await visit.answer(filled, act, lambda: _preset_page(visit, preset, policy, filled))
