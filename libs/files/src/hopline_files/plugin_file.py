"""A plugin's manifest as a file: the fields of the contract, each known by its line.

key: omo
name: Oh My
version: "1.4"
permissions: [agents.read, agents.write]
agents:
  - {key: oracle, name: Oracle}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from google.protobuf.descriptor import FieldDescriptor
from hopline.registry.v1 import plugin_pb2 as pb
from hopline_rpc.errors import HoplineError
from hopline_rpc.validation import check

from hopline_files.problems import Place, Problem, raise_all
from hopline_files.yaml_file import Node, YamlFile

# JSON travels as text; in a file it is written out.
_SCHEMA: Final = "input_schema"
_JSON: Final = "_json"
_MOST_SCHEMA: Final = 256 * 1024
# What people write without quotes and YAML takes for a number, a date or a truth.
_PLAIN: Final = frozenset({"key", "name", "version", "agent_key"})


@dataclass
class PluginFile:
    """What the file says, and where each of its fields stands, by its path in the contract."""

    manifest: pb.PluginManifest
    first: Place
    places: dict[str, Place] = field(default_factory=dict)

    def place_of(self, path: str) -> Place:
        """Return where a field stands, or the nearest thing around it that is written there."""
        while path:
            if path in self.places:
                return self.places[path]
            path = re.sub(r"(\[\d+\]|\.?\w+)\Z", "", path)
        return self.first

    def problem(self, path: str, text: str) -> Problem:
        """Return what is wrong with a field, in its line."""
        inner = path.removeprefix("manifest").removeprefix(".")
        if not inner:
            # What is wrong with all of it begins with the name of the list that it is about.
            inner = text.partition(":")[0]
            return Problem(self.place_of(inner), text)
        return Problem(self.place_of(inner), f"{inner.removesuffix(_JSON)}: {text}")

    def with_places(self, refusal: HoplineError) -> HoplineError:
        """Return what the registry refuses of the manifest as what is wrong in its lines."""
        found = [(path, text) for path, text in refusal.violations if path.startswith("manifest")]
        if refusal.reason != "invalid_argument":
            return refusal  # what is in the way is no fault of the file's
        try:
            raise_all([self.problem(path, text) for path, text in found])
        except HoplineError as told:
            return told
        return refusal


def read_plugin(path: Path, text: str | None = None) -> PluginFile:
    """Read a file, or `text` of that name; everything wrong with it is said at once, each with its line."""
    file = YamlFile(path, text)
    found = PluginFile(pb.PluginManifest(), Place(str(path), 1))
    if file.root is not None:
        _Reading(file, found).message(file.root, found.manifest, "", "the file")
    if not file.problems:
        file.problems.extend(_limits(found))
    raise_all(file.problems)
    return found


def _limits(found: PluginFile) -> Iterator[Problem]:
    """Find what breaks a limit of the contract."""
    try:
        check(pb.InstallPluginRequest(manifest=found.manifest))
    except HoplineError as error:
        for path, text in error.violations:
            yield found.problem(path, text)


def _is_huge(node: Node) -> bool:
    """Tell whether a schema is too long once what it refers to is written out: that may grow without end."""
    size, waiting = 0, [node]
    while waiting:
        each = waiting.pop()
        size += 1
        if each.id == "scalar":
            size += len(each.value)
        elif each.id == "sequence":
            waiting += each.value
        else:
            waiting += [part for pair in each.value for part in pair]
        if size + len(waiting) > _MOST_SCHEMA:
            return True
    return False


class _Reading:
    """Reads nodes into messages, by the fields that the contract has."""

    def __init__(self, file: YamlFile, found: PluginFile) -> None:
        self._file = file
        self._found = found

    def message(self, node: Node, into: Any, path: str, what: str) -> None:
        """Read a mapping."""
        fields = {each.name.removesuffix(_JSON): each for each in into.DESCRIPTOR.fields}
        for key, key_node, value in self._file.pairs(node, what):
            if key not in fields:
                there = ", ".join(sorted(fields))
                self._file.wrong(key_node, f"{what} has no field {key!r}; there are: {there}")
                continue
            described = fields[key]
            inner = f"{path}.{described.name}" if path else described.name
            self._found.places[inner] = self._file.place(key_node)
            self._field(value, into, described, inner, key)

    def _field(self, node: Node, into: Any, described: FieldDescriptor, path: str, key: str) -> None:
        if described.is_repeated and described.message_type is not None:
            self._list(node, getattr(into, described.name), path, key)
        elif described.is_repeated:
            for number, (text, each) in enumerate(self._file.texts(node, key) or []):
                self._found.places[f"{path}[{number}]"] = self._file.place(each)
                getattr(into, described.name).append(text)
        elif key == _SCHEMA:
            self._schema(node, into, described.name)
        else:
            value = self._value(node, described, key)
            if value is not None:
                setattr(into, described.name, value)

    def _value(self, node: Node, described: FieldDescriptor, key: str) -> Any:
        if described.type == FieldDescriptor.TYPE_BOOL:
            return self._file.flag(node, key)
        if described.type == FieldDescriptor.TYPE_STRING:
            return self._file.text(node, key, plain=key in _PLAIN)
        text = self._file.text(node, key, plain=True)
        if text is None:
            return None
        if not re.fullmatch(r"[+-]?[0-9]{1,9}", text):
            self._file.wrong(node, f"{key} must be a whole number, not {text[:40]!r}")
            return None
        return int(text)

    def _list(self, node: Node, into: Any, path: str, key: str) -> None:
        if node.id != "sequence":
            self._file.wrong(node, f"{key} must be a list, each item of it a mapping")
            return
        for number, each in enumerate(node.value):
            inner = f"{path}[{number}]"
            self._found.places[inner] = self._file.place(each)
            self.message(each, into.add(), inner, f"each of {key}")

    def _schema(self, node: Node, into: Any, name: str) -> None:
        """Write a schema as the JSON that travels."""
        if _is_huge(node):
            self._file.wrong(node, f"{_SCHEMA} is longer than {_MOST_SCHEMA // 1024} KiB")
            return
        try:
            value = yaml.constructor.SafeConstructor().construct_document(node)
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (yaml.YAMLError, ValueError, TypeError, RecursionError):
            self._file.wrong(node, f"{_SCHEMA} holds something that JSON does not have")
            return
        if not isinstance(value, dict):
            self._file.wrong(node, f"{_SCHEMA} must be a mapping: the JSON schema of the tool's arguments")
            return
        setattr(into, name, text)
