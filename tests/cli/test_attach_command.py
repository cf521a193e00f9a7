"""`hopline attach`, `serve` and `audit --follow` as processes, with a real mesh."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.conftest import Run
from tests.cli.test_attach_turns import POST

SECONDS = 60.0
IS_ROOT = os.geteuid() == 0


class Process:
    """A `hopline` command that stays."""

    def __init__(self, *words: str, **env: str) -> None:
        usual = {name: value for name, value in os.environ.items() if not name.startswith("HOPLINE_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hopline_cli", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**usual, **env},
        )

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()

    def wait_for_log(self, words: str) -> str:
        """Read its log up to the line with these words."""
        assert self.process.stderr
        for line in self.process.stderr:
            if words in line:
                return line
        raise AssertionError(f"it ended without saying {words!r}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=SECONDS)
        return self.process.returncode

    def finish(self) -> tuple[int, str]:
        err = self.process.communicate(timeout=SECONDS)[1]
        return self.process.returncode, err

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


Start = Callable[..., Process]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Process] = []

    def start(*words: str, **env: str) -> Process:
        started.append(Process(*words, **env))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def created(hopline: Run) -> dict[str, Any]:
    """Create an agent; returns it with its token."""
    found: dict[str, Any] = hopline("agent", "create", f"worker-{uuid.uuid4().hex[:8]}").json
    return found


@pytest.fixture
def attach(start: Start, mesh_data: Path, created: dict[str, Any]) -> Callable[..., Process]:
    """Attach a command to the agent and wait until the mesh has taken it."""

    def attach(*command: str, options: tuple[str, ...] = ()) -> Process:
        data = ("--data", str(mesh_data), "--json")
        found = start("attach", "--agent", created["slug"], *data, *options, "--", *command)
        found.wait_for_log("attached as")
        return found

    return attach


def test_each_turn_runs_the_command_and_its_output_is_the_answer(
    attach: Callable[..., Process], hopline: Run, created: dict[str, Any]
) -> None:
    running = attach("sh", "-c", 'echo "$(cat) from $HOPLINE_FROM at depth $HOPLINE_DEPTH"')
    assert json.loads(running.line()) == {"agent": created["slug"], "max_turns": 8, "isolation": "none"}
    answer = hopline("chat", created["slug"], "hello").json
    assert answer["status"] == "completed"
    assert answer["reply"] == "hello from admin at depth 0"
    again = hopline("chat", created["slug"], "and", "--session", answer["session_id"]).json
    assert again["session_id"] == answer["session_id"]
    assert running.stop() == 0


def test_the_socket_of_a_turn_leads_to_the_platform_as_that_agent(
    attach: Callable[..., Process], hopline: Run, created: dict[str, Any]
) -> None:
    call = {"name": "whoami", "arguments": {}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    attach(sys.executable, "-c", POST.replace("b'{\"a\": 1}'", f"{body!r}.encode()"))
    status, _, answer = hopline("chat", created["slug"], "who are you?").json["reply"].partition(" ")
    assert status == "200"
    who = json.loads(answer)["result"]["structuredContent"]
    assert who["agent"]["id"] == created["id"]
    assert who["isolation"] == "none"
    assert who["session_id"].startswith("ses_")


def test_a_failing_command_fails_the_turn_with_its_last_words(
    attach: Callable[..., Process], plain: Run, created: dict[str, Any]
) -> None:
    attach("sh", "-c", "echo out of paper >&2; exit 9")
    said = plain("chat", created["slug"], "print")
    assert said.status == 1
    assert "the command failed with exit status 9: out of paper" in said.out


def test_cancelling_a_turn_ends_its_command(
    attach: Callable[..., Process], hopline: Run, created: dict[str, Any], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pid")
    attach("sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 1000")
    turn = hopline("chat", created["slug"], "sleep", "--wait", "0").json["turn_id"]
    command = psutil.Process(int((tmp_path / "pid").read_text()))
    assert hopline("cancel", turn).json["status"] == "canceled"
    assert psutil.wait_procs([command], timeout=SECONDS)[1] == []


def test_the_minted_token_expires_and_is_revoked_at_exit(
    attach: Callable[..., Process], hopline: Run, created: dict[str, Any]
) -> None:
    running = attach("cat")
    [first, minted] = hopline("token", "list", "--agent", created["slug"]).json["tokens"]
    assert first["expires_at"] is None
    assert minted["name"].startswith("attach ")
    assert minted["expires_at"]
    assert minted["revoked_at"] is None
    assert running.stop() == 0
    [_, minted] = hopline("token", "list", "--agent", created["slug"]).json["tokens"]
    assert minted["revoked_at"]


def test_ctrl_c_ends_it_like_a_request(attach: Callable[..., Process]) -> None:
    assert attach("cat").stop(signal.SIGINT) == 0


def test_killed_outright_it_leaves_no_command_behind(
    attach: Callable[..., Process], hopline: Run, created: dict[str, Any], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pid")
    running = attach("sh", "-c", f"sleep 1000 & echo $$ $! $HOPLINE_SOCKET > {tmp_path}/pid; wait")
    hopline("chat", created["slug"], "sleep", "--wait", "0")
    *pids, socket = (tmp_path / "pid").read_text().split()
    commands = [psutil.Process(int(pid)) for pid in pids]
    watchdogs = [each for each in psutil.Process(running.process.pid).children() if each not in commands]
    running.process.kill()
    _, alive = psutil.wait_procs([*commands, *watchdogs], timeout=SECONDS)
    assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []
    assert not Path(socket).parent.parent.exists()


def test_a_token_in_a_file_attaches_the_agent_it_belongs_to(
    start: Start, hopline: Run, mesh_data: Path, created: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "agent.token"
    file.write_text(created["token"])
    gateway = json.loads((mesh_data / "endpoints.json").read_text())["gateway"]
    env = {"HOPLINE_URL": gateway, "HOPLINE_TOKEN_FILE": str(file)}
    start("attach", "--agent", created["id"], "cat", **env).wait_for_log("attached as")
    assert hopline("chat", created["slug"], "echo").json["reply"] == "echo"
    assert len(hopline("token", "list", "--agent", created["slug"]).json["tokens"]) == 1


@pytest.mark.parametrize("whose", ["agent", "person"])
def test_a_token_of_somebody_else_is_refused_in_one_line(
    start: Start, hopline: Run, mesh_data: Path, created: dict[str, Any], tmp_path: Path, whose: str
) -> None:
    file = tmp_path / "token"
    file.write_text(created["token"] if whose == "agent" else (mesh_data / "admin.token").read_text())
    running = start("attach", "--agent", "other", "--data", str(mesh_data), "--token-file", str(file), "cat")
    status, err = running.finish()
    assert status == 1
    assert err.count("\n") == 1
    assert (f"belongs to the agent {created['slug']}" if whose == "agent" else "is a person's") in err


def test_an_agent_that_does_not_exist_is_refused_in_one_line(start: Start, mesh_data: Path) -> None:
    status, err = start("attach", "--agent", "nobody-here", "--data", str(mesh_data), "cat").finish()
    assert status == 1
    assert err.count("\n") == 1
    assert "nobody-here" in err


def test_a_command_is_needed(run: Run) -> None:
    said = run("attach", "--agent", "x")
    assert said.status == 2
    assert said.err.count("\n") == 1


@pytest.mark.skipif(not IS_ROOT, reason="only root can run a command as another user")
def test_with_a_user_the_command_runs_as_that_user_and_isolation_says_so(
    attach: Callable[..., Process], hopline: Run, created: dict[str, Any]
) -> None:
    script = 'test -S "$HOPLINE_SOCKET" && cat "$HOPLINE_MESSAGE_FILE" > /dev/null && echo "$(id -un) $HOME"'
    running = attach("sh", "-c", script, options=("--user", "nobody"))
    assert json.loads(running.line())["isolation"] == "user"
    assert hopline("chat", created["slug"], "who?").json["reply"] == "nobody /nonexistent"


@pytest.mark.skipif(not IS_ROOT, reason="only root can run a command as another user")
def test_a_user_who_could_read_the_token_is_refused(
    start: Start, mesh_data: Path, created: dict[str, Any], tmp_path: Path
) -> None:
    options = ["--agent", created["slug"], "--data", str(mesh_data), "--token-file", "/etc/hostname"]
    status, err = start("attach", *options, "--user", "nobody", "cat").finish()
    assert status == 1
    assert "nobody can read /etc/hostname" in err


# --- others that stay ----------------------------------------------------------------------------


def test_the_audit_log_is_followed_as_it_grows(
    start: Start, hopline: Run, mesh_data: Path, created: dict[str, Any]
) -> None:
    words = ("audit", "--follow", "--json", "--agent", created["slug"], "--action", "message.")
    hopline("send", created["slug"], "one")
    following = start(*words, "--data", str(mesh_data))
    first = json.loads(following.line())
    hopline("send", created["slug"], "two")
    second = json.loads(following.line())
    assert [each["action"] for each in (first, second)] == ["message.sent", "message.sent"]
    assert second["seq"] > first["seq"]
    assert following.stop(signal.SIGINT) == 130


def test_one_service_runs_alone(start: Start, tmp_path: Path) -> None:
    words = ("serve", "registry", "--bind", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--json")
    serving = start(*words)
    told = json.loads(serving.line())
    assert told["service"] == "registry"
    host, _, port = told["address"].rpartition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0
    assert serving.stop() == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["serve", "mail"], "there is no service 'mail': registry, quota, relay, gateway"),
        (["serve", "registry", "--bind", "127.0.0.1:99999"], "cannot listen on 127.0.0.1:99999"),
    ],
)
def test_a_service_that_cannot_be_served_is_one_line(
    start: Start, tmp_path: Path, words: list[str], complaint: str
) -> None:
    status, err = start(*words, "--data", str(tmp_path)).finish()
    assert status == 1
    assert complaint in err.splitlines()[-1]
