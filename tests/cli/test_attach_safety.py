"""What attach does against a command that could reach further than it should: users, orphans."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hopline_cli.attach import as_user, isolation
from hopline_cli.attach.isolation import Account, account, refuse_readers
from hopline_cli.attach.watchdog import end, watch
from hopline_rpc.errors import HoplineError

SECONDS = 20.0
IS_ROOT = os.geteuid() == 0


def test_the_watchdog_knows_which_groups_run() -> None:
    assert watch(["+1\n", "+22\n", "-1\n", "+3\n", "-4\n"]) == {22, 3}


def test_a_daemon_killed_outright_leaves_no_command_and_no_folder_behind(tmp_path: Path) -> None:
    folder, pids = tmp_path / "sockets", tmp_path / "pids"
    folder.mkdir()
    os.mkfifo(pids)
    script = f"""
import asyncio
from pathlib import Path
from hopline_cli.attach.daemon import ProcessWatchdog
from hopline_cli.attach.process import run
watchdog = ProcessWatchdog(Path({str(folder)!r}))
command = "sleep 1000 & echo $! $$ {{}} > {pids}; wait"
environment = {{"PATH": {os.environ["PATH"]!r}, "HOPLINE_SOCKET": {f"{folder}/x/mcp.sock"!r}}}
asyncio.run(run(["sh", "-c", command], "", environment, watchdog))
"""
    daemon = subprocess.Popen([sys.executable, "-c", script])
    try:
        children = [psutil.Process(int(pid)) for pid in pids.read_text().split()[:2]]
        watchdog = [each for each in psutil.Process(daemon.pid).children() if each not in children]
    finally:
        daemon.kill()
        daemon.wait(SECONDS)
    _, alive = psutil.wait_procs([*children, *watchdog], timeout=SECONDS)
    assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []
    assert not folder.exists()


def test_a_command_that_was_started_in_the_daemons_last_moment_is_found_by_its_socket(tmp_path: Path) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir()
    env = {**os.environ, "HOPLINE_SOCKET": f"{folder}/x/mcp.sock"}
    other = {**os.environ, "HOPLINE_SOCKET": f"{folder}2/x/mcp.sock"}
    with (
        subprocess.Popen(["sleep", "1000"], env=env, start_new_session=True) as ours,
        subprocess.Popen(["sleep", "1000"], env=other, start_new_session=True) as theirs,
    ):
        end(set(), folder)
        assert ours.wait(SECONDS) == -signal.SIGKILL
        assert theirs.poll() is None
        theirs.kill()


def test_the_watchdog_outlives_signals_meant_for_the_daemon(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "hopline_cli.attach.watchdog", str(tmp_path / "x")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, text=True) as watchdog:
        assert watchdog.stdin
        # It has begun to watch once it has read this much.
        watchdog.stdin.write("+999999999\n-999999999\n" * 10_000)
        watchdog.stdin.flush()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            watchdog.send_signal(number)
        watchdog.stdin.close()
        assert watchdog.wait(SECONDS) == 0


def test_a_user_that_does_not_exist_is_named() -> None:
    with pytest.raises(HoplineError, match="no user 'no-such-user'"):
        account("no-such-user")


def test_root_is_no_user_to_be_safe_from() -> None:
    with pytest.raises(HoplineError, match="root can read everything"):
        account("root")


@pytest.mark.skipif(IS_ROOT, reason="this is what others than root get")
def test_only_root_may_choose_a_user() -> None:
    with pytest.raises(HoplineError, match="only root can run a command as another user"):
        account("nobody")


@pytest.fixture
def nobody() -> Account:
    return account("nobody")


@pytest.mark.skipif(not IS_ROOT, reason="needs root to become another user")
class TestAsRoot:
    """Isolation by another user, which only root can give."""

    def test_a_user_who_can_read_the_token_is_refused(self, nobody: Account, tmp_path: Path) -> None:
        opened(tmp_path)
        token = tmp_path / "agent.token"
        token.write_text("secret")
        token.chmod(0o644)
        with pytest.raises(HoplineError, match=r"nobody can read .*agent.token.*chmod go-rwx"):
            refuse_readers(nobody, [token])
        token.chmod(0o600)
        refuse_readers(nobody, [token])

    def test_a_user_who_can_list_the_data_directory_is_refused(self, nobody: Account, tmp_path: Path) -> None:
        opened(tmp_path)
        data = tmp_path / "data"
        data.mkdir()
        data.chmod(0o755)
        with pytest.raises(HoplineError, match=r"nobody can read .*data"):
            refuse_readers(nobody, [data])
        data.chmod(0o700)
        refuse_readers(nobody, [data])

    def test_a_group_that_can_read_counts(self, nobody: Account, tmp_path: Path) -> None:
        opened(tmp_path)
        token = tmp_path / "agent.token"
        token.write_text("secret")
        os.chown(token, 0, nobody.gid)
        token.chmod(0o640)
        with pytest.raises(HoplineError, match="nobody can read"):
            refuse_readers(nobody, [token])

    def test_who_may_not_list_the_data_directory_may_still_know_a_name_in_it(
        self, nobody: Account, tmp_path: Path
    ) -> None:
        opened(tmp_path)
        data = tmp_path / "data"
        data.mkdir()
        data.chmod(0o711)
        token = data / "admin.token"
        token.write_text("secret")
        token.chmod(0o604)
        (data / "endpoints.json").write_text("{}")
        with pytest.raises(HoplineError, match=r"nobody can read .*admin.token"):
            refuse_readers(nobody, [data])
        token.chmod(0o600)
        refuse_readers(nobody, [data])

    def test_who_can_put_another_file_or_directory_in_the_place_of_the_token_is_refused(
        self, nobody: Account, tmp_path: Path
    ) -> None:
        opened(tmp_path)
        folder = tmp_path / "folder"
        folder.mkdir()
        token = folder / "agent.token"
        token.write_text("secret")
        token.chmod(0o600)
        refuse_readers(nobody, [token])
        token.chmod(0o602)
        with pytest.raises(HoplineError, match=r"in the place of .*agent\.token"):
            refuse_readers(nobody, [token])
        token.chmod(0o600)
        folder.chmod(0o733)
        with pytest.raises(HoplineError, match=r"in the place of .*folder,"):
            refuse_readers(nobody, [token])
        folder.chmod(0o1733)  # like /tmp: each touches only what is their own
        refuse_readers(nobody, [token])

    def test_who_owns_the_token_or_its_directory_is_refused_whatever_the_permissions_say(
        self, nobody: Account, tmp_path: Path
    ) -> None:
        opened(tmp_path)
        folder = tmp_path / "folder"
        folder.mkdir(mode=0o711)
        token = folder / "agent.token"
        token.write_text("secret")
        token.chmod(0)
        os.chown(token, nobody.uid, 0)
        with pytest.raises(HoplineError, match=r"in the place of .*agent\.token"):
            refuse_readers(nobody, [token])
        os.chown(token, 0, 0)
        os.chown(folder, nobody.uid, 0)
        with pytest.raises(HoplineError, match=r"in the place of .*folder,"):
            refuse_readers(nobody, [token])

    def test_an_access_list_counts(self, nobody: Account, tmp_path: Path) -> None:
        opened(tmp_path)
        token = tmp_path / "agent.token"
        token.write_text("secret")
        token.chmod(0o600)
        try:
            os.setxattr(token, "system.posix_acl_access", access_list(nobody.uid))
        except OSError:
            pytest.skip("this file system has no access lists")
        with pytest.raises(HoplineError, match="nobody can read"):
            refuse_readers(nobody, [token])

    def test_who_may_look_into_the_memory_of_the_daemon_is_refused(self, nobody: Account) -> None:
        refuse_readers(nobody, [], [os.getpid()])
        theirs = subprocess.Popen(["sleep", "1000"], user=nobody.uid, group=nobody.gid, extra_groups=[])
        try:
            with pytest.raises(HoplineError, match=f"can read the memory .*/proc/{theirs.pid}/mem"):
                refuse_readers(nobody, [], [theirs.pid])
        finally:
            theirs.kill()
            theirs.wait()

    def test_who_may_use_a_door_to_everything_is_refused(
        self, nobody: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened(tmp_path)
        path = tmp_path / "docker.sock"
        monkeypatch.setattr(isolation, "_DOORS", (str(path),))
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(path))
            path.chmod(0o660)
            refuse_readers(nobody, [])
            os.chown(path, 0, nobody.gid)
            with pytest.raises(HoplineError, match=r"may use .*docker\.sock"):
                refuse_readers(nobody, [])

    def test_what_cannot_be_tried_counts_as_refused(
        self, nobody: Account, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(isolation, "_powers", None)
        with pytest.raises(HoplineError, match="could not be tried"):
            refuse_readers(nobody, [])

    def test_a_command_never_gets_more_than_its_user_has(self, nobody: Account) -> None:
        words = [sys.executable, "-I", as_user.__file__, str(nobody.uid), str(nobody.gid), ""]
        words += ["grep", "-E", "^(Uid|Gid|Groups|NoNewPrivs|CapEff|CapPrm|CapAmb)", "/proc/self/status"]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        found = {
            name: value.split() for name, _, value in (line.partition(":") for line in said.splitlines())
        }
        assert set(found["Uid"]) == {str(nobody.uid)}
        assert set(found["Gid"]) == {str(nobody.gid)}
        assert found["Groups"] == []
        assert found["NoNewPrivs"] == ["1"]
        assert {*found["CapEff"], *found["CapPrm"], *found["CapAmb"]} == {"0" * 16}

    def test_a_file_that_is_not_there_is_no_reason_to_refuse(self, nobody: Account, tmp_path: Path) -> None:
        opened(tmp_path)
        refuse_readers(nobody, [tmp_path / "missing"])


def access_list(uid: int) -> bytes:
    """Return an access list, as the kernel keeps it, that lets this user read a file of mode 0600."""
    entries = [(0x01, 6, -1), (0x02, 4, uid), (0x04, 0, -1), (0x10, 4, -1), (0x20, 0, -1)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *each) for each in entries)


def opened(path: Path) -> None:
    """Let everybody through to a folder of the test's."""
    while path != path.parent and path.stat().st_uid == os.geteuid() and "pytest" in str(path):
        path.chmod(0o711)
        path = path.parent
