"""`hopline up`: one process a data directory, everything or nothing, and no trace of it afterwards."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hopline_cli.running.config import UpConfig, read_config
from hopline_cli.running.datadir import DataDirectory
from hopline_cli.running.services import installed
from hopline_cli.running.up import EmbeddedMesh
from hopline_files.problems import raise_all
from hopline_rpc.errors import HoplineError
from hopline_rpc.service import Wiring
from hopline_rpc.settings import setting_names

from tests.cli.conftest import UpProcess

Start = Callable[..., UpProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[UpProcess] = []

    def start(*words: str) -> UpProcess:
        started.append(UpProcess(tmp_path / "data", *words))
        return started[-1]

    yield start
    for each in started:
        each.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_says_where_everything_listens_and_leaves_nothing_behind(start: Start) -> None:
    up = start("--any-port")
    told = up.wait_until_up()
    written = json.loads((up.data / "endpoints.json").read_text())
    token = (up.data / "admin.token").read_text().strip()
    family = psutil.Process(up.process.pid).children(recursive=True)
    assert written == told
    assert set(written) == {"gateway", "console", "registry", "relay", "quota", "metrics", "pid"}
    assert str(written["console"]).startswith("http://127.0.0.1:")
    assert written["pid"] == up.process.pid
    assert written["gateway"].startswith("http://127.0.0.1:")
    for name in ("registry", "relay", "quota"):
        host, _, port = written[name].rpartition(":")
        socket.create_connection((host, int(port)), timeout=20).close()
    up.process.terminate()
    out, err = up.process.communicate(timeout=60)
    assert up.process.returncode == 0
    assert not (up.data / "endpoints.json").exists()
    assert token not in json.dumps(told) + out + err
    assert '"level": "warning"' not in err
    assert psutil.wait_procs(family, timeout=20)[1] == []


def test_its_files_are_for_their_owner_alone(mesh_data: Path) -> None:
    assert mode(mesh_data) == 0o700
    assert {mode(path) for path in mesh_data.iterdir()} == {0o600}


def test_a_second_one_on_the_same_directory_is_refused_in_one_line(mesh_data: Path) -> None:
    before = (mesh_data / "endpoints.json").read_text()
    second = UpProcess(mesh_data, "--any-port")
    complaint = second.complaint()
    assert second.process.returncode == 1
    assert complaint.count("\n") == 1
    pid = json.loads(before)["pid"]
    assert f"already running on {mesh_data} (pid {pid})" in json.loads(complaint)["error"]["message"]
    assert (mesh_data / "endpoints.json").read_text() == before


def test_after_a_kill_it_starts_again_with_the_same_token_and_ctrl_c_ends_it(start: Start) -> None:
    up = start("--any-port")
    up.wait_until_up()
    token = (up.data / "admin.token").read_text()
    up.process.kill()
    up.process.communicate()
    assert (up.data / "endpoints.json").exists()  # nobody was left to take it away
    again = start("--any-port")
    again.wait_until_up()
    assert (up.data / "admin.token").read_text() == token
    again.process.send_signal(signal.SIGINT)
    again.process.communicate(timeout=60)
    assert again.process.returncode == 0
    assert not (up.data / "endpoints.json").exists()


def test_a_terminal_that_is_closed_ends_it_in_order(start: Start) -> None:
    up = start("--any-port")
    up.wait_until_up()
    up.process.send_signal(signal.SIGHUP)
    up.process.communicate(timeout=60)
    assert up.process.returncode == 0
    assert not (up.data / "endpoints.json").exists()


def test_a_port_in_use_is_one_line_that_says_so(start: Start, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = tmp_path / "mesh.yaml"
        config.write_text(f"listen: {{registry: '127.0.0.1:{port}'}}")
        up = start("--any-port", "--config", str(config))
        complaint = up.complaint()
    assert up.process.returncode == 1
    assert complaint.count("\n") == 1
    assert f"127.0.0.1:{port} is in use by another process" in json.loads(complaint)["error"]["message"]
    assert not (up.data / "endpoints.json").exists()


def test_an_address_of_postgresql_is_refused_and_not_passed_over(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "mesh.yaml"
    config.write_text("settings: {database_url: 'postgresql://me:hidden@127.0.0.1/mesh'}")
    up = start("--any-port", "--config", str(config))
    complaint = up.complaint()
    assert up.process.returncode == 1
    assert "for `hopline serve`" in json.loads(complaint)["error"]["message"]
    assert "hidden" not in complaint
    assert not (up.data / "registry.db").exists()


# --- the data directory --------------------------------------------------------------------------


def test_a_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    with DataDirectory(tmp_path / "a" / "b"):
        assert mode(tmp_path / "a" / "b") == 0o700


def test_an_empty_directory_is_closed_to_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    data.chmod(0o755)
    with DataDirectory(data):
        assert mode(data) == 0o700


def test_a_directory_with_other_things_in_it_that_others_can_read_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    (data / "holiday.jpg").touch()
    with (
        pytest.raises(HoplineError, match=r"open to other users; close it \(chmod go-rwx"),
        DataDirectory(data),
    ):
        pass
    assert mode(data) == 0o755


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HoplineError, match="cannot be the data directory"), DataDirectory(tmp_path / "file"):
        pass


def test_what_an_earlier_mesh_announced_is_gone_before_the_next_one_is_up(tmp_path: Path) -> None:
    with DataDirectory(tmp_path / "data") as data:
        data.announce({"gateway": "http://127.0.0.1:1"})
    (data.path / "endpoints.json").write_text("{}")
    with DataDirectory(tmp_path / "data"):
        assert not (data.path / "endpoints.json").exists()


def test_the_announcement_names_every_service_and_nothing_else(tmp_path: Path) -> None:
    with DataDirectory(tmp_path / "data") as data:
        found = data.announce({"registry": "r", "relay": "y", "quota": "q", "gateway": "g"})
        assert found == {
            "gateway": "g",
            "console": None,
            "registry": "r",
            "relay": "y",
            "quota": "q",
            "metrics": None,
            "pid": os.getpid(),
        }
        assert json.loads((data.path / "endpoints.json").read_text()) == found
        assert {path.name for path in data.path.iterdir()} == {"lock", "endpoints.json"}


# --- how services are opened ---------------------------------------------------------------------


class FakeServer:
    def __init__(self, name: str, log: list[str], fails: bool) -> None:
        self.name, self._log, self._fails = name, log, fails

    async def start(self, bind: str) -> str:
        if self._fails:
            raise HoplineError("failed_precondition", f"{bind} is in use")
        self._log.append(f"{self.name} listens on {bind}")
        return f"{self.name}-address"

    def channel(self) -> str:
        return f"{self.name}-channel"


class FakeRunning:
    def __init__(self, service: FakeService) -> None:
        self.name = service.name
        self.server = FakeServer(service.name, service.log, service.fails_to == "listen")
        self._log = service.log

    async def service_token(self, name: str) -> str:
        return f"token of {name}"

    async def ready(self) -> bool:
        return True

    async def drain(self) -> None:
        self._log.append(f"{self.name} drains")
        raise RuntimeError("cannot")

    async def close(self) -> None:
        self._log.append(f"{self.name} closes")


class FakeService:
    default_port = 7401

    def __init__(self, name: str, log: list[str], fails_to: str = "") -> None:
        self.name, self.log, self.fails_to = name, log, fails_to
        self.wiring: Wiring | None = None

    async def open(self, wiring: Wiring) -> Any:
        if self.fails_to == "open":
            raise HoplineError("internal", f"{self.name} is broken")
        self.wiring = wiring
        self.log.append(f"{self.name} opens")
        return FakeRunning(self)


async def test_services_are_opened_in_order_each_with_the_channels_of_those_before(tmp_path: Path) -> None:
    log: list[str] = []
    registry, quota = FakeService("registry", log), FakeService("quota", log)
    config = UpConfig({"log_level": "debug"}, {"quota": "127.0.0.1:9"})
    mesh = EmbeddedMesh(tmp_path, config, services={"registry": registry, "quota": quota})
    await mesh.start()
    await mesh.stop()
    assert log == [
        "registry opens",
        "registry listens on 127.0.0.1:7401",
        "quota opens",
        "quota listens on 127.0.0.1:9",
        "quota drains",
        "registry drains",
        "quota closes",
        "registry closes",
    ]
    assert mesh.addresses == {"registry": "registry-address", "quota": "quota-address"}
    assert quota.wiring
    channels: dict[str, Any] = dict(quota.wiring.channels)
    assert channels == {"registry": "registry-channel"}
    assert quota.wiring.service_token() == "token of embedded"
    assert quota.wiring.embedded
    assert quota.wiring.data_dir == tmp_path
    assert quota.wiring.settings == {"log_level": "debug"}


@pytest.mark.parametrize("step", ["open", "listen"])
async def test_when_one_cannot_start_those_before_it_are_closed(tmp_path: Path, step: str) -> None:
    log: list[str] = []
    services = {"registry": FakeService("registry", log), "quota": FakeService("quota", log, step)}
    mesh = EmbeddedMesh(tmp_path, UpConfig(), any_port=True, services=services)
    with pytest.raises(HoplineError):
        await mesh.start()
    await mesh.stop()
    assert "registry listens on 127.0.0.1:0" in log
    assert log[-1] == "registry closes"


# --- the config file -----------------------------------------------------------------------------


def config_of(tmp_path: Path, text: str, known: Collection[str] | None = None) -> UpConfig:
    file = tmp_path / "mesh.yaml"
    file.write_text(text)
    found = read_config(file, known)
    raise_all(found.problems)
    return found


def test_without_a_file_nothing_is_set() -> None:
    assert read_config(None) == UpConfig({}, {})


def test_settings_are_texts_as_in_the_environment(tmp_path: Path) -> None:
    text = "settings: {log_level: warning, drain_seconds: 2, insecure: yes}\nlisten: {gateway: 127.0.0.1:8}"
    found = config_of(tmp_path, text)
    assert found.settings == {"log_level": "warning", "drain_seconds": "2", "insecure": "yes"}
    assert found.listen == {"gateway": "127.0.0.1:8"}


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    assert config_of(tmp_path, "# nothing\n") == UpConfig({}, {})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("settings: {}\nsetings: {}", r"mesh.yaml:2: 'setings' is not known here"),
        ("settings:\n  a: [1]", r"mesh.yaml:2: a must be one plain value"),
        ("listen: {mail: x}", r"mesh.yaml:1: there is no service 'mail'"),
        ("- a", r"mesh.yaml:1: the file must be a mapping"),
        ("a: {\n", r"mesh.yaml:2: "),
        ("\n\n\ta: b", r"mesh.yaml:3: "),
    ],
)
def test_what_is_wrong_in_the_file_is_named_by_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(HoplineError, match=complaint):
        config_of(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "settings:\n  log_levle: info",
            r"mesh.yaml:2: there is no setting 'log_levle'; did you mean 'log_level'",
        ),
        ("settings: {zebra: red}", r"there is no setting 'zebra'; it is named as in HOPLINE_"),
        ("settings: {bind: 'x:1'}", r"mesh.yaml:1: bind is not set here: .* `listen`"),
    ],
)
def test_a_setting_that_no_service_has_is_named_by_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(HoplineError, match=complaint):
        config_of(tmp_path, text, setting_names())


def test_every_setting_of_an_installed_service_may_stand_in_the_file(tmp_path: Path) -> None:
    installed()
    text = "settings: {log_level: debug, escalation_seconds: 60, webhook_private: true, public_url: ''}"
    assert len(config_of(tmp_path, text, setting_names()).settings) == 4


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(HoplineError, match=r"missing.yaml:1: the file cannot be read: No such file"):
        raise_all(read_config(tmp_path / "missing.yaml").problems)
