"""Bars for long work: seen at a terminal, and by nobody else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.cli.conftest import Run

_WORDS = (sys.executable, "-m", "hopline_cli", "db", "backup")


def _said_at_a_terminal(data: Path, file: Path) -> str:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*_WORDS, str(file), "--data", str(data)], stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as running:
        os.close(theirs)
        said = b""
        try:
            while block := os.read(ours, 4096):
                said += block
        except OSError:
            pass  # the other side is closed: that is how a terminal ends
        printed, _ = running.communicate()
    os.close(ours)
    assert running.returncode == 0
    assert "backed up to" in printed
    return said.decode(errors="replace")


def test_a_person_at_a_terminal_sees_how_far_it_is(hopline: Run, mesh_data: Path, tmp_path: Path) -> None:
    said = _said_at_a_terminal(mesh_data, tmp_path / "seen.zip")
    assert re.search(r"backing up \w+.*\d+/\d+", said.replace("\r", " "), re.DOTALL)
    assert zipfile.is_zipfile(tmp_path / "seen.zip")


def test_a_script_hears_nothing_of_it(mesh_data: Path, hopline: Run, tmp_path: Path) -> None:
    done = subprocess.run(
        [*_WORDS, str(tmp_path / "unseen.zip"), "--data", str(mesh_data)], capture_output=True, check=True
    )
    assert done.stderr == b""
