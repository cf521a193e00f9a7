"""What the README tells people to type does what it says."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.support.mesh_process import BIN, ROOT, MeshProcess, call, clean_environment, processes

REPLY = "I read: {} words. Looks right."
# Stand-ins for what cannot be installed here: one notes how it was called, one is `buf curl` by another name.
CLAUDE = '#!/bin/sh\nprintf "%s\\n" "$@" > claude.words\n'
GRPCURL = """#!/bin/sh
set -e
test "$1" = -plaintext; shift
headers=; data=
while test $# -gt 2; do
  case "$1" in
    -H) headers=$2 ;;
    -d) data=$2 ;;
    *) exit 2 ;;
  esac
  shift 2
done
set -- "http://$1/$2"
test -z "$data" || set -- --data "$data" "$@"
test -z "$headers" || set -- --header "$headers" "$@"
exec buf curl --protocol grpc --http2-prior-knowledge "$@"
"""


class Reader:
    """A person in a fresh checkout who has the README and a mesh: `~/.hopline`, and its real ports."""

    def __init__(self, mesh: MeshProcess) -> None:
        self.mesh = mesh
        self.home = mesh.processes.folder
        self.checkout = self.home / "checkout"
        self.checkout.mkdir()
        (self.checkout / ".venv").symlink_to(BIN.parent)
        for name, text in (("claude", CLAUDE), ("grpcurl", GRPCURL)):
            (self.home / name).write_text(text)
            (self.home / name).chmod(0o755)
        text = (ROOT / "README.md").read_text()
        for default, address in (
            ("127.0.0.1:7400", mesh.endpoints["gateway"].removeprefix("http://")),
            ("127.0.0.1:7402", mesh.endpoints["relay"]),
        ):
            text = text.replace(default, address)
        self.text = text

    def block(self, words: str) -> str:
        """Return the one block of code that contains the words."""
        blocks = re.findall(r"^```\w*\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)
        found: list[str] = [block for block in blocks if words in block]
        assert len(found) == 1, f"{len(found)} blocks of the README contain {words!r}"
        return found[0]

    @property
    def env(self) -> dict[str, str]:
        env = clean_environment(self.home)
        return {**env, "PATH": f"{self.home}{os.pathsep}{env['PATH']}"}

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script as it stands."""
        words = ("bash", "-e", "-c", script)
        return self.mesh.processes.run(*words, cwd=self.checkout, env={"PATH": self.env["PATH"]})

    def shell(self, script: str) -> str:
        """Run a script that has to succeed, and return what it prints."""
        done = self.run(script)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Somebody who has followed the README up to an agent with a worker."""
    with processes(tmp_path_factory.mktemp("home")) as started:
        mesh = MeshProcess(started, ".hopline")
        mesh.start()
        reader = Reader(mesh)
        reader.shell(reader.block("hopline agent create reviewer"))
        attach = reader.block("hopline attach --agent reviewer")
        started.start("attach", "bash", "-c", f"exec {attach}", cwd=reader.checkout)
        yield reader
        assert mesh.complaints() == []


def test_the_token_of_the_walk_through_is_in_a_file_of_ones_own(reader: Reader) -> None:
    token = reader.checkout / "me.token"
    assert re.fullmatch(r"hpl_a_[\w-]{43}\n", token.read_text())
    assert token.stat().st_mode & 0o077 == 0


async def test_claude_code_gets_a_command_that_works_and_no_token_among_its_words(reader: Reader) -> None:
    reader.shell(reader.block("claude mcp add hopline --"))
    words = (reader.checkout / "claude.words").read_text().splitlines()
    assert words[:4] == ["mcp", "add", "hopline", "--"]
    assert "hpl_" not in " ".join(words)
    server = StdioServerParameters(command=words[4], args=words[5:], env=reader.env, cwd=reader.home)
    async with Client(stdio_client(server)) as client:
        found = await call(client, "ask", agent="reviewer", text="Is this plan sound?")
    assert found["reply"].startswith("I read: ")


async def test_a_client_that_speaks_http_posts_to_the_address_with_the_token(reader: Reader) -> None:
    [address] = re.findall(r"posts to `(http://[^`]+)`", reader.text)
    headers = {"Authorization": f"Bearer {(reader.checkout / 'me.token').read_text().strip()}"}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(address, http_client=http)) as client,
    ):
        found = await call(client, "ask", agent="reviewer", text="Is this plan sound?")
    assert found["reply"].startswith("I read: ")


async def test_an_agent_is_a_server_of_its_own_for_claude_code_cursor_and_curl(reader: Reader) -> None:
    server = json.loads(reader.block('"mcpServers": {"reviewer"'))["mcpServers"]["reviewer"]
    token = (reader.checkout / "me.token").read_text().strip()
    headers = {name: value.replace("${HOPLINE_TOKEN}", token) for name, value in server["headers"].items()}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(server["url"], http_client=http)) as client,
    ):
        assert (await call(client, "ask", message="Is this sound?"))["reply"].startswith("I read: ")
    found = json.loads(reader.shell(reader.block("/reviewer/v1/sessions")))
    assert (found["status"], found["reply"][:8]) == ("completed", "I read: ")


async def test_opencode_gets_a_server_that_works(reader: Reader) -> None:
    server = json.loads(reader.block('"type": "local"'))["mcp"]["hopline"]
    parameters = StdioServerParameters(
        command=server["command"][0],
        args=server["command"][1:],
        env={**reader.env, **server["environment"]},
        cwd=reader.checkout,
    )
    async with Client(stdio_client(parameters)) as client:
        agents = (await call(client, "list_agents"))["agents"]
    assert [agent["name"] for agent in agents] == ["reviewer"]


def test_the_plain_script_prints_the_answer_of_the_other_agent(reader: Reader) -> None:
    (reader.checkout / "script.py").write_text(reader.block("import asyncio, os"))
    assert re.fullmatch(r"I read: \d+ words\. Looks right\.\n", reader.shell(".venv/bin/python script.py"))


def test_a_person_gets_an_answer_from_the_shell(reader: Reader) -> None:
    [command] = re.findall(r"`(hopline chat [^`]+)`", reader.text.replace("\n", " "))
    assert reader.shell(command) == f"{REPLY.format(1)}\n"


def test_the_worker_in_python_of_the_clients_page_answers(reader: Reader) -> None:
    page = (ROOT / "libs" / "client" / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    script = next(block for block in blocks if "run_forever()" in block)
    (reader.checkout / "worker.py").write_text(script)
    reader.shell("hopline agent create planner --token-file planner.token")
    where = {"HOPLINE_URL": reader.mesh.endpoints["gateway"], "HOPLINE_TOKEN_FILE": "planner.token"}
    words = (".venv/bin/python", "worker.py")
    reader.mesh.processes.start("worker", *words, cwd=reader.checkout, env=where)
    assert reader.shell('hopline ask planner "we meet at noon"').startswith("The reviewer says: I read: ")


def test_everything_that_happened_can_be_looked_at_as_text_and_as_json(reader: Reader) -> None:
    turn = json.loads(reader.shell('hopline ask --json reviewer "one two three"'))
    block = reader.block("hopline thread THREAD_ID")
    threads = json.loads(reader.shell("hopline threads --json"))["threads"]
    block = block.replace("THREAD_ID", threads[0]["id"]).replace("TURN_ID", turn["turn_id"])
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert [words[1] for words in lines] == [
        "threads",
        "thread",
        "sessions",
        "usage",
        "escalations",
        "schedule",
        "audit",
        "trace",
    ]
    commands = [shlex.join([*words, *more]) for words in lines for more in ((), ("--json",))]
    with ThreadPoolExecutor(2) as pool:
        printed = list(pool.map(reader.shell, commands))
    assert all(text.strip() for text in printed)
    found: dict[str, Any] = {}
    for words, text in zip(lines, printed[1::2], strict=True):
        found[words[1]] = json.loads(text)
    assert [message["body"] for message in found["thread"]["messages"]] == ["one two three", REPLY.format(3)]
    assert "reviewer" in {session["agent"]["name"] for session in found["sessions"]["sessions"]}
    assert len(found["trace"]["trace_ids"]) == 1


def test_a_grpc_tool_gets_an_answer_and_the_health_of_a_service(reader: Reader) -> None:
    asked, health = reader.block("MessageService/Ask").split("\n\n")
    turn = json.loads(reader.shell(asked))["turn"]
    assert turn["status"] == "TURN_STATUS_COMPLETED"
    assert turn["reply"].startswith("I read: ")
    assert json.loads(reader.shell(health)) == {"status": "SERVING"}


def test_the_table_of_rails_has_the_limits_in_force_and_the_commands_change_them(reader: Reader) -> None:
    limits = json.loads(reader.shell("hopline policy show --json"))
    rows = re.findall(r"^\| .*\(`\w+`\).*\| (.+?) \| .*\|$", reader.text, re.MULTILINE)
    keys = re.findall(r"^\| (.*\(`\w+`\).*?) \| .+? \| .*\|$", reader.text, re.MULTILINE)
    for named, defaults in zip(keys, rows, strict=True):
        told = dict(zip(re.findall(r"`(\w+)`", named), defaults.split(" / "), strict=True))
        assert told == {key: str(limits[key]) for key in told}
    commands = re.findall(r"`(hopline policy (?:preset|set) [^`]+)`", reader.text)
    assert commands == ["hopline policy preset strict", "hopline policy set max_depth=2"]
    for command in commands:
        assert json.loads(reader.shell(f"{command} --json"))["max_depth"] == 2
    reader.shell("hopline policy preset default")


def test_every_page_that_is_linked_is_there() -> None:
    for page in ("README.md", "CONTRIBUTING.md"):
        links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text())
        assert [link for link in links if not (ROOT / link).exists()] == []
