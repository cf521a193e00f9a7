"""Running the command as another user, and refusing where that would protect nothing."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hopline_rpc.errors import HoplineError


@dataclass(frozen=True)
class Account:
    """The user whom the command runs as."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str


def account(name: str) -> Account:
    """Look up `--user`; refuses where we may not become that user, or where they are all-powerful."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise HoplineError("invalid_argument", f"--user: there is no user {name!r} on this machine") from None
    if entry.pw_uid == 0:
        raise HoplineError("invalid_argument", "--user: root can read everything; choose another user")
    if os.geteuid() != 0:
        raise HoplineError(
            "failed_precondition", "--user: only root can run a command as another user; start attach as root"
        )
    groups = tuple(os.getgrouplist(name, entry.pw_gid))
    return Account(name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, entry.pw_shell)


def refuse_readers(user: Account, secrets: Sequence[Path]) -> None:
    """Refuse a user who can read one of these files or list one of these directories.

    Tried as that user, in a child process, so that groups and access lists count as they do for real.
    Call it before threads are started.
    """
    for path in secrets:
        if _can_read(user, path):
            raise HoplineError(
                "failed_precondition",
                f"--user: {user.name} can read {path}, and with it the agent's credential;"
                f" take the permission away (chmod go-rwx {path}) or choose another user",
            )


def _can_read(user: Account, path: Path) -> bool:
    child = os.fork()
    if child == 0:
        status = 1  # whatever goes wrong here counts as: it can
        try:
            os.setgroups(user.groups)
            os.setgid(user.gid)
            os.setuid(user.uid)
            status = 1 if _readable(path) else 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return status != 0


def _readable(path: Path) -> bool:
    try:
        if path.is_dir():
            os.listdir(path)
        else:
            path.open("rb").close()
    except (PermissionError, FileNotFoundError):
        return False
    return True
