"""`hopline serve`: one service in a process of its own, and its part of a data directory."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hopline_cli.running.datadir import DataDirectory, ServiceDirectory
from hopline_rpc.errors import HoplineError

from tests.cli.conftest import SECONDS, Run

NOBODY = dict.fromkeys(("REGISTRY", "RELAY", "QUOTA"), "127.0.0.1:9")


class Served:
    """A running `hopline serve`; what it says is in one file."""

    def __init__(self, folder: Path, *words: str, **settings: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOPLINE_")}
        self.log = folder / "serve.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hopline_cli", "serve", *words],
                env={**kept, "HOME": str(folder), **{f"HOPLINE_{name}": v for name, v in settings.items()}},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def said(self) -> str:
        return self.log.read_text()

    def until_said(self, text: str) -> None:
        """Wait until it has said something."""
        ends = time.monotonic() + SECONDS
        while text not in self.said:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < ends, self.said
            time.sleep(0.02)

    def stop(self) -> int:
        """Ask it to end and return its status."""
        self.process.terminate()
        return self.process.wait(SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def serve(*words: str, **settings: str) -> Served:
        folder = tmp_path / f"process-{len(started)}"
        folder.mkdir()
        started.append(Served(folder, *words, **settings))
        return started[-1]

    yield serve
    for each in started:
        each.close()


@pytest.fixture
def token(tmp_path: Path) -> str:
    file = tmp_path / "service.token"
    file.write_text("hpl_s_nothing")
    return str(file)


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_a_registry_alone_makes_the_tokens_of_the_other_services(
    serve: Callable[..., Served], run: Run, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    registry = serve("registry", "--data", str(data), "--bind", "127.0.0.1:0")
    registry.until_said("the registry listens on")
    made = run("token", "create", "--service", "relay", "--data", str(data), "--json").json
    assert made["token"].startswith("hpl_")
    refused = run("threads", "--data", str(data), "--json").error
    assert refused["code"] == "unavailable"
    assert "the address of the relay is not known" in refused["message"]
    assert registry.stop() == 0
    assert not (data / "endpoints.json").exists()


@pytest.mark.parametrize("name", ["quota", "relay", "gateway"])
def test_a_missing_token_is_said_in_one_line(serve: Callable[..., Served], tmp_path: Path, name: str) -> None:
    for settings in ({}, {"SERVICE_TOKEN_FILE": str(tmp_path / "nothing")}):
        process = serve(name, "--data", str(tmp_path / "data"), **settings)
        assert process.process.wait(SECONDS) == 1
        assert process.said.count("\n") == 1
        assert "HOPLINE_SERVICE_TOKEN_FILE" in process.said


@pytest.mark.parametrize("name", ["quota", "relay"])
def test_without_a_registry_it_says_what_it_waits_for_and_can_be_stopped(
    serve: Callable[..., Served], tmp_path: Path, token: str, name: str
) -> None:
    process = serve(name, "--data", str(tmp_path / "data"), SERVICE_TOKEN_FILE=token, **NOBODY)
    process.until_said("the registry cannot be followed, trying again")
    assert process.stop() == 0


def test_a_gateway_without_a_registry_says_that_it_is_not_ready(
    serve: Callable[..., Served], token: str
) -> None:
    bind = free_port()
    process = serve("gateway", SERVICE_TOKEN_FILE=token, BIND=bind, **NOBODY)
    process.until_said("the gateway listens on")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{bind}/readyz", timeout=SECONDS)
    assert refused.value.code == 503
    assert "the registry cannot be followed" in refused.value.read().decode()
    assert process.stop() == 0


@pytest.mark.parametrize("name", ["registry", "gateway"])
def test_a_port_in_use_is_one_line_and_status_1(
    serve: Callable[..., Served], tmp_path: Path, token: str, name: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        data = str(tmp_path / "data")
        process = serve(
            name, "--data", data, SERVICE_TOKEN_FILE=token, BIND=bind, LOG_LEVEL="error", **NOBODY
        )
        assert process.process.wait(SECONDS) == 1
    told = f"error: {bind} is in use by another process; stop it or choose another port"
    assert process.said.splitlines() == [told]


def test_two_of_one_service_do_not_share_a_directory_and_others_do(tmp_path: Path) -> None:
    with ServiceDirectory(tmp_path / "data", "relay") as relay:
        with (
            pytest.raises(HoplineError, match=rf"the relay is already running .*pid {os.getpid()}"),
            ServiceDirectory(tmp_path / "data", "relay"),
        ):
            pass
        with ServiceDirectory(tmp_path / "data", "registry") as registry:
            relay.announce("127.0.0.1:2")
            registry.announce("127.0.0.1:1")
            found = json.loads((tmp_path / "data" / "endpoints.json").read_text())
            assert (found["registry"], found["relay"]) == ("127.0.0.1:1", "127.0.0.1:2")
            assert (found["gateway"], found["pid"]) == (None, None)


def test_a_whole_mesh_and_a_service_of_its_own_do_not_share_a_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with (
        DataDirectory(data),
        pytest.raises(HoplineError, match=f"a mesh is already running .*pid {os.getpid()}"),
        ServiceDirectory(data, "relay"),
    ):
        pass
    with (
        ServiceDirectory(data, "relay"),
        pytest.raises(HoplineError, match="already running"),
        DataDirectory(data),
    ):
        pass
    with DataDirectory(data):
        pass


def test_the_address_of_one_that_died_without_a_word_is_dropped_by_the_next(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServiceDirectory(data, "registry") as registry:
        (data / "endpoints.json").write_text(json.dumps({"relay": "127.0.0.1:2", "pid": None}))
        registry.announce("127.0.0.1:1")
        found = json.loads((data / "endpoints.json").read_text())
    assert found["relay"] is None
    assert found["registry"] == "127.0.0.1:1"


def test_a_service_whose_token_is_not_accepted_says_so(serve: Callable[..., Served], tmp_path: Path) -> None:
    data = tmp_path / "data"
    registry = serve("registry", "--data", str(data), "--bind", "127.0.0.1:0")
    registry.until_said("the registry listens on")
    address = json.loads((data / "endpoints.json").read_text())["registry"]
    token = tmp_path / "wrong.token"
    token.write_text("hpl_s_nothing")
    quota = serve("quota", SERVICE_TOKEN_FILE=str(token), REGISTRY=address)
    quota.until_said("it does not accept this service's own credential")
    assert quota.stop() == 0


def test_a_relay_waits_for_the_quota_service(serve: Callable[..., Served], run: Run, tmp_path: Path) -> None:
    data, token = tmp_path / "data", tmp_path / "token"
    registry = serve("registry", "--data", str(data), "--bind", "127.0.0.1:0")
    registry.until_said("the registry listens on")
    made = run("token", "create", "--service", "relay", "--data", str(data), "--token-file", str(token))
    assert made.status == 0
    address = json.loads((data / "endpoints.json").read_text())["registry"]
    settings = {"SERVICE_TOKEN_FILE": str(token), "REGISTRY": address, "QUOTA": free_port()}
    relay = serve("relay", "--data", str(data), "--bind", "127.0.0.1:0", **settings)
    relay.until_said("waiting for the quota service")
    quota = serve("quota", "--bind", settings["QUOTA"], SERVICE_TOKEN_FILE=str(token), REGISTRY=address)
    quota.until_said("the quota listens on")
    relay.until_said("the relay listens on")
    assert relay.stop() == 0
