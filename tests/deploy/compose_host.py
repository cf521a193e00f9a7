"""A host on which compose.yaml is played without containers: its processes, as they stand there.

Run in a network and a file system of its own (`unshare -n -m`), where the services' names are this machine's
loopback. `python compose_host.py FOLDER`: the folder has compose.yaml's secrets and `.env`; an ask goes
through the mesh, and what was found is printed.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.postgres_server import Server  # noqa: E402 - run as a file of its own

HOPLINE = str(Path(sys.executable).parent / "hopline")
SECONDS = 60.0


def main(folder: Path) -> None:
    """Start what compose.yaml says in the order that it says, and have an ask go through."""
    _loopback()
    settings = dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines())
    composed = _filled((ROOT / "deploy" / "compose.yaml").read_text(), settings)
    services = composed["services"]
    _names(folder, services)
    server = _postgres(folder, settings["POSTGRES_PASSWORD"])
    running: list[subprocess.Popen[bytes]] = []
    try:
        for name in _ordered(services):
            process = _start(folder, name, services[name])
            if name == "migrate":
                assert process.wait(SECONDS) == 0
                continue
            running.append(process)
            _wait_until_healthy(services[name], process)
        _wait_until_healthy(services["gateway"], running[-1], "ready")
        admin, token = services["admin"], str(folder / "echo.token")
        for words in (
            ["agent", "create", "echo", "--token-file", token],
            ["db", "check"],
        ):
            assert _start(folder, "admin", admin, words).wait(SECONDS) == 0
        running.append(
            _start(
                folder,
                "admin",
                admin,
                [
                    "attach",
                    "--agent",
                    "echo",
                    "--token-file",
                    token,
                    "--prompt",
                    "raw",
                    "--",
                    "tr",
                    "a-z",
                    "A-Z",
                ],
            )
        )
        assert _start(folder, "admin", admin, ["chat", "echo", "compose says hello"]).wait(SECONDS) == 0
    finally:
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
        ended = [process.wait(SECONDS) for process in reversed(running)]
        server.close()
    print("ended", ended)


def _loopback() -> None:
    with socket.socket() as opened:
        fcntl.ioctl(opened, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))


def _filled(text: str, settings: dict[str, str]) -> Any:
    """Put in what compose does: `${NAME:-…}` and `${NAME:?…}`."""
    import re

    def put(match: re.Match[str]) -> str:
        name, sign, rest = match[1], match[2] or "", match[3] or ""
        if name in settings:
            return settings[name]
        assert sign != ":?", f"{name}: {rest}"
        return rest

    return yaml.safe_load(re.sub(r"\$\{(\w+)(?:(:[-?])([^}]*))?\}", put, text))


def _names(folder: Path, services: dict[str, Any]) -> None:
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost " + " ".join(services) + "\n")
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)
    Path("/run/secrets").mkdir(exist_ok=True)
    subprocess.run(["mount", "--bind", str(folder / "secrets"), "/run/secrets"], check=True)


def _postgres(folder: Path, password: str) -> Server:
    place = Path("/tmp") / f"hopline-postgres-compose-{os.getpid()}"
    place.mkdir(mode=0o711)
    server = Server(place)
    server.port = 5432
    server.make()
    server.start()
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE hopline LOGIN PASSWORD '{password}'".encode())
        admin.execute("CREATE DATABASE hopline OWNER hopline")
    return server


def _ordered(services: dict[str, Any]) -> list[str]:
    """Return the mesh's own services, each after those that it waits for."""
    ours = [name for name, each in services.items() if each.get("image") == "hopline" and name != "admin"]
    done: list[str] = []
    while left := [name for name in ours if name not in done]:
        able = [
            name
            for name in left
            if set(services[name].get("depends_on", {})) <= {*done, "postgres", "collector"}
        ]
        assert able, f"{left} wait for each other"
        done += able
    return done


def _environment(service: dict[str, Any]) -> dict[str, str]:
    # What is empty is nothing to YAML, once it was put in; compose puts it in afterwards.
    return {key: "" if value is None else str(value) for key, value in service["environment"].items()}


def _start(
    folder: Path, name: str, service: dict[str, Any], words: list[str] | None = None
) -> subprocess.Popen[bytes]:
    data = folder / "data" / name
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    given = _environment(service)
    given.pop("OTEL_EXPORTER_OTLP_ENDPOINT", None)  # no collector is here
    env = {"PATH": os.environ["PATH"], "HOME": str(data), "HOPLINE_DATA": str(data), **given}
    return subprocess.Popen([HOPLINE, *(words or service["command"])], env=env, cwd=data)


def _wait_until_healthy(service: dict[str, Any], process: subprocess.Popen[bytes], *words: str) -> None:
    env = {"PATH": os.environ["PATH"], **_environment(service)}
    ends = time.monotonic() + SECONDS
    probe = [sys.executable, "-m", "hopline_cli.probe", *words]
    while subprocess.run(probe, env=env, capture_output=True, check=False).returncode:
        assert process.poll() is None, "it ended while it was starting"
        assert time.monotonic() < ends, "it never became healthy"
        time.sleep(0.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
