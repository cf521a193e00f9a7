"""Running the command as another user, and refusing where that would protect nothing."""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hopline_rpc.errors import HoplineError

# What gives whoever may use it all that root has: daemons that start anything as root, memory, disks.
_DOORS: Final = (
    "/var/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
    "/var/lib/lxd/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
    "/run/incus/unix.socket",
    "/dev/mem",
    "/dev/kmem",
    "/proc/kcore",
)
_DISKS: Final = re.compile(r"(sd|hd|vd|xvd|nvme|mmcblk|dm-|md|zd)[a-z0-9]*")
# Not a secret, though it lies among them.
_PUBLIC: Final = frozenset({"endpoints.json"})
_MOST_FILES: Final = 20_000
_MOST_WORDS: Final = 4096


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


def refuse_readers(user: Account, secrets: Sequence[Path], processes: Sequence[int] = ()) -> None:
    """Refuse a user who can come by what these files and directories hold, or these processes.

    Tried as that user, in a child process, so that groups, access lists and the kernel's rules for looking
    into processes count as they do for real. Call it before threads are started.
    """
    files = [file for path in secrets for file in _files(path)]
    if problem := _tried(user, files, processes):
        raise HoplineError("failed_precondition", f"--user: {user.name} {problem}")


def _files(path: Path) -> Iterator[Path]:
    """Yield a secret; of a directory all that is in it: who may not list it may still know the names."""
    yield path
    for count, (folder, _, names) in enumerate(os.walk(path)):
        if count > _MOST_FILES:
            return
        yield from (Path(folder) / name for name in names if name not in _PUBLIC)


def _tried(user: Account, files: Sequence[Path], processes: Sequence[int]) -> str:
    """Return what the user could do; empty for nothing."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        found = "could not be tried; choose another user"  # whatever goes wrong here counts as: they can
        try:
            os.setgroups(user.groups)
            os.setgid(user.gid)
            os.setuid(user.uid)
            found = next(_powers(user, files, processes), "")
        finally:
            os.write(writer, found.encode("utf-8", "replace")[:_MOST_WORDS])
            os._exit(0 if not found else 1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    return found or ("could not be tried; choose another user" if status else "")


def _powers(user: Account, files: Sequence[Path], processes: Sequence[int]) -> Iterator[str]:
    """Yield what this process, which is the user's by now, can do that it must not be able to."""
    for path in files:
        if _readable(path):
            yield (
                f"can read {path}, and with it the agent's credential;"
                f" take the permission away (chmod go-rwx {path}) or choose another user"
            )
    for path in dict.fromkeys(each for file in files for each in (file, *file.absolute().parents)):
        if _changeable(user, path):
            yield (
                f"can put something else in the place of {path}, which leads to the agent's credential;"
                " give it to root, writable for nobody else, or choose another user"
            )
    for process in processes:
        for what in ("mem", "environ", "fd"):
            if _readable(Path(f"/proc/{process}/{what}")):
                yield f"can read the memory of this process (/proc/{process}/{what}); choose another user"
    for door in (*(Path(each) for each in _DOORS), *_disks()):
        if os.access(door, os.R_OK | os.W_OK if door.is_socket() else os.R_OK):
            yield f"may use {door}, and so read everything; take away its group, or choose another user"


def _readable(path: Path) -> bool:
    try:
        if path.is_dir():
            os.listdir(path)
        else:
            with path.open("rb") as file:
                file.read(0)
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        return False
    return True


def _changeable(user: Account, path: Path) -> bool:
    """Tell whether the user can change a file, or what stands in a directory under some name."""
    try:
        found = path.stat()
    except OSError:
        return False  # who does not get there changes nothing there
    if found.st_uid == user.uid:
        return True  # and may give themselves any permission
    if not os.access(path, os.W_OK):
        return False
    # In a directory like /tmp everybody may make files, and touch none but their own.
    return not (stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX)


def _disks() -> Iterator[Path]:
    try:
        yield from (Path("/dev") / name for name in os.listdir("/dev") if _DISKS.fullmatch(name))
    except OSError:
        return
