"""What can be seen of a mesh without asking it: its folder, its databases, its ports, this machine."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from hopline_cli.doctor.findings import Finding, good, note, problem

_SERVICES: Final = {"gateway": 7400, "registry": 7401, "relay": 7402, "quota": 7403}
# Below the first nothing can be trusted to be written, below the second it is time to look.
_FULL: Final = 100 * 2**20
_LOW: Final = 1024 * 2**20
_CONNECT_SECONDS: Final = 1.0


def endpoints(data: Path) -> dict[str, Any] | None:
    """Read where the mesh says it listens; None where it says nothing."""
    try:
        found = json.loads((data / "endpoints.json").read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def is_held(path: Path) -> bool:
    """Tell whether a process holds a lock file; looking takes it for a moment where nobody does."""
    try:
        with path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def runs(data: Path, found: Mapping[str, Any] | None) -> bool:
    """Tell whether a mesh, or a part of one, runs on the folder."""
    names = ["lock", *(f"serve.{name}.lock" for name in _SERVICES if found and found.get(name))]
    return any(is_held(data / name) for name in names)


def of_folder(data: Path) -> Iterator[Finding]:
    """Say what is wrong with a data directory."""
    if not data.is_dir():
        yield problem("data directory", f"there is no {data}", f"start a mesh: hopline up --data {data}")
        return
    if data.stat().st_mode & 0o077:
        yield problem("data directory", f"{data} is open to other users", f"chmod go-rwx {data}")
    yield from _open_files(data)
    yield _room(data)
    yield from _schemas(data)


def _open_files(data: Path) -> Iterator[Finding]:
    files = [*data.glob("*.token"), *data.glob("*.db")]
    if (given := os.environ.get("HOPLINE_TOKEN_FILE")) and Path(given).is_file():
        files.append(Path(given))
    opened = [file for file in files if file.stat().st_mode & 0o077]
    for file in opened:
        what = "a credential" if file.suffix != ".db" else "what agents say"
        text = f"{file} ({file.stat().st_mode & 0o777:04o}) can be read by others, and holds {what}"
        yield problem("files", text, f"chmod 600 {file}; if others are here, replace what it holds")
    if not opened:
        yield good("files", "credentials and databases are for their owner alone")


def _room(data: Path) -> Finding:
    free = shutil.disk_usage(data).free
    text = f"{free / 2**20:.0f} MB are free where {data} is"
    if free < _FULL:
        return problem("disk", text, "make room: nothing is accepted that cannot be written")
    if free < _LOW:
        return note("disk", text, "make room soon, or set the policy retention_days")
    return good("disk", text)


def _schemas(data: Path) -> Iterator[Finding]:
    """Compare the databases' revisions with those that this version has scripts for."""
    for name in ("registry", "relay", "quota"):
        file, known = data / f"{name}.db", _revisions(name)
        if not file.exists() or not known:
            continue
        try:
            with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.Error as error:
            todo = "restore a backup, or ask whoever runs this machine"
            yield problem("schema", f"{file} cannot be read: {error}", todo)
            continue
        current = row[0] if row else ""
        if current not in known:
            text = f"{file} was made by a newer Hopline (revision {current})"
            yield problem("schema", text, "install the version that made it, or restore a backup")
        elif current != known[-1]:
            text = f"{file} is at revision {current}, this version at {known[-1]}"
            yield problem("schema", text, "start the mesh with this version: it migrates by itself")
        else:
            yield good("schema", f"{name}.db is at revision {current}")


def _revisions(service: str) -> list[str]:
    """Return the revisions of a service's scripts in order, by the service's entry point; empty: not here."""
    import ast
    import importlib.util

    points = [each for each in entry_points(group="hopline.services") if each.name == service]
    spec = importlib.util.find_spec(points[0].module.partition(".")[0]) if points else None
    if spec is None or not spec.submodule_search_locations:
        return []
    folder = Path(next(iter(spec.submodule_search_locations))) / "migrations" / "versions"
    found = []
    for file in sorted(folder.glob("[0-9]*.py")):
        for node in ast.parse(file.read_text()).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            value = getattr(node, "value", None)
            if isinstance(target, ast.Name) and target.id == "revision" and isinstance(value, ast.Constant):
                found.append(str(value.value))
    return found


def of_ports(data: Path, found: Mapping[str, Any] | None, *, up: bool) -> Iterator[Finding]:
    """Say what is wrong with where the mesh listens, or would."""
    if found is not None and not up:
        said = f"{data / 'endpoints.json'} says where a mesh listens, and none runs on {data}"
        yield problem("mesh", said, f"it has died: start it again with hopline up --data {data}")
    elif not up:
        todo = f"hopline up --data {data}, or say where it is with HOPLINE_URL"
        yield problem("mesh", f"no mesh runs on {data}", todo)
    if not up:
        for name, port in _SERVICES.items():
            if answers(f"127.0.0.1:{port}"):
                todo = "stop it, or start the mesh elsewhere (--any-port, `listen` in its file)"
                yield problem("ports", f"port {port} of the {name} is taken by another process", todo)
        return
    for name in _SERVICES:
        address = str((found or {}).get(name) or "")
        if not address:
            yield problem("mesh", f"the {name} does not run on {data}", f"hopline serve {name} --data {data}")
        elif not answers(address):
            yield problem("mesh", f"nothing answers at {address}, where the {name} is", _RESTART)
    yield good("mesh", f"a mesh runs on {data}")


_RESTART: Final = "stop what is left of it and start it again: nothing that was accepted is lost"


def answers(address: str) -> bool:
    """Tell whether something listens at an address."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if address.startswith("unix:"):
        return Path(address.removeprefix("unix:").removeprefix("//")).exists()
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS):
            return True
    except (OSError, ValueError):
        return False
