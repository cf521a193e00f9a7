"""Chromium: the one of the system's packages, installed the first time that a test wants it.

Playwright drives it and brings none of its own. Whoever is root on a machine with Debian's packages need do
nothing; others are told what to install, and the tests in the browser are skipped for them, but not in CI.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
# Without a font of wide coverage, what is not Latin would be boxes in every screenshot.
PACKAGES: Final = ("chromium", "fonts-dejavu-core")
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_SECONDS: Final = 900.0


def chromium() -> str:
    """Return the browser's path; skips the test, in CI fails it, where there is none to be had."""
    if found := _found():
        return found
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / "chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers want it at the same time
        if found := _found():
            return found
        if os.geteuid() == 0 and shutil.which("apt-get"):
            _install()
            if found := _found():
                return found
    reason = f"no Chromium: install it first (Debian: apt-get install {' '.join(PACKAGES)})"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def _found() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def _install() -> None:
    print("setting up: chromium (by apt-get)", file=sys.__stderr__, flush=True)
    wait = ("-o", "DPkg::Lock::Timeout=300")  # for whoever else installs something on this machine
    for words in (
        ("apt-get", *wait, "-qq", "update"),
        ("apt-get", *wait, "-qq", "install", "--yes", "--no-install-recommends", *PACKAGES),
    ):
        done = subprocess.run(
            words,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        # Lists that cannot be had anew may be good enough as they are.
        if done.returncode != 0 and "update" not in words:
            raise RuntimeError(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
