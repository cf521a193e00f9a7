"""One run of the command under attach."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from hopline_cli.attach import process
from hopline_cli.attach.process import MAX_ANSWER, become_reaper, run
from hopline_client import TurnFailed

ENV = {"PATH": os.environ["PATH"]}


class Notes:
    """A watchdog that only takes notes."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.seen: list[int] = []

    def started(self, group: int) -> None:
        self.running.add(group)
        self.seen.append(group)

    def ended(self, group: int) -> None:
        self.running.discard(group)


@pytest.fixture
def notes() -> Notes:
    become_reaper()
    return Notes()


async def sh(script: str, notes: Notes, prompt: str = "") -> str:
    return await run(["sh", "-c", script], prompt, ENV, notes)


def alive(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


class Signpost:
    """A pipe with a name, into which a command writes a line when it has come so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)

    async def reached(self) -> str:
        return (await asyncio.to_thread(self.path.read_text)).strip()


@pytest.fixture
def signpost(tmp_path: Path) -> Signpost:
    return Signpost(tmp_path / "reached")


async def test_the_prompt_is_standard_input_and_standard_output_is_the_answer(notes: Notes) -> None:
    assert await sh("cat", notes, "a 😀 prompt\nof two lines") == "a 😀 prompt\nof two lines"


async def test_one_line_end_after_the_answer_is_taken_off(notes: Notes) -> None:
    assert await sh("printf 'x\\n\\n'", notes) == "x\n"


async def test_no_output_is_an_empty_answer(notes: Notes) -> None:
    assert await sh("true", notes) == ""


async def test_a_command_that_ignores_its_prompt_still_answers(notes: Notes) -> None:
    assert await sh("echo fine", notes, "x" * 1_000_000) == "fine"


async def test_a_failing_command_fails_the_turn_with_its_last_words(notes: Notes) -> None:
    with pytest.raises(TurnFailed) as failed:
        await sh("i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo line $i >&2; done; exit 3", notes)
    text = str(failed.value)
    assert text.startswith("the command failed with exit status 3: line 21\n")
    assert text.endswith("line 30")


async def test_a_command_ended_by_a_signal_says_which(notes: Notes) -> None:
    with pytest.raises(TurnFailed, match="ended by SIGKILL"):
        await sh("kill -9 $$", notes)


async def test_a_command_that_does_not_exist_fails_the_turn_by_name(notes: Notes) -> None:
    with pytest.raises(TurnFailed, match="'no-such-command' cannot be started"):
        await run(["no-such-command"], "", ENV, notes)


@pytest.mark.parametrize("size", [MAX_ANSWER - 1, MAX_ANSWER])
async def test_an_answer_up_to_256_kib_is_whole(notes: Notes, size: int) -> None:
    script = f"import sys; sys.stdout.write('x' * {size} + chr(10))"
    assert len(await run([sys.executable, "-c", script], "", ENV, notes)) == size


@pytest.mark.parametrize("size", [MAX_ANSWER + 1, MAX_ANSWER + 3, 50_000_000])
async def test_a_longer_answer_fails_the_turn_and_ends_the_command(notes: Notes, size: int) -> None:
    script = f"import sys, signal; sys.stdout.write('x' * {size}); sys.stdout.flush()"
    with pytest.raises(TurnFailed, match="larger than 256 KiB"):
        await run([sys.executable, "-c", script], "", ENV, notes)
    assert not notes.running


async def test_bytes_that_are_no_text_are_shown_as_such(notes: Notes) -> None:
    assert await sh("printf 'a\\377b\\000c'", notes) == "a\ufffdb\ufffdc"


async def test_background_children_end_with_the_turn(notes: Notes) -> None:
    child = int(await sh("sleep 1000 & echo $!", notes))
    assert not alive(child)
    assert not notes.running


async def test_children_that_ignore_the_request_to_end_are_killed(
    notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "TERM_SECONDS", 0.1)
    script = (
        f"(trap '' TERM; echo x > {tmp_path}/up; while :; do sleep 1000; done) & echo $! > {tmp_path}/child"
    )
    await sh(f"{script}; while [ ! -s {tmp_path}/up ]; do :; done; echo done", notes)
    assert not alive(int((tmp_path / "child").read_text()))


async def test_a_child_that_left_the_group_does_not_hold_up_the_answer(notes: Notes, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pid")
    script = f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 1000' &"
    answer = await sh(f"{script} read pid < {tmp_path}/pid; echo $pid", notes)
    psutil.Process(int(answer)).kill()


async def test_a_cancelled_turn_ends_the_whole_group(notes: Notes, signpost: Signpost) -> None:
    turn = asyncio.create_task(sh(f"sleep 1000 & echo $! $$ > {signpost.path}; wait", notes))
    pids = (await signpost.reached()).split()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert not any(alive(int(pid)) for pid in pids)
    assert not notes.running


async def test_a_turn_cancelled_while_its_command_starts_ends_the_whole_group(notes: Notes) -> None:
    """Cancelled after each of the first steps of the event loop in turn: somewhere in there it starts."""
    for steps in range(12):
        turn = asyncio.create_task(sh("sleep 1000 & wait", notes))
        for _ in range(steps):
            await asyncio.sleep(0)
        turn.cancel()
        async with asyncio.timeout(20):
            await asyncio.wait({turn})
        assert turn.cancelled()
    assert not notes.running
    assert not any(_exists(group) for group in notes.seen)


def _exists(group: int) -> bool:
    with suppress(ProcessLookupError):
        os.killpg(group, 0)
        return True
    return False


async def test_cancelling_twice_still_ends_the_whole_group(
    notes: Notes, signpost: Signpost, tmp_path: Path
) -> None:
    script = f"trap 'echo told > {tmp_path}/told; exit' TERM; sleep 1000 & echo $$ > {signpost.path}; wait"
    turn = asyncio.create_task(sh(script, notes))
    pid = int(await signpost.reached())
    turn.cancel()
    await asyncio.sleep(0)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert not alive(pid)
    assert (tmp_path / "told").exists()


async def test_two_runs_do_not_disturb_each_other(notes: Notes, signpost: Signpost, tmp_path: Path) -> None:
    go = Signpost(tmp_path / "go")
    long = asyncio.create_task(sh(f"echo x > {signpost.path}; read word < {go.path}; echo $word", notes))
    await signpost.reached()
    assert await sh("echo b", notes) == "b"
    await asyncio.to_thread(go.path.write_text, "a\n")
    assert await long == "a"
    assert len(set(notes.seen)) == 2
