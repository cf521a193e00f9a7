"""`hopline agent … --connect` and `--disconnect`, and what a mesh that is started with a file says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run, UpProcess

Start = Callable[..., UpProcess]


@pytest.fixture
def peer(hopline: Run) -> str:
    """Another agent, by its slug."""
    made: str = hopline("agent", "create", "Sky Agent", "--json").json["slug"]
    return made


def connected(found: dict[str, list[dict[str, str]]]) -> list[tuple[str, str, str | None]]:
    return [(each["name"], each["agent"], each["description"]) for each in found["connections"]]


def test_connections_are_made_changed_shown_and_taken_away(hopline: Run, plain: Run, peer: str) -> None:
    other = hopline("agent", "show", peer).json["id"]
    made = hopline("agent", "create", "Planner", "--connect", f"w={peer}:For the sky: by day.").json
    assert connected(made) == [("w", other, "For the sky: by day.")]
    more = hopline("agent", "set", made["slug"], "--connect", f"a={peer}", "--connect", f"w={other}").json
    assert connected(more) == [("a", other, None), ("w", other, None)]
    shown = plain("agent", "show", made["slug"]).out.splitlines()
    assert f"connections: a={peer}, w={peer}" in shown
    left = hopline("agent", "set", made["slug"], "--disconnect", "a", "--connect", f"b={peer}").json
    assert [name for name, _, _ in connected(left)] == ["b", "w"]


@pytest.mark.parametrize(
    "words", [("--connect", "w"), ("--connect", "=a"), ("--connect", "w="), ("--disconnect", "x")]
)
def test_what_is_no_connection_is_a_usage_error(plain: Run, peer: str, words: tuple[str, ...]) -> None:
    said = plain("agent", "set", peer, *words)
    assert said.status == 2
    assert words[0] in said.err


def test_a_peer_that_there_is_not_is_named(hopline: Run, peer: str) -> None:
    error = hopline("agent", "set", peer, "--connect", "w=nobody").error
    assert error["code"] == "invalid_argument"
    assert "'nobody'" in error["message"]


# -- up --config -----------------------------------------------------------------------------------


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[UpProcess] = []

    def start(*words: str) -> UpProcess:
        started.append(UpProcess(tmp_path / "data", "--any-port", *words))
        return started[-1]

    yield start
    for each in started:
        each.close()


CLOUD = """
agents:
  concierge:
    runtime: cloud
    connections: {weather: {agent: weather-agent}}
  weather-agent:
"""


def test_a_wrong_file_stops_a_first_start_before_anything_is_made(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text("agents:\n  a:\n    owner: ghost\n    color: red\n")
    up = start("--config", str(file))
    assert "mesh.yaml:3: there is no user 'ghost'" in up.complaint()
    assert up.process.returncode == 1
    assert not (tmp_path / "data").exists()


def test_a_start_warns_of_agents_in_the_cloud_until_it_is_given_a_public_url(
    start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(CLOUD)
    up = start("--config", str(file))
    up.wait_until_up()
    assert up.stop() == 0
    assert "mesh.yaml:5: concierge runs in the cloud" in up.said
    assert "warning: " in up.said
    up = start("--config", str(file), "--public-url", "https://mesh.example.org")
    assert up.wait_until_up()["gateway"]
    assert up.stop() == 0
    assert "warning: " not in up.said


def test_a_bad_public_url_stops_the_start(start: Start) -> None:
    up = start("--public-url", "mesh.example.org/x")
    assert "--public-url must be a URL such as https://mesh.example.org" in up.complaint()
    assert up.process.returncode == 1
