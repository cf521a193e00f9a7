"""Becomes another user, then the command: `as_user.py UID GID GROUP,GROUP… COMMAND …`.

A program of its own because the daemon has threads, gRPC's among them: between fork and exec such a
process may only do what is safe in a signal handler, and dropping privileges there has crashed.
Standard library only: it stands between a turn and its command.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings  # noqa: F401 - execvp needs it, and the user may not be able to read the library

_NO_NEW_PRIVS = 38


def main(arguments: list[str]) -> int:
    """Drop to the user for good and run the command; returns only when it cannot be run."""
    uid, gid, groups, *words = arguments
    os.setgroups([int(group) for group in groups.split(",") if group])
    os.setgid(int(gid))
    os.setuid(int(uid))
    if sys.platform == "linux":
        # No program that runs from here on gets more than this: not sudo either.
        ctypes.CDLL(None).prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    try:
        os.execvp(words[0], words)  # noqa: S606 - the words are the operator's own, no shell reads them
    except OSError as error:
        print(f"the command {words[0]!r} cannot be started: {error}", file=sys.stderr)
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
