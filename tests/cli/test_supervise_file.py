"""The file of `hopline supervise`: what it says, and everything that is wrong with it at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hopline_cli.supervise.file import Supervised, read_file
from hopline_rpc.errors import HoplineError


def read(folder: Path, text: str) -> list[Supervised]:
    file = folder / "agents.yaml"
    file.write_text(text)
    return read_file(file)


def problems(folder: Path, text: str) -> list[str]:
    """Return what is wrong, each with its line, without the folder."""
    with pytest.raises(HoplineError) as refused:
        read(folder, text)
    assert refused.value.reason == "invalid_argument"
    return [each.removeprefix(f"{folder}/") for each in refused.value.message.splitlines()]


def test_what_is_left_out_has_a_default(tmp_path: Path) -> None:
    text = """
agents:
  reviewer:
    command: [claude, -p, --mcp-config, "{mcp_config}"]
    max_turns: 4
    idle_seconds: 60.5
    prompt: raw
  planner:
    command: sh -c 'echo "a b"'
"""
    reviewer, planner = read(tmp_path, text)
    words = ("claude", "-p", "--mcp-config", "{mcp_config}")
    assert reviewer == Supervised("reviewer", words, "", 4, 60.5, "raw")
    assert planner == Supervised("planner", ("sh", "-c", 'echo "a b"'), "", 8, 300.0, "fenced")


def test_all_that_is_wrong_is_said_at_once_with_its_line(tmp_path: Path) -> None:
    text = """agents:
  one:
    comand: [x]
    max_turns: many
  two:
    command: []
    idle_seconds: 0
  three:
    command: sh -c 'open
    prompt: bare
  two:
    command: x
  four: just text
  five:
    command: x
    user: no-such-user
hosts: {}
"""
    fields = "command, user, max_turns, idle_seconds, prompt"
    assert problems(tmp_path, text) == [
        "agents.yaml:2: one needs a command: what runs its turns",
        f"agents.yaml:3: an agent has no field 'comand' here; there are: {fields}",
        "agents.yaml:4: max_turns must be a whole number from 1 to 1000, not 'many'",
        "agents.yaml:6: the command is empty",
        "agents.yaml:7: idle_seconds must be a number from 1 to 604800, not '0'",
        "agents.yaml:9: the command cannot be split into words: No closing quotation",
        "agents.yaml:10: prompt must be fenced or raw, not 'bare'",
        "agents.yaml:11: 'two' stands in agents twice, first in line 5",
        "agents.yaml:13: four needs a command: what runs its turns",
        "agents.yaml:13: the agent four must be a mapping (key: value), not 'just text'",
        "agents.yaml:16: user: there is no user 'no-such-user' on this machine",
        "agents.yaml:17: 'hosts' is not known here; there is: agents",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "agents.yaml:1: there are no agents"),
        ("- a\n- b\n", "agents.yaml:1: the file must be a mapping"),
        ("agents: {}\n", "agents.yaml:1: there are no agents"),
        ("agents:\n", "agents.yaml:1: there are no agents"),
        ("agents: [", "agents.yaml:1: "),
        ("agents:\n  a:\n    command: [[x]]\n", "agents.yaml:3: each word of the command must be one plain"),
        ("agents:\n  a:\n    command: {x: y}\n", "agents.yaml:3: command must be one plain value"),
        (f"agents:\n  {'a' * 201}:\n    command: x\n", "agents.yaml:2: an agent's name has at most 200"),
        ("agents:\n  a:\n    command: x\n    max_turns: 1001\n", "agents.yaml:4: max_turns must be a whole"),
        ("agents:\n  a:\n    command: x\n    max_turns: 1.5\n", "agents.yaml:4: max_turns must be a whole"),
        ("agents:\n  a:\n    command: x\n    idle_seconds: .nan\n", "agents.yaml:4: idle_seconds must be a"),
    ],
)
def test_a_file_that_is_none_is_refused_by_line(tmp_path: Path, text: str, words: str) -> None:
    assert problems(tmp_path, text)[0].startswith(words)


def test_the_number_of_agents_has_a_limit(tmp_path: Path) -> None:
    def named(count: int) -> str:
        return "agents:\n" + "".join(f"  a{number}: {{command: x}}\n" for number in range(count))

    assert len(read(tmp_path, named(200))) == 200
    assert "at most 200" in "".join(problems(tmp_path, named(201)))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(HoplineError, match=r"missing\.yaml:1: the file cannot be read"):
        read_file(tmp_path / "missing.yaml")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may choose a user")
def test_root_is_no_user_to_run_as(tmp_path: Path) -> None:
    text = "agents:\n  a:\n    command: x\n    user: root\n"
    assert problems(tmp_path, text) == [
        "agents.yaml:4: user: root can read everything; choose another user",
    ]
