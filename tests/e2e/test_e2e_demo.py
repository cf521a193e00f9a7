"""`make demo`, and `make demo CREW=1`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import psutil

from tests.support.mesh_process import BIN, ROOT, SECONDS, processes


def said_by_demo(tmp_path: Path, *options: str) -> str:
    """Play the demo to its end; returns what it prints. Nothing may be left running."""
    # A copy, for the demo puts what it makes into its own checkout.
    for folder in ("demo", "deploy"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".venv").symlink_to(BIN.parent)
    with processes(tmp_path) as started:
        words = (sys.executable, str(tmp_path / "demo" / "run.py"), *options)
        demo = started.start("demo", *words, env={"COLUMNS": "300"})
        status = demo.wait(5 * SECONDS)
        assert status == 0, demo.said
        assert [each for each in psutil.process_iter(["cmdline"]) if is_of(each, tmp_path)] == []
        return demo.said


def test_the_demo_plays_to_its_end_and_leaves_nothing_running(tmp_path: Path) -> None:
    said = said_by_demo(tmp_path)
    for scene in ("over stdio", "over streamable HTTP", "timeline", "trace of the delegation"):
        assert scene in said
    assert "too many agents in a row" in said
    for held in ("waiting_for_owner", "admin said yes", "thread_full", "quota_exceeded", "resets_at 20"):
        assert held in said


def test_the_crew_of_the_examples_works_on_a_goal_whatever_goes_wrong_in_it(tmp_path: Path) -> None:
    said = said_by_demo(tmp_path, "--crew")
    assert "the answer is held for reports of" in said
    # Who reported, who forgot to, who was kept from it and then did, who crashed.
    answer = said[said.index("Here is what we know") : said.index("audit ")]
    for words in (
        "Librarian: ",
        "Navigator: ",
        "Tester: ",
        "Critic: One thing",
        "ended by SIGKILL",
        "withheld",
    ):
        assert words in answer
    assert "answer.held 1, answer.sent 1, hook.vetoed 1" in said


def is_of(process: psutil.Process, folder: Path) -> bool:
    return any(str(folder) in word for word in process.info["cmdline"] or ())
