"""A mesh of four processes with mutual TLS: who has no certificate of its authority gets nowhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority
from tests.support.mesh_process import HOPLINE, Processes, until
from tests.support.served_mesh import SERVICES, ServedMesh


class TlsMesh(ServedMesh):
    """The mesh; commands prove themselves like its services do."""

    def __init__(self, started: Processes, folder: Path) -> None:
        self.authority = Authority(folder, "ours")
        cert, key = self.authority.issue("mesh")
        self.trusted = folder / "trusted.pem"
        self.trusted.write_bytes(self.authority.ca.read_bytes())
        self.own = (cert, key)
        self.words = {
            "HOPLINE_TLS_CERT": str(cert),
            "HOPLINE_TLS_KEY": str(key),
            "HOPLINE_TLS_CA": str(self.trusted),
        }
        super().__init__(started, env=self.words)
        self.https = self.context(self.own)

    def context(self, own: tuple[Path, Path] | None) -> ssl.SSLContext:
        """Return how one with this certificate speaks to it."""
        context = ssl.create_default_context(cafile=self.trusted)
        if own is not None:
            context.load_cert_chain(*own)
        return context

    def hopline(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command with the certificate."""
        return self.hopline_as(self.words, *words)

    def hopline_as(self, env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command with what is said here."""
        return self.processes.run(HOPLINE, *words, "--data", str(self.data), env=env)

    async def chat(self) -> str:
        """Have an answer of the agent `echo`."""
        found = await self.cli("chat", "echo", "hello", "--wait", "60")
        return str(found["reply"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "certificates"
    made.mkdir()
    return made


@pytest.fixture
async def mesh(started: Processes, folder: Path) -> Any:
    made = TlsMesh(started, folder)
    await asyncio.to_thread(made.start)
    await made.cli("agent", "create", "echo")
    words = ("attach", "--agent", "echo", "--data", str(made.data), "--", "cat")
    worker = started.start("attach", HOPLINE, *words, env=made.words)
    await until(lambda: "attached as echo" in worker.said, "the worker")
    return made


def _strangers(mesh: TlsMesh, folder: Path) -> Iterator[tuple[str, ssl.SSLContext | None]]:
    yield "without TLS", None
    yield "without a certificate", mesh.context(None)
    yield (
        "with a certificate of another authority",
        mesh.context(Authority(folder, "theirs").issue("stranger")),
    )


async def _heard(address: str, context: ssl.SSLContext | None) -> bytes:
    """Return what a port tells one who asks in HTTP/1.1 and in HTTP/2."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    heard = b""
    for said in (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
            with contextlib.suppress(OSError, TimeoutError):
                writer.write(said + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
                heard += await asyncio.wait_for(reader.read(), 5)
            writer.close()
    return heard


async def test_a_delegation_goes_through_and_a_stranger_gets_nowhere(mesh: TlsMesh, folder: Path) -> None:
    assert await mesh.chat() == "hello"
    assert str(mesh.endpoints["gateway"]).startswith("https://")
    url = {**mesh.words, "HOPLINE_URL": str(mesh.endpoints["gateway"])}
    admin = {**url, "HOPLINE_TOKEN_FILE": str(mesh.data / "admin.token")}
    listed = mesh.processes.run(HOPLINE, "agent", "list", "--json", env=admin)
    assert [each["name"] for each in json.loads(listed.stdout)["agents"]] == ["echo"]

    for who, context in _strangers(mesh, folder):
        for name in SERVICES:
            heard = await _heard(str(mesh.endpoints[name]), context)
            assert b"200" not in heard, (who, name)
            assert b"hopline" not in heard.lower(), (who, name)
    stranger = Authority(folder, "others").issue("other")
    wrong = {**mesh.words, "HOPLINE_TLS_CERT": str(stranger[0]), "HOPLINE_TLS_KEY": str(stranger[1])}
    for env in ({"HOPLINE_TLS_CA": str(mesh.trusted)}, wrong, {}):
        refused = mesh.hopline_as(env, "agent", "list")
        assert refused.returncode == 1
        assert "HOPLINE_TLS_* where it speaks TLS" in refused.stderr, refused.stderr
        assert "Traceback" not in refused.stderr


async def test_certificates_are_renewed_under_a_running_mesh(mesh: TlsMesh, folder: Path) -> None:
    assert await mesh.chat() == "hello"
    renewed = Authority(folder, "renewed")
    both = mesh.authority.ca.read_bytes() + renewed.ca.read_bytes()
    mesh.trusted.write_bytes(both)  # first everyone trusts the new one, then everyone shows one of it
    for fresh, used in zip(renewed.issue("fresh"), mesh.own, strict=True):
        fresh.rename(used)
    assert await mesh.chat() == "hello"
    mesh.trusted.write_bytes(renewed.ca.read_bytes())
    assert await mesh.chat() == "hello"
    for process in mesh.running.values():
        assert process.is_running
    assert mesh.complaints() == []


async def test_the_doctor_looks_at_ports_that_speak_tls(mesh: TlsMesh) -> None:
    found = await mesh.cli("doctor")
    assert found["healthy"]
    stranger = mesh.hopline_as({}, "doctor", "--json")
    assert stranger.returncode == 1
