"""A real delegation through the whole mesh, shown as a timeline and a trace.

Starts `hopline up` on a data directory of its own, attaches five scripted agents as child processes and
drives them as a sixth agent, `planner`, through the official MCP client: once over stdio and once over
streamable HTTP. Then an owner answers an agent's question, a thread is full and a day's quota is used up.
With `--crew` it plays a lead and its specialists instead (crew.py). Every step checks what came back; the
first surprise ends the demo with status 1.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from types import FrameType

import crew
import limits
import scenes
from local_mesh import DemoError, LocalMesh
from rich.console import Console
from timeline import show_timeline, show_trace

console = Console(highlight=False)


async def play(mesh: LocalMesh) -> None:
    """Run every scene over both transports, then show what the mesh recorded."""
    for transport, client in (("stdio", mesh.stdio_client), ("streamable HTTP", mesh.http_client)):
        console.rule(f"[bold]planner over {transport}")
        async with client("planner") as session:
            turn_id = await scenes.play_all(session, console)
    console.rule("[bold]an owner's answer, a full thread, a quota")
    async with mesh.http_client("planner") as session:
        await limits.play(mesh, session, console)
    console.rule("[bold]timeline")
    await show_timeline(mesh, console)
    console.rule("[bold]trace of the delegation planner → researcher → reviewer")
    show_trace(mesh, turn_id)


async def play_crew(mesh: LocalMesh) -> None:
    """Have a crew work on a goal, then show what the mesh recorded."""
    console.rule("[bold]a lead and its specialists")
    crew.start(mesh, console)
    crew.play(mesh, console)
    console.rule("[bold]timeline")
    await show_timeline(mesh, console)


def cause(error: BaseException) -> BaseException:
    """Return what went wrong, out of the task groups through which it came."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def interrupt(number: int, frame: FrameType | None) -> None:
    """End as by Ctrl-C: nothing may stay behind."""
    raise KeyboardInterrupt


def main() -> int:
    """Run the demo; return the process's exit status."""
    started = time.monotonic()
    signal.signal(signal.SIGTERM, interrupt)
    mesh = LocalMesh(console)
    try:
        with mesh:
            mesh.start()
            if "--crew" in sys.argv[1:]:
                asyncio.run(play_crew(mesh))
            else:
                mesh.hire()
                asyncio.run(play(mesh))
    except (DemoError, ExceptionGroup) as failed:
        console.print(f"demo failed: {cause(failed)}", style="bold red", markup=False)
        mesh.show_logs()
        return 1
    except KeyboardInterrupt:
        return 130
    console.print(f"[bold green]done[/] in {time.monotonic() - started:.0f} s; everything is stopped again")
    return 0


if __name__ == "__main__":
    sys.exit(main())
