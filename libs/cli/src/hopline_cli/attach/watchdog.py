"""Ends what an attach daemon leaves behind, however it ends: `python -m hopline_cli.attach.watchdog FOLDER`.

The daemon says on a pipe which process groups it runs (`+123`, `-123`). When the pipe ends, the daemon
is gone, perhaps by SIGKILL: the groups are killed, then whatever else still has a socket of this daemon
in its environment (a command that was started within the daemon's last moment), then the folder goes.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def watch(lines: Iterable[str]) -> set[int]:
    """Read to the end of the pipe; returns the groups that were running then."""
    groups: set[int] = set()
    for line in lines:
        number = int(line[1:])
        if line[0] == "+":
            groups.add(number)
        else:
            groups.discard(number)
    return groups


def end(groups: set[int], folder: Path) -> None:
    """Kill the groups and every process that was given a socket in `folder`, then remove it."""
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    for process in _holders(folder):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _holders(folder: Path) -> list[int]:
    import psutil

    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            given = process.environ().get("HOPLINE_SOCKET", "")
            if given.startswith(f"{folder}/") and process.pid != os.getpid():
                found.append(process.pid)
    return found


def main() -> None:
    """Watch standard input; signals meant for the daemon do not end the one that cleans up after it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end(watch(sys.stdin), Path(sys.argv[1]))


if __name__ == "__main__":
    main()
