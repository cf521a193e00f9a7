"""compose.yaml gives a mesh: its commands, its environment and its order, played without containers."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mesh_process import BIN, ROOT, clean_environment

HOST = ROOT / "tests" / "deploy" / "compose_host.py"


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A folder with the script and what it has made."""
    shutil.copy(ROOT / "deploy" / "make-secrets.sh", tmp_path)
    done = subprocess.run(
        ["sh", "make-secrets.sh"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_secrets_are_made_once_and_for_their_owner_alone(secrets: Path) -> None:
    files = [*(secrets / "secrets").iterdir(), secrets / ".env"]
    assert {path.name for path in files} >= {"admin.token", "relay.token", "console.keys", ".env"}
    before = {path: path.read_bytes() for path in files}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    assert len(set(before.values())) == len(files)
    subprocess.run(["sh", "make-secrets.sh"], cwd=secrets, capture_output=True, check=True)
    assert {path: path.read_bytes() for path in files} == before


@pytest.mark.skipif(os.geteuid() != 0, reason="names and addresses of its own take root; CI has it")
def test_what_compose_starts_is_a_mesh(secrets: Path) -> None:
    done = subprocess.run(
        ["unshare", "-n", "-m", sys.executable, str(HOST), str(secrets)],
        env={**clean_environment(secrets), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
        cwd=secrets,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "COMPOSE SAYS HELLO" in done.stdout, done.stdout
    assert "ended [0, 0, 0, 0, 0, 0]" in done.stdout, done.stdout
    for path in (secrets / "secrets").iterdir():
        assert path.read_text().strip() not in done.stdout
