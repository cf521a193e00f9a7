"""`hopline schedule`: what agents are told at the times of a cron expression."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Json, Output
from hopline_cli.verbs import Cursor, Limit, command, text_or_file

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

app = typer.Typer(help="Schedules: a text for an agent, at the times you set.", no_args_is_help=True)

Schedule = Annotated[str, typer.Argument(metavar="ID", help="As `schedule list` names it.")]


@command(app, "add")
async def add(
    mesh: Mesh,
    out: Output,
    agent: Annotated[str, typer.Argument(metavar="AGENT")],
    text: Annotated[str, typer.Argument(help="The text; @FILE reads a file, - standard input.")],
    cron: Annotated[
        str,
        typer.Option("--cron", metavar="'M H D M W'", help="Minute, hour, day, month, day of week."),
    ],
    timezone: Annotated[
        str, typer.Option("--timezone", metavar="TZ", help="Such as Europe/Berlin.", show_default="UTC")
    ] = "",
    name: Annotated[
        str, typer.Option("--name", metavar="N", help="Its name; else the text's first words.")
    ] = "",
    request_id: Annotated[
        str, typer.Option(metavar="UUID", help="Repeated with it, it is set once.", show_default=False)
    ] = "",
) -> None:
    """Give AGENT the TEXT at the times of a cron expression, at depth 0 and in your name."""
    from hopline.relay.v1 import schedule_pb2 as pb

    from hopline_cli import shapes

    request = pb.AddScheduleRequest(
        agent=agent,
        cron=cron,
        timezone=timezone,
        name=name,
        text=text_or_file(text, "TEXT") or "",
        request_id=request_id or str(uuid.uuid4()),
    )
    made = shapes.schedule((await mesh.schedules.AddSchedule(request)).schedule)
    out.result(made, f"schedule {made['id']} set; it fires next at {made['next_at']}")


@command(app, "list")
async def list_schedules(
    mesh: Mesh,
    out: Output,
    agent: Annotated[
        str, typer.Option("--agent", metavar="A", help="Only of this agent.", show_default=False)
    ] = "",
    limit: Limit = 50,
    cursor: Cursor = "",
) -> None:
    """List schedules, newest first. Needs the role operator on the agent."""
    from hopline.relay.v1 import schedule_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        request = pb.ListSchedulesRequest(agent=agent, page_size=size, page_token=at)
        page = await mesh.schedules.ListSchedules(request)
        return [shapes.schedule(each) for each in page.schedules], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    columns = [("AGENT", "agent.name"), ("NAME", "name"), ("CRON", "cron"), ("ZONE", "timezone")]
    columns += [("STATE", "state"), ("NEXT", "next_at"), ("FIRED", "fired"), ("SKIPPED", "skipped")]
    out.rows("schedules", items, [*columns, ("WHY", "problem.code"), ("ID", "id")], rest)


@command(app, "show")
async def show(mesh: Mesh, out: Output, schedule: Schedule) -> None:
    """Show one: its text, when it fires next, what became of the last time."""
    from hopline.relay.v1 import schedule_pb2 as pb

    from hopline_cli import shapes

    found = await mesh.schedules.GetSchedule(pb.GetScheduleRequest(schedule_id=schedule))
    _print(out, shapes.schedule(found.schedule))


@command(app, "pause")
async def pause(mesh: Mesh, out: Output, schedule: Schedule) -> None:
    """Let it fire no more until it is resumed."""
    from hopline.relay.v1 import schedule_pb2 as pb

    from hopline_cli import shapes

    found = await mesh.schedules.PauseSchedule(pb.PauseScheduleRequest(schedule_id=schedule))
    paused = shapes.schedule(found.schedule)
    out.result(paused, f"schedule {paused['id']} is {paused['state']}")


@command(app, "resume")
async def resume(mesh: Mesh, out: Output, schedule: Schedule) -> None:
    """Let it fire again, from now on."""
    from hopline.relay.v1 import schedule_pb2 as pb

    from hopline_cli import shapes

    found = await mesh.schedules.ResumeSchedule(pb.ResumeScheduleRequest(schedule_id=schedule))
    resumed = shapes.schedule(found.schedule)
    out.result(resumed, f"schedule {resumed['id']} is active; it fires next at {resumed['next_at']}")


@command(app, "remove")
async def remove(mesh: Mesh, out: Output, schedule: Schedule) -> None:
    """Remove it; its session stays readable."""
    from hopline.relay.v1 import schedule_pb2 as pb

    await mesh.schedules.RemoveSchedule(pb.RemoveScheduleRequest(schedule_id=schedule))
    out.result({"id": schedule, "removed": True}, f"schedule {schedule} removed")


def _print(out: Output, found: Json) -> None:
    problem = found["problem"]
    shown = {
        **found,
        "agent": found["agent"]["display"],
        "author": found["author"]["name"],
        "problem": f"{problem['message']} ({problem['code']}, {problem['at']})" if problem else None,
    }
    out.fields(found, shown)
