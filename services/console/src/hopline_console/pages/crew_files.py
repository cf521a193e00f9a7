"""Applying a crew's file: uploaded or pasted, its plan shown, and carried out just so or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from hopline.registry.v1 import crew_pb2 as pb
from hopline_files.crew_file import CrewFile, read_crew
from hopline_rpc.errors import HoplineError
from starlette.responses import Response
from starlette.routing import Route

from hopline_console import uploads
from hopline_console.blocks import Ask, Block, Cell, Code, Link, Links, Note, State, Table, Tone
from hopline_console.context import ConsoleContext
from hopline_console.forms import Field, Filled, Form
from hopline_console.visit import Visit, routed
from hopline_console.words import OPERATOR, word

_NAME: Final = Path("crew.yaml")
_TOO_LONG: Final = "is longer than 180 KiB: use `hopline crew apply FILE`"
_FORM: Final = Form(
    "/crews/plan",
    "Apply a crew's file",
    "Show what it would change",
    (
        Field("file", "File", "file", "A crew.yaml of at most 180 KiB, as `hopline crew apply` takes it."),
        uploads.TEXT,
        Field("only_missing", "Only make who is missing; change and delete nobody", "flag"),
    ),
    "Nothing is changed before you have seen what it changes.",
)
_TONES: Final[dict[str, Tone]] = {"create": "good", "update": "busy", "delete": "bad"}


def routes(context: ConsoleContext) -> list[Route]:
    """Return the two steps."""
    return [
        *routed(context, "/crews/plan", post=plan),
        *routed(context, "/crews/apply", post=apply),
    ]


def empty() -> Filled:
    """Return the form for a file."""
    return _FORM.empty()


async def plan(visit: Visit) -> Response:
    """Show what a file would change."""
    visit.require(visit.role, OPERATOR)
    posted = await visit.posted()
    filled = _FORM.read(posted)
    text = await uploads.text_of(posted, filled, _TOO_LONG)

    async def act() -> Response:
        read, planned = await _planned(visit, text, dry=True, only_missing=filled.values["only_missing"])
        return await _plan_page(visit, read, planned, text, only_missing=filled.values["only_missing"])

    return await visit.answer(filled, act, lambda: _again(visit, filled))


async def _again(visit: Visit, filled: Filled) -> Response:
    back = Links("Crews", [Link("All crews", "/crews")])
    return await visit.page("Apply a crew's file", [back, Ask(filled)], filled=filled)


async def _planned(
    visit: Visit, text: str, *, dry: bool, only_missing: bool, expected: str = ""
) -> tuple[CrewFile, pb.ApplyCrewResponse]:
    """Plan, or apply, what a file says; refusals name its lines."""
    # Reading a long one takes a while, in which others are served.
    read = await asyncio.to_thread(read_crew, _NAME, text)
    request = pb.ApplyCrewRequest(
        crew=read.name,
        members=[each.wanted for each in read.members],
        dry_run=dry,
        only_missing=only_missing,
        expected_plan_id=expected,
    )
    try:
        return read, await visit.mesh.crews.ApplyCrew(request)
    except HoplineError as refusal:
        raise read.with_places(refusal) from None


async def _plan_page(
    visit: Visit, read: CrewFile, planned: pb.ApplyCrewResponse, text: str, *, only_missing: bool
) -> Response:
    changes = [each for each in planned.members if each.action in _CHANGING]
    blocks: list[Block] = [
        Links("Crews", [Link("All crews", "/crews")]),
        Table(
            "What becomes of each member",
            ("Key", "Change", "Agent", "What differs"),
            [_row(each) for each in planned.members],
        ),
    ]
    if changes:
        carries = {
            "plan": planned.plan_id,
            **uploads.carrying(text),
            "only_missing": "1" if only_missing else "",
        }
        deletes = any(each.action == pb.PLAN_ACTION_DELETE for each in changes)
        form = Form(
            "/crews/apply",
            "Carry it out",
            "Do exactly this",
            carries=carries,
            danger=deletes,
            intro="It is done as it is shown here, or, where things have changed meanwhile, not at all.",
        )
        blocks.append(Ask(form.empty()))
    else:
        blocks.append(Note("There is nothing to change.", "good"))
    return await visit.page(f"Crew {read.name}: the plan", blocks)


# Fields of an agent as its page has them.
_WORDS: Final = {
    "is_group_only_callable": "only for its crew",
    "parent_agent_id": "lead",
    "is_subagent": "subagent",
    "model_id": "model",
}
_CHANGING: Final = (pb.PLAN_ACTION_CREATE, pb.PLAN_ACTION_UPDATE, pb.PLAN_ACTION_DELETE)


def _row(member: pb.PlannedMember) -> list[Cell]:
    action = word(pb.PlanAction.DESCRIPTOR, member.action)
    agent: Cell = member.slug or member.name
    if member.agent_id:
        agent = Link(member.slug, f"/agents/{member.agent_id}")
    changes = "; ".join(_change(each, new=action == "create") for each in member.changes)
    said = ". ".join(filter(None, (changes, member.note))) or "—"
    key = f"{member.key} (lead)" if member.lead else member.key
    return [Code(key), State(action, _TONES.get(action, "quiet")), agent, said]


def _change(change: pb.FieldChange, *, new: bool) -> str:
    name = _WORDS.get(change.field, change.field.replace("_", " "))
    after = _side(change.after, change.after_length)
    if new:
        return f"{name}: {after}"
    return f"{name}: {_side(change.before, change.before_length)} → {after}"


def _side(text: str, length: int) -> str:
    return f"“{text}”" if length <= 60 else f"{length} characters"


async def apply(visit: Visit) -> Response:
    """Carry out the plan that was shown."""
    visit.require(visit.role, OPERATOR)
    posted = await visit.posted()
    text, only_missing = uploads.carried(posted), bool(posted.get("only_missing"))
    filled = _FORM.empty(text=text, only_missing=only_missing)
    if not text:
        filled.problem = "The file did not come along; apply it once more."

    async def act() -> Response:
        expected = str(posted.get("plan", ""))
        read, made = await _planned(visit, text, dry=False, only_missing=only_missing, expected=expected)
        changed = sum(each.action in _CHANGING for each in made.members)
        return visit.done("/crews", f"The crew {read.name} is as its file says: {changed} changed.")

    return await visit.answer(filled, act, lambda: _again(visit, filled))
