"""A command under `--user` that reads everything its user may read finds no credential of the mesh."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from pathlib import Path

import pytest
from hopline_client import Mesh as Client
from hopline_rpc.errors import HoplineError

from tests.support.hostile import SCRIPT, TOKEN, found
from tests.support.mesh_process import HOPLINE, Space, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a command as another user")


async def admits(space: Space, token: str) -> bool:
    """Tell whether this mesh takes a token; what lies about of other meshes is none of ours."""
    client = Client(space.mesh.data, token=token)
    try:
        await client.list_agents()
    except HoplineError as error:
        return error.reason != "unauthenticated"
    else:
        return True
    finally:
        await client.close()


async def check(space: Space, answer: str) -> None:
    """Hold what a hostile command got hold of against what it may."""
    lines = found(answer)
    ours = [line for line in lines if line.startswith("token in ") and await admits(space, line[-49:])]
    assert ours == []
    assert [line for line in lines if not line.startswith("token in ")] == []
    assert answer.endswith("looked as nobody")


def command(space: Space) -> list[str]:
    """Return the hostile command; where to look is no secret."""
    where = f"DATA={space.mesh.data} SECRET={space.mesh.processes.folder}/supervisor.token"
    return ["sh", "-c", f"{where}; {SCRIPT}"]


async def test_under_attach_it_finds_nothing(space: Space) -> None:
    ada, bob = await space.agents("ada", "bob")
    words = ("--agent", "bob", "--data", str(space.mesh.data), "--workspace", space.name, "--user", "nobody")
    daemon = space.mesh.processes.start("attach", HOPLINE, "attach", *words, "--", *command(space))
    await space.attached(bob, daemon)
    client = space.client(ada)
    await check(space, (await client.wait(await client.ask("bob", "look around"))).text)
    [event] = [each for each in await space.events("tunnel.attached") if each.agent_id == bob.id]
    assert event.details["isolation"] == "user"


async def test_under_a_supervisor_with_a_token_in_a_file_it_finds_nothing(
    space: Space, tmp_path: Path
) -> None:
    ada, _ = await space.agents("ada", "bob")
    secret = space.mesh.processes.folder / "supervisor.token"
    secret.touch(mode=0o600)
    secret.write_text(await space.person("supervisor", 3))
    agents = {"bob": {"command": command(space), "user": "nobody", "idle_seconds": 60}}
    file = tmp_path / "agents.yaml"
    file.write_text(json.dumps({"agents": agents}))
    env = {"HOPLINE_URL": space.mesh.endpoints["gateway"], "HOPLINE_TOKEN_FILE": str(secret)}
    supervisor = space.mesh.processes.start("supervise", HOPLINE, "supervise", str(file), env=env)
    client = space.client(ada)
    answer = await client.wait(await client.ask("bob", "look around"))
    assert answer.text, supervisor.said
    await check(space, answer.text)
    supervisor.terminate()
    assert await supervisor.ended() == 0


async def test_the_hostile_command_finds_what_is_there_to_be_found(space: Space, tmp_path: Path) -> None:
    """Shown to look: as the daemon's own user, it finds the token that lies there."""
    ada, bob = await space.agents("ada", "bob")
    (space.mesh.processes.folder / "supervisor.token").write_text(ada.token)
    await space.attach(bob, *command(space))
    client = space.client(ada)
    lines = found((await client.wait(await client.ask("bob", "look around"))).text)
    tokens = {TOKEN.search(line)[0] for line in lines if line.startswith("token in ")}  # type: ignore[index]
    assert ada.token in tokens
    assert f"opened {space.mesh.data}/admin.token" in lines
    [event] = [each for each in await space.events("tunnel.attached") if each.agent_id == bob.id]
    assert event.details["isolation"] == "none"


async def test_a_policy_that_comes_to_require_isolation_ends_what_has_none(space: Space) -> None:
    (bob,) = await space.agents("bob")
    daemon = await space.attach(bob, "cat")
    await space.policy(require_isolation=True)
    assert await daemon.ended() == 1
    assert re.search("requires isolation: attach with --user", daemon.said)


async def test_the_token_comes_by_a_descriptor_that_nobody_inherits(space: Space) -> None:
    ada, bob = await space.agents("ada", "bob")
    reader, writer = os.pipe()
    os.write(writer, bob.token.encode())
    os.close(writer)
    script = "ls /proc/self/fd | tr '\\n' ' '"
    words = (HOPLINE, "attach", "--agent", "bob", "--data", str(space.mesh.data), "--token-fd", str(reader))
    daemon = await asyncio.create_subprocess_exec(
        *words, "--", "sh", "-c", script, pass_fds=(reader,), stderr=asyncio.subprocess.PIPE
    )
    os.close(reader)
    try:
        assert daemon.stderr
        while b"attached as bob" not in await daemon.stderr.readline():
            assert daemon.returncode is None
        # Nothing of it is left: not in the arguments, not in the environment, not as an open pipe.
        seen = [Path(f"/proc/{daemon.pid}/{name}") for name in ("cmdline", "environ")]
        assert [file for file in seen if bob.token.encode() in read(file)] == []
        assert not opened(daemon.pid, reader).startswith("pipe:")
        client = space.client(ada)
        answer = (await client.wait(await client.ask("bob", "what is open?"))).text
        # The last one is the list's own.
        assert answer.split() in (["0", "1", "2", "3"], ["0", "1", "2"])
        assert (
            len(
                (await space.mesh.cli("token", "list", "--agent", "bob", "--workspace", space.name))["tokens"]
            )
            == 1
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            daemon.terminate()
        await until(lambda: daemon.returncode is not None, "the end of attach")


def read(file: Path) -> bytes:
    return file.read_bytes()


def opened(pid: int, descriptor: int) -> str:
    """Return what a process has open under a number."""
    try:
        return os.readlink(f"/proc/{pid}/fd/{descriptor}")
    except FileNotFoundError:
        return ""
