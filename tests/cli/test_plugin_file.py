"""The file of `hopline plugin install`: whatever is wrong in it is said, all at once, with file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hopline.registry.v1 import plugin_pb2 as pb
from hopline_files.plugin_file import PluginFile, read_plugin
from hopline_rpc.errors import HoplineError, invalid

FULL = """\
key: omo
name: Oh My
version: 1.4
description: a crew
endpoint: 127.0.0.1:7500
permissions: [agents.read, session]
agents:
  - {key: oracle, name: Oracle}
  - key: 7
    name: 2026-01-01
tools:
  - name: find
    description: Finds.
    input_schema:
      type: object
      properties: {question: {type: string}}
skills:
  - name: method
    description: How.
    text: |
      First this.
      Then that.
commands:
  - {name: research, description: Looks., agent_key: oracle}
hooks:
  - {kind: system_prompt, order: -5, fail_mode: fail_closed}
model_provider: false
"""


def read(folder: Path, text: str) -> PluginFile:
    file = folder / "plugin.yaml"
    file.write_text(text, encoding="utf-8")
    return read_plugin(file)


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(HoplineError) as caught:
        read(folder, text)
    assert caught.value.reason == "invalid_argument"
    return [each.removeprefix(f"{folder}/plugin.yaml:") for each in caught.value.message.split("\n")]


def test_every_field_of_a_manifest_can_stand_in_the_file(tmp_path: Path) -> None:
    found = read(tmp_path, FULL).manifest
    assert {field.name for field, _ in found.ListFields()} == {
        field.name for field in pb.PluginManifest.DESCRIPTOR.fields if field.name != "model_provider"
    }
    assert (found.version, found.agents[1].key, found.agents[1].name) == ("1.4", "7", "2026-01-01")
    assert json.loads(found.tools[0].input_schema_json)["properties"] == {"question": {"type": "string"}}
    assert found.skills[0].text == "First this.\nThen that.\n"
    assert (found.hooks[0].order, found.hooks[0].fail_mode) == (-5, "fail_closed")
    assert read(
        tmp_path, FULL.replace("model_provider: false", "model_provider: yes")
    ).manifest.model_provider


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("key: omo\n", "key: Omo\n", "1: key: must be a letter a-z"),
        ("description: a crew", "colour: blue", "4: the file has no field 'colour'; there are: agents, "),
        ("name: find", "nom: find", "12: each of tools has no field 'nom'"),
        ("127.0.0.1:7500", "127.0.0.1", "5: endpoint: must be host:port"),
        ("[agents.read, session]", "[agents.read, fly]", "6: permissions[1]: "),
        ("[agents.read, session]", "session", "6: permissions must be a list"),
        ("order: -5", "order: high", "26: order must be a whole number, not 'high'"),
        ("kind: system_prompt", "kind: sent", "26: hooks[0].kind: "),
        ("model_provider: false", "model_provider: maybe", "27: model_provider must be true or false"),
        ("- {key: oracle, name: Oracle}", "- oracle", "8: each of agents must be a mapping"),
        ("key: 7", "key: oracle", "7: agents: two have the same key"),
        ("type: object", "when: 2026-01-01", "15: input_schema holds something that JSON does not have"),
        ("type: object", "limit: .nan", "15: input_schema holds something that JSON does not have"),
        ("name: Oh My\n", "", "1: name: "),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, before: str, after: str, told: str) -> None:
    assert before in FULL
    (found,) = problems(tmp_path, FULL.replace(before, after, 1))
    assert found.startswith(told), found


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = (
        FULL.replace("key: omo", "key: 1").replace("version: 1.4\n", "").replace("name: research", "name: R")
    )
    assert [each.partition(":")[0] for each in problems(tmp_path, text)] == ["1", "1", "23"]


@pytest.mark.parametrize("text", ["", "[]", "a: [", "\t"])
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text)


def test_what_the_registry_refuses_is_said_in_the_line_that_it_is_about(tmp_path: Path) -> None:
    found = read(tmp_path, FULL)
    told = found.with_places(invalid("manifest.commands[0].agent_key", "is the key of no agent"))
    assert told.message == f"{tmp_path}/plugin.yaml:24: commands[0].agent_key: is the key of no agent"
    told = found.with_places(invalid("manifest.tools[0].input_schema_json", "is not JSON"))
    assert "plugin.yaml:14: tools[0].input_schema: is not JSON" in told.message
    other = HoplineError("limit_reached", "full")
    assert found.with_places(other) is other
