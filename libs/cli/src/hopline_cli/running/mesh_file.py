"""`agents` in the file of `hopline up --config`: the agents that a mesh is to have, and their connections.

Read and checked here by what the file says alone; `mesh_agents` makes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hopline.registry.v1 import agent_pb2 as pb
from hopline_files.problems import Place, Problem
from hopline_files.words import number_of, words_of
from hopline_files.yaml_file import Node, YamlFile
from hopline_rpc.errors import HoplineError
from hopline_rpc.validation import check

_SLUG: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
_MAX_SLUG: Final = 63
_CONNECTION: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}\Z")
# Field of the file -> field of the contract.
_TEXTS: Final = {
    "name": "name",
    "owner": "owner_id",
    "description": "description",
    "model": "model_id",
    "soul": "soul",
    "instructions": "instructions",
}
_CHOICES: Final = {
    "kind": "kind",
    "runtime": "runtime",
    "thinking_level": "thinking_level",
    "reply_mode": "reply_mode",
}
_WAKES: Final = {"none": pb.WAKE_KIND_NONE, "exec": pb.WAKE_KIND_EXEC}
_WEBHOOK: Final = "{webhook: URL, secret_file: FILE}"
_LISTS: Final = {"reach": "reach", "tools": "tools"}
_FIELDS: Final = {
    **_TEXTS,
    **_CHOICES,
    **_LISTS,
    "wake": "wake",
    "labels": "labels",
    "group_only": "is_group_only_callable",
    "connections": "connections",
}


@dataclass(frozen=True)
class FileAgent:
    """An agent as the file wants it. Owner, reach and peers are as they were written: id, slug or name."""

    slug: str
    place: Place
    wanted: pb.Agent
    # Where the fields that the file names stand, by their names in the contract.
    places: Mapping[str, Place] = field(default_factory=dict)
    # Where each of `wanted.reach` and of `wanted.connections` stands, in the same order.
    reach: tuple[Place, ...] = ()
    peers: tuple[Place, ...] = ()

    def place_of(self, path: str) -> Place:
        """Return where the field stands that a refusal names: `agent.connections[1].agent`."""
        found = re.match(r"(?:agent\.)?(\w+)(?:\[(\d+)\])?", path)
        name, number = (found[1], int(found[2] or 0)) if found else ("", 0)
        each = {"reach": self.reach, "connections": self.peers}.get(name, ())
        return each[number] if number < len(each) else self.places.get(name, self.place)


def read_agents(file: YamlFile, node: Node) -> tuple[FileAgent, ...]:
    """Read the agents, noting in `file` what is wrong with them."""
    found = []
    for slug, key, value in file.pairs(node, "agents"):
        if not _SLUG.match(slug) or len(slug) > _MAX_SLUG:
            file.wrong(key, f"{slug[:80]!r} is no slug: {_slug_rule(slug)}")
            continue
        agent = _Reading(file, slug, key).read(value)
        file.problems.extend(_limits(agent))
        found.append(agent)
    return tuple(found)


def _slug_rule(slug: str) -> str:
    rule = f"a slug is made of a-z, 0-9 and single hyphens, {_MAX_SLUG} at most"
    better = re.sub(r"[^a-z0-9]+", "-", slug.lower()).strip("-")[:_MAX_SLUG].rstrip("-")
    return f"{rule}, e.g. {better}" if better else rule


class _Reading:
    """Reads one agent."""

    def __init__(self, file: YamlFile, slug: str, key: Node) -> None:
        self._file = file
        self._slug = slug
        self._place = file.place(key)
        self._wanted = pb.Agent(slug=slug)
        self._places: dict[str, Place] = {}
        self._reach: list[Place] = []
        self._peers: list[Place] = []

    def read(self, node: Node) -> FileAgent:
        """Return the agent, without the fields that are not as they have to be."""
        for key, key_node, value in self._file.pairs(node, f"the agent {self._slug}"):
            if key not in _FIELDS:
                there = ", ".join(sorted(_FIELDS))
                self._file.wrong(key_node, f"an agent has no field {key!r}; there are: {there}")
            elif self._take(key, value):
                self._places[_FIELDS[key]] = self._file.place(key_node)
        return FileAgent(
            self._slug, self._place, self._wanted, self._places, tuple(self._reach), tuple(self._peers)
        )

    def _take(self, key: str, node: Node) -> bool:
        """Take one field over; False when it is wrong."""
        if key in _TEXTS:
            return self._set(_TEXTS[key], self._file.text(node, key))
        if key in _CHOICES:
            return self._choice(key, node)
        if key in _LISTS:
            return self._list(key, node)
        if key == "wake":
            return self._wake(node)
        if key == "labels":
            return self._labels(node)
        if key == "group_only":
            return self._set("is_group_only_callable", self._file.flag(node, key))
        return self._connections(node)

    def _set(self, name: str, value: Any) -> bool:
        if value is None:
            return False
        setattr(self._wanted, name, value)
        return True

    def _choice(self, key: str, node: Node) -> bool:
        # `off` is a boolean to YAML, and a thinking level to us.
        word = self._file.text(node, key, plain=True)
        if word is None:
            return False
        kind = pb.Agent.DESCRIPTOR.fields_by_name[_CHOICES[key]].enum_type
        number = number_of(kind, word)
        if number is None:
            self._file.wrong(node, f"{key} must be one of {', '.join(words_of(kind))}, not {word[:40]!r}")
        return self._set(_CHOICES[key], number)

    def _list(self, key: str, node: Node) -> bool:
        found = self._file.texts(node, key)
        if found is None:
            return False
        getattr(self._wanted, _LISTS[key]).extend(text for text, _ in found)
        if key == "reach":
            self._reach = [self._file.place(each) for _, each in found]
        return True

    def _wake(self, node: Node) -> bool:
        if node.id == "mapping":
            return self._webhook(node)
        word = self._file.text(node, "wake", plain=True)
        if word not in _WAKES:
            if word is not None:
                self._file.wrong(node, f"wake must be none, exec or {_WEBHOOK}, not {word[:40]!r}")
            return False
        self._wanted.wake.kind = _WAKES[word]
        return True

    def _webhook(self, node: Node) -> bool:
        """Read what wakes the agent, and the file with the secret that signs the call."""
        found: dict[str, str] = {}
        for key, key_node, value in self._file.pairs(node, "wake"):
            if key not in {"webhook", "secret_file"}:
                self._file.wrong(key_node, f"wake has no field {key!r}: write {_WEBHOOK}")
            elif (text := self._file.text(value, key)) is not None:
                found[key] = text if key == "webhook" else self._secret(value, text)
        if "webhook" not in found or "secret_file" not in found:
            self._file.wrong(node, f"wake by a webhook needs an address and a secret: write {_WEBHOOK}")
            return False
        self._wanted.wake.kind = pb.WAKE_KIND_WEBHOOK
        self._wanted.wake.webhook_url, self._wanted.wake.webhook_secret = (
            found["webhook"],
            found["secret_file"],
        )
        return True

    def _secret(self, node: Node, file: str) -> str:
        """Return what stands in a file; a path that is not absolute starts at the folder of ours."""
        try:
            return (Path(self._file.place(node).file).parent / file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            self._file.wrong(node, f"secret_file: {file} cannot be read")
            return ""

    def _labels(self, node: Node) -> bool:
        for key, _, value in self._file.pairs(node, "labels"):
            text = self._file.text(value, f"the label {key}", plain=True)
            if text is not None:
                self._wanted.labels[key] = text
        return True

    def _connections(self, node: Node) -> bool:
        for name, key, value in self._file.pairs(node, "connections"):
            if not _CONNECTION.match(name):
                rule = "a letter a-z, then up to 31 of a-z, 0-9, _ and -"
                self._file.wrong(key, f"{name[:80]!r} is no name for a connection: {rule}")
                continue
            if value.id == "scalar":
                example = f"{name}: {{agent: {value.value.strip()[:63] or 'weather-agent'}}}"
                self._file.wrong(value, f"a connection is a mapping: write {example}")
                continue
            found = dict(self._connection(name, value))
            if "agent" in found:
                self._wanted.connections.add(name=name, **found)
                self._peers.append(self._file.place(key))
            elif value.id == "mapping" and all(each.value != "agent" for each, _ in value.value):
                self._file.wrong(key, f"the connection {name} needs an agent: whose tools it offers")
        return True

    def _connection(self, name: str, node: Node) -> Iterator[tuple[str, str]]:
        for key, key_node, value in self._file.pairs(node, f"the connection {name}"):
            if key not in {"agent", "description"}:
                self._file.wrong(
                    key_node, f"a connection has no field {key!r}; there are: agent, description"
                )
            elif (text := self._file.text(value, f"{key} of the connection {name}")) is not None:
                yield key, text


def _limits(agent: FileAgent) -> Iterator[Problem]:
    """Find what breaks a limit of the contract."""
    wanted = pb.Agent()
    wanted.CopyFrom(agent.wanted)
    if "name" not in agent.places:
        wanted.name = agent.slug
    try:
        check(wanted)
    except HoplineError as error:
        for path, text in error.violations:
            yield Problem(agent.place_of(path), f"{path}: {text}")
