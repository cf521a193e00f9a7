"""The image's steps, done one after the other on a copy of this machine, give a program that works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.mesh_process import ROOT, clean_environment

STEPS = ROOT / "tests" / "deploy" / "image_steps.py"


@pytest.mark.skipif(os.geteuid() != 0, reason="a copy of the file system takes root; CI has it")
def test_the_steps_of_the_image_give_a_mesh_for_a_user_without_rights(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="hopline-image-", dir="/dev/shm"))
    env = {**clean_environment(tmp_path), "HOME": os.environ.get("HOME", "/root")}
    env.pop("VIRTUAL_ENV", None)
    try:
        done = subprocess.run(
            ["unshare", "-m", sys.executable, str(STEPS), str(folder)],
            env=env,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=500,
            check=False,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stdout
    version = (ROOT / "VERSION").read_text().strip()
    for line in (
        f"version: hopline {version}",
        "user: 10001",
        "writes to the program: False",
        "tests are in it: False",
        "relay: whole",
        "ended 0",
        "probe where nothing runs: 1",
    ):
        assert line in done.stdout, done.stdout
