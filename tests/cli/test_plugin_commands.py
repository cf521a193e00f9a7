"""`hopline plugin` against a real mesh."""

from __future__ import annotations

import stat
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run


class Manifest:
    """A manifest in a file."""

    def __init__(self, folder: Path) -> None:
        self.key = f"p{uuid.uuid4().hex[:8]}"
        self.path = folder / "plugin.yaml"
        self.agents = ["oracle"]
        self.more = ""
        self.write("1")

    def write(self, version: str, *agents: str, more: str = "") -> str:
        self.agents = [*agents] or self.agents
        lines = [f"key: {self.key}", "name: Oh My", f"version: {version!r}", "agents:"]
        lines += [f"  - {{key: {each}, name: {each}}}" for each in self.agents]
        self.path.write_text("\n".join([*lines, more]) + "\n")
        return str(self.path)


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return Manifest(tmp_path)


def of(hopline: Run, manifest: Manifest) -> dict[str, Any]:
    """Return the plugin's agents by slug, as the list of agents shows them."""
    found = hopline("agent", "list", "--limit", "0").json["agents"]
    return {each["slug"]: each for each in found if each["slug"].startswith(manifest.key)}


def test_installing_says_what_is_added_and_waits_to_be_confirmed(
    hopline: Run, plain: Run, manifest: Manifest
) -> None:
    said = plain("plugin", "install", manifest.write("1", "oracle", "scout"))
    assert said.status == 0, said.err
    assert "Adds 2 agents" in said.out
    assert "it asks for: agent oracle, agent scout" in said.out
    assert f"hopline plugin confirm {manifest.key} --revision 1" in said.out
    assert "token (shown once): hpl_p_" in said.out
    shown = hopline("plugin", "show", manifest.key).json
    assert shown["state"] == "awaiting_confirmation"
    assert {each["state"] for each in of(hopline, manifest).values()} == {"provisioning"}
    assert hopline("plugin", "confirm", manifest.key, "--revision", "1").json["state"] == "active"
    agents = of(hopline, manifest)
    assert {(each["state"], each["plugin_name"]) for each in agents.values()} == {("active", "Oh My")}
    assert "token" not in shown
    assert "endpoint_secret" not in shown


def test_with_yes_it_is_active_at_once_and_its_secrets_go_into_private_files(
    plain: Run, manifest: Manifest, tmp_path: Path
) -> None:
    files = [tmp_path / "token", tmp_path / "secret"]
    manifest.write("1", more="endpoint: 127.0.0.1:7599")
    said = plain(
        "plugin", "install", str(manifest.path), "--yes",
        "--token-file", str(files[0]), "--secret-file", str(files[1]),
    )  # fmt: skip
    assert "Adds 1 agent\n" in said.out
    assert "hpl_p_" not in said.out
    assert "confirm" not in said.out
    assert files[0].read_text().startswith("hpl_p_")
    assert len(files[1].read_text().strip()) >= 32
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}


def test_the_badge_of_a_plugin_stands_in_the_list_of_agents(
    hopline: Run, plain: Run, manifest: Manifest
) -> None:
    hopline("plugin", "install", str(manifest.path), "--yes")
    said = plain("agent", "list", "--limit", "0").out.splitlines()
    column = said[0].split("\t").index("PLUGIN")
    (line,) = [each for each in said if each.startswith(f"{manifest.key}-oracle\t")]
    assert line.split("\t")[column] == "Oh My"
    assert "plugin_name: Oh My" in plain("agent", "show", f"{manifest.key}-oracle").out


def test_a_version_that_asks_for_more_waits_and_can_be_declined_or_confirmed(
    hopline: Run, plain: Run, manifest: Manifest
) -> None:
    hopline("plugin", "install", str(manifest.path), "--yes")
    said = plain("plugin", "update", manifest.write("2", "oracle", "scout")).out
    assert f"version 2 of {manifest.key} waits; 1 goes on" in said
    assert "Adds 1 agent\n" in said
    assert "it asks for: agent scout" in said
    assert hopline("plugin", "decline", manifest.key).json["waiting"] is None
    again = hopline("plugin", "update", manifest.write("3", "oracle", "scout")).json
    assert (again["state"], again["waiting"]["version"]) == ("update_waiting", "3")
    stale = hopline("plugin", "confirm", manifest.key, "--revision", "2").error
    assert stale["code"] == "failed_precondition"
    number = str(again["waiting_revision"])
    assert hopline("plugin", "confirm", manifest.key, "--revision", number).json["version"] == "3"
    assert len(of(hopline, manifest)) == 2
    said = plain("plugin", "update", manifest.write("4", "oracle"), "--yes").out
    assert f"plugin {manifest.key} is at version 4" in said
    assert "no longer declared: agt_" in said


def test_uninstalling_says_how_many_agents_went(hopline: Run, plain: Run, manifest: Manifest) -> None:
    hopline("plugin", "install", manifest.write("1", "oracle", "scout"), "--yes")
    said = plain("plugin", "uninstall", manifest.key)
    assert f"plugin {manifest.key} uninstalled; 2 agents went with it" in said.out
    assert of(hopline, manifest) == {}
    assert hopline("plugin", "show", manifest.key).error["code"] == "not_found"
    keys = [each["key"] for each in hopline("plugin", "list", "--limit", "0").json["plugins"]]
    assert manifest.key not in keys


def test_tokens_and_secrets_are_rotated(hopline: Run, manifest: Manifest) -> None:
    first = hopline("plugin", "install", str(manifest.path), "--yes").json
    spare = hopline("token", "create", "--plugin", manifest.key).json
    assert spare["kind"] == "plugin"
    assert spare["subject_id"] == first["id"]
    assert spare["token"].startswith("hpl_p_")
    assert spare["token"] != first["token"]
    hopline("token", "revoke", spare["id"])
    fresh = hopline("plugin", "rotate-secret", manifest.key).json
    assert fresh["endpoint_secret"] != first["endpoint_secret"]


def test_installing_the_same_again_is_no_error_and_another_version_is(
    hopline: Run, manifest: Manifest
) -> None:
    first = hopline("plugin", "install", str(manifest.path), "--yes").json
    again = hopline("plugin", "install", str(manifest.path), "--yes").json
    assert (again["id"], again["was_created"], again["token"]) == (first["id"], False, None)
    error = hopline("plugin", "install", manifest.write("2")).error
    assert error["code"] == "failed_precondition"
    assert "is installed already, as version 1" in error["message"]


def test_what_is_wrong_with_a_manifest_is_said_in_its_line_wherever_it_is_noticed(
    hopline: Run, plain: Run, manifest: Manifest
) -> None:
    text = manifest.write("1", more="commands:\n  - {name: ask, agent_key: nobody}")
    error = hopline("plugin", "install", text).error
    assert error["details"]["problems"] == [
        {
            "file": text,
            "line": 7,
            "message": "commands[0].agent_key: 'nobody' is the key of no agent in the manifest",
        }
    ]
    said = plain("plugin", "install", manifest.write("1", more="colour: blue"))
    assert said.status == 1
    assert f"error: {text}:6: the file has no field 'colour'" in said.err
    missing = plain("plugin", "install", str(manifest.path.with_name("none.yaml")))
    assert missing.status == 1
    assert "none.yaml:1: the file cannot be read" in missing.err
