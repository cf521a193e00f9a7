"""What every child of a run has: its configuration, its ready line, a line for each round."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import uvloop

Answer = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
Call = Callable[[int], Awaitable[object]]


def configuration() -> dict[str, Any]:
    """Return what the run told this process on its command line."""
    found: dict[str, Any] = json.loads(sys.argv[1])
    return found


def say(answer: Mapping[str, Any]) -> None:
    """Print one line for the run to read."""
    print(json.dumps(answer), flush=True)


async def serve(answer: Answer, ready: Mapping[str, Any] | None = None) -> None:
    """Say that this process is ready, then answer each line until standard input ends."""
    say(ready or {})
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            say(await answer(json.loads(line)))
        except ExceptionGroup as group:
            say({"error": f"{len(group.exceptions)} calls failed, the first: {group.exceptions[0]!r}"})
        except Exception as error:
            say({"error": repr(error)})


async def idle(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Answer for a process that only has to be there."""
    return {}


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a child on the loop that the mesh itself uses; the end of its input is its end."""

    async def until_end() -> None:
        await main()

    uvloop.run(until_end())


async def closed_loop(call: Call, outstanding: int, seconds: float) -> dict[str, Any]:
    """Keep `outstanding` calls under way for `seconds`.

    `call` gets the number of the caller it plays. Returns how many calls there were, how many a second, and
    the median time of one, in seconds. A call that fails ends the round.
    """
    times: list[float] = []
    started = time.perf_counter()
    until = started + seconds

    async def caller(number: int) -> None:
        begun = time.perf_counter()
        while begun < until:
            await call(number)
            ended = time.perf_counter()
            times.append(ended - begun)
            begun = ended

    async with asyncio.TaskGroup() as group:
        for number in range(outstanding):
            group.create_task(caller(number))
    calls, took = len(times), time.perf_counter() - started
    return {"calls": calls, "rate": calls / took, "p50": statistics.median(times)}
