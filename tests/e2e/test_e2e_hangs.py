"""Why an `ask` hangs: found by the command line alone, and ended by the command that it prints."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Any

from tests.support.hangs import Hang, full_run_queue, owners_question, stopped_worker, stuck_hook
from tests.support.mesh_process import HOPLINE, Space, until


async def _why(hang: Hang, reason: str) -> dict[str, Any]:
    """Ask why until this is the reason; returns what is said of it."""

    async def told() -> Any:
        found = await hang.space.mesh.cli("why", hang.turn_id, "--workspace", hang.space.name)
        waits = [*(node["wait"] for node in found["blocked"]), *(hook["wait"] for hook in found["hooks"])]
        return next((wait for wait in waits if wait["reason"] == reason), None)

    found: dict[str, Any] = await until(told, f"the reason {reason}")
    return found


async def _shown(hang: Hang) -> str:
    words = ("why", hang.turn_id, "--workspace", hang.space.name)
    done = await asyncio.to_thread(hang.space.mesh.hopline, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _words(remedy: str, **given: str) -> list[str]:
    """Return the command that was printed, with what a person puts in place of the capitals."""
    program, *words = shlex.split(remedy)
    assert program == "hopline"
    return [given.get(word, word) for word in words]


async def test_a_worker_that_was_stopped_is_named_and_another_one_ends_the_wait(space: Space) -> None:
    hang = await stopped_worker(space)
    wait = await _why(hang, "worker_silent")
    assert "its worker is gone" in wait["text"]
    assert f"to end it: {wait['remedy']}" in await _shown(hang)
    words = _words(wait["remedy"], COMMAND="cat")
    options = ("--data", str(space.mesh.data), "--workspace", space.name)
    at = words.index("--")
    again = space.mesh.processes.start("again", HOPLINE, *words[:at], *options, *words[at:])
    await until(lambda: "attached as peer" in again.said, "the new worker")
    await hang.over()


async def test_a_question_to_an_owner_is_named_and_the_answer_ends_the_wait(space: Space) -> None:
    hang = await owners_question(space)
    wait = await _why(hang, "owner")
    assert "it has asked its owner a question" in await _shown(hang)
    await space.mesh.cli(*_words(wait["remedy"], TEXT="yes"), "--workspace", space.name)
    await hang.over()


async def test_a_full_run_queue_is_named_and_another_slot_ends_the_wait(space: Space) -> None:
    hang = await full_run_queue(space)
    wait = await _why(hang, "run_queue")
    assert "all 1 run slots of the workspace are taken" in await _shown(hang)
    await space.mesh.cli(*_words(wait["remedy"]), "--workspace", space.name)
    await hang.over()


async def test_a_stuck_hook_is_named_and_without_its_plugin_it_goes_on(space: Space, tmp_path: Path) -> None:
    async with stuck_hook(space, tmp_path) as hang:
        wait = await _why(hang, "hook")
        assert "the hook inter_agent_message of Censor" in await _shown(hang)
        words = ("top", "--once", "--workspace", space.name)
        floor = await asyncio.to_thread(space.mesh.hopline, *words)
        assert "Censor" in floor.stdout
        await space.mesh.cli(*_words(wait["remedy"]), "--workspace", space.name)
        await hang.over()
