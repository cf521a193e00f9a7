"""`make demo`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import psutil

from tests.support.mesh_process import BIN, ROOT, SECONDS, processes


def test_the_demo_plays_to_its_end_and_leaves_nothing_running(tmp_path: Path) -> None:
    # A copy, for the demo puts what it makes into its own checkout.
    shutil.copytree(ROOT / "demo", tmp_path / "demo", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".venv").symlink_to(BIN.parent)
    with processes(tmp_path) as started:
        words = (sys.executable, str(tmp_path / "demo" / "run.py"))
        demo = started.start("demo", *words, env={"COLUMNS": "300"})
        status = demo.wait(5 * SECONDS)
        assert status == 0, demo.said
        for scene in ("over stdio", "over streamable HTTP", "timeline", "trace of the delegation"):
            assert scene in demo.said
        assert "too many agents in a row" in demo.said
        for held in ("waiting_for_owner", "admin said yes", "thread_full", "quota_exceeded", "resets_at 20"):
            assert held in demo.said
        assert [each for each in psutil.process_iter(["cmdline"]) if is_of(each, tmp_path)] == []


def is_of(process: psutil.Process, folder: Path) -> bool:
    return any(str(folder) in word for word in process.info["cmdline"] or ())
