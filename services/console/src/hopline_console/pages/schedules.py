"""`/schedules`: texts that agents are given at the times of a cron expression."""

from __future__ import annotations

from typing import Final

from hopline.relay.v1 import schedule_pb2 as pb
from hopline_rpc.clock import from_timestamp
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.blocks import (
    Ask,
    Block,
    Cell,
    Code,
    Facts,
    Link,
    Links,
    Long,
    Moment,
    Note,
    Press,
    State,
    Table,
    Tone,
)
from hopline_console.context import ConsoleContext
from hopline_console.forms import Field, Filled, Form
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE as PAGE
from hopline_console.visit import Visit, routed
from hopline_console.words import word

NAV: Final = (Item("Set up", "Schedules", "/schedules"),)

_TONES: Final[dict[str, Tone]] = {"active": "good", "paused": "waiting", "stopped": "bad"}
_FORM: Final = Form(
    "/schedules",
    "A further schedule",
    "Set",
    tuple(
        each.within(pb.AddScheduleRequest.DESCRIPTOR)
        for each in (
            Field("agent", "Agent", hint="Id, slug or name."),
            Field("cron", "When", hint="Minute, hour, day of month, month, day of week: 0 7 * * 1-5."),
            Field("timezone", "Time zone", hint="Such as Europe/Berlin; empty: UTC."),
            Field("name", "Name", hint="Empty: the first words of the text."),
            Field("text", "Text", "area", "What the agent is given.", rows=5),
        )
    ),
    "It fires in your name.",
    folded=True,
)
_GONE: Final = "It fires no more; a firing whose turn has not begun is withdrawn. Its session stays readable."


def routes(context: ConsoleContext) -> list[Route]:
    """Return the pages of schedules."""
    return [
        *routed(context, "/schedules", get=show, post=add),
        *routed(context, "/schedules/{schedule}", get=show_one),
        *routed(context, "/schedules/{schedule}/pause", post=pause),
        *routed(context, "/schedules/{schedule}/resume", post=resume),
        *routed(context, "/schedules/{schedule}/remove", post=remove),
    ]


async def show(visit: Visit) -> Response:
    """List schedules."""
    return await _page(visit, _FORM.empty(agent=visit.asked("agent")))


async def _page(visit: Visit, filled: Filled) -> Response:
    request = pb.ListSchedulesRequest(
        agent=visit.asked("agent"), page_size=PAGE, page_token=visit.asked("page")
    )
    page = await visit.mesh.schedules.ListSchedules(request)
    rows: list[list[Cell]] = [
        [
            Link(each.name, f"/schedules/{each.id}"),
            Link(each.agent.name, f"/agents/{each.agent.id}"),
            Code(each.cron),
            each.timezone,
            _state(each),
            Moment(from_timestamp(each.next_at) if each.HasField("next_at") else None),
        ]
        for each in page.schedules
    ]
    columns = ("Name", "Agent", "When", "Zone", "State", "Next")
    table = Table("Schedules", columns, rows, "No schedules.", more=page.next_page_token)
    return await visit.page("Schedules", [table, Ask(filled)], filled=filled)


def _state(schedule: pb.Schedule) -> State:
    said = word(pb.ScheduleState.DESCRIPTOR, schedule.state)
    return State(said, _TONES.get(said, "quiet"))


async def add(visit: Visit) -> Response:
    """Set a schedule."""
    filled = _FORM.read(await visit.posted())

    async def act() -> Response:
        request = pb.AddScheduleRequest(request_id=filled.once, **filled.values)
        made = (await visit.mesh.schedules.AddSchedule(request)).schedule
        return visit.done(f"/schedules/{made.id}", f"{made.name} is set.")

    return await visit.answer(filled, act, lambda: _page(visit, filled))


async def show_one(visit: Visit) -> Response:
    """Show one schedule."""
    request = pb.GetScheduleRequest(schedule_id=visit.path("schedule"))
    it = (await visit.mesh.schedules.GetSchedule(request)).schedule
    blocks: list[Block] = [Links("Schedules", [Link("All schedules", "/schedules")])]
    if it.HasField("problem"):
        blocks.append(Note(f"{it.problem.message} ({it.problem.code})", "warn", "Its last time was skipped"))
    pairs: list[tuple[str, Cell]] = [
        ("State", _state(it)),
        ("Agent", Link(it.agent.name, f"/agents/{it.agent.id}")),
        ("When", Code(it.cron)),
        ("Time zone", it.timezone),
        ("Next", Moment(from_timestamp(it.next_at) if it.HasField("next_at") else None)),
        ("Last", Moment(from_timestamp(it.fired_at) if it.HasField("fired_at") else None, "never")),
        ("Fired", f"{it.fired:,}"),
        ("Skipped", f"{it.skipped:,}"),
        ("In the name of", it.author.name),
        ("Session", Link("Its session", f"/sessions/{it.session_id}") if it.session_id else "none yet"),
        ("Text", Long(it.text)),
    ]
    blocks += [Facts("", pairs), Facts("What you can do", _acts(it))]
    return await visit.page(it.name, blocks)


def _acts(it: pb.Schedule) -> list[tuple[str, Cell]]:
    at = f"/schedules/{it.id}"
    if it.state == pb.SCHEDULE_STATE_ACTIVE:
        first: tuple[str, Cell] = ("Let it rest", Press(f"{at}/pause", "Pause", it.name))
    else:
        first = ("Let it fire again", Press(f"{at}/resume", "Resume", it.name))
    return [first, ("End it", Press(f"{at}/remove", "Remove", it.name, warning=_GONE))]


async def pause(visit: Visit) -> Response:
    """Let it rest."""
    await visit.posted()
    request = pb.PauseScheduleRequest(schedule_id=visit.path("schedule"))
    made = (await visit.mesh.schedules.PauseSchedule(request)).schedule
    return visit.done(f"/schedules/{made.id}", f"{made.name} is paused.")


async def resume(visit: Visit) -> Response:
    """Let it fire again."""
    await visit.posted()
    request = pb.ResumeScheduleRequest(schedule_id=visit.path("schedule"))
    made = (await visit.mesh.schedules.ResumeSchedule(request)).schedule
    return visit.done(f"/schedules/{made.id}", f"{made.name} is active.")


async def remove(visit: Visit) -> Response:
    """End it."""
    await visit.posted()
    await visit.mesh.schedules.RemoveSchedule(pb.RemoveScheduleRequest(schedule_id=visit.path("schedule")))
    return visit.done("/schedules", "The schedule is removed.")
