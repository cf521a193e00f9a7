"""The crew of crew.yaml at work, played by scripts: a lead that hands parts of a goal on, and specialists.

The mesh runs (`make up`); then

hopline crew apply deploy/examples/crew/crew.yaml --tokens-dir build/crew
.venv/bin/python deploy/examples/crew/workers.py build/crew
hopline chat planner "Is the release ready?"

Each function is what a model would be with the instructions of its member. Two of them go wrong: the tester
forgets to report, and the critic says more than it may. The builder is none of these: builder.sh crashes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import defaultdict
from pathlib import Path

from hopline_client import Host, Turn

DATA = Path(os.environ.get("HOPLINE_DATA") or Path.home() / ".hopline")
PARTS = {
    "librarian": "What do the release notes promise?",
    "navigator": "Where is what they promise?",
    "tester": "Try it out.",
    "critic": "What could go wrong?",
    "builder": "Build it from a clean checkout.",
}
# What the lead was told, by the goal it was told it for.
reports: defaultdict[str, list[str]] = defaultdict(list)


async def planner(turn: Turn) -> str:
    """Hand the parts on; put the reports together once nothing is waited for any more."""
    if turn.cause == "prompt":
        await asyncio.gather(*(turn.mesh.start_subagent(key, task) for key, task in PARTS.items()))
        # Too early: the mesh keeps this back as a draft until every report is in.
        return "I have asked five specialists."
    if turn.cause != "draft":
        reports[turn.root_id] += [f"{message.sender.name}: {message.body}" for message in turn.messages]
        return ""
    return "\n".join(["Here is what we know:", *sorted(reports.pop(turn.root_id, []))])


async def librarian(turn: Turn) -> None:
    """Report with the source of what it says."""
    await turn.mesh.report_to_caller("They promise three things (CHANGELOG.md:7, verified by reading it).")


async def navigator(turn: Turn) -> None:
    """Report places."""
    await turn.mesh.report_to_caller("All three are there: src/app.py:12, src/app.py:80, src/cli.py:5.")


async def tester(turn: Turn) -> str:
    """Take a while, and forget to report: the final message is delivered instead."""
    await asyncio.sleep(5)
    return "I tried all three twice, and they hold (30 tests passed)."


async def critic(turn: Turn) -> None:
    """Say more than may be said; take it back when a hook vetoes it."""
    said = await turn.mesh.report_to_caller(
        "It works only because the password of the test server is hunter2."
    )
    if said.canceled:
        await turn.mesh.report_to_caller(f"One thing could go wrong, which I may not name ({said.reason}).")


async def run(tokens: Path) -> None:
    """Attach everybody over one stream."""
    host = Host(DATA)
    for handler in (planner, librarian, navigator, tester, critic):
        host.add(handler, token_file=tokens / f"{handler.__name__}.token")
    await host.run()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
