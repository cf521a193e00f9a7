"""The file of `hopline crew apply`: a crew's name, and its members as they are to be.

crew: research
members:
  - {key: lead, name: Planner, lead: true, models: [opus, gpt-5]}
  - {key: librarian, description: Finds sources., group_only: true}
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hopline.registry.v1 import crew_pb2 as pb
from hopline_rpc.errors import HoplineError
from hopline_rpc.validation import check

from hopline_files.problems import Place, Problem, raise_all
from hopline_files.words import number_of, words_of
from hopline_files.yaml_file import Node, YamlFile

MAX_MEMBERS: Final = 20
_MAX_NAME: Final = 100
# What one call carries, with room to spare: texts are limited by characters, which take up to four bytes.
_MAX_BYTES: Final = 7 * 1024 * 1024
_KEYS: Final = ("crew", "members")
_TEXTS: Final = ("key", "name", "description", "soul", "instructions")
_FLAGS: Final = ("lead", "group_only")
_CHOICES: Final = ("thinking_level", "reply_mode")
_FIELDS: Final = (*_TEXTS, *_FLAGS, *_CHOICES, "models")
# What people write without quotes and YAML takes for a number, a date or a truth.
_PLAIN: Final = frozenset({"key", "name"})


@dataclass(frozen=True)
class FileMember:
    """A member, and where each of its fields stands."""

    wanted: pb.CrewMember
    place: Place
    places: Mapping[str, Place]

    def place_of(self, field: str) -> Place:
        """Return where a field stands: `models.patterns[1]` where `models` does."""
        found = re.match(r"\w+", field)
        return self.places.get(found[0] if found else "", self.place)


@dataclass(frozen=True)
class CrewFile:
    """What the file says."""

    name: str
    members: tuple[FileMember, ...]

    def with_places(self, refusal: HoplineError) -> HoplineError:
        """Return what the registry refuses of a member as what is wrong in its line."""
        problems = []
        for path, text in refusal.violations:
            found = re.match(r"members\[(\d+)\]\.?(.*)", path)
            if found is None or int(found[1]) >= len(self.members):
                return refusal
            member = self.members[int(found[1])]
            problems.append(Problem(member.place_of(found[2]), f"{found[2] or member.wanted.key}: {text}"))
        try:
            raise_all(problems)
        except HoplineError as told:
            return told
        return refusal


def read_crew(path: Path, text: str | None = None) -> CrewFile:
    """Read a file, or a text under its name; what is wrong with it is said at once, each with its line."""
    file = YamlFile(path, text)
    sections: dict[str, Node] = {}
    if file.root is not None:
        for key, node, value in file.pairs(file.root, "the file"):
            if key in _KEYS:
                sections[key] = value
            else:
                file.wrong(node, f"{key!r} is not known here; there are: {', '.join(_KEYS)}")
    name = _name(file, sections)
    members = tuple(_members(file, sections))
    raise_all(file.problems)
    return CrewFile(name, members)


def _name(file: YamlFile, sections: Mapping[str, Node]) -> str:
    if "crew" not in sections:
        if not file.problems:
            file.note(1, "the file names no crew: begin it with a line such as `crew: research`")
        return ""
    node = sections["crew"]
    name = file.text(node, "crew", plain=True)
    if name is not None and not 1 <= len(name.strip()) <= _MAX_NAME:
        file.wrong(node, f"crew: its name has 1 to {_MAX_NAME} characters, not {len(name)}")
    return unicodedata.normalize("NFC", name or "")


def _members(file: YamlFile, sections: Mapping[str, Node]) -> Iterator[FileMember]:
    node = sections.get("members")
    if node is None or node.id != "sequence" or not node.value:
        if node is not None:
            file.wrong(node, "members must be a list of at least one, each such as `- key: librarian`")
        elif not file.problems:
            file.note(1, "the file has no members: list at least one under `members:`")
        return
    if len(node.value) > MAX_MEMBERS:
        text = f"a crew has at most {MAX_MEMBERS} members; here begins the next, of {len(node.value)}"
        file.wrong(node.value[MAX_MEMBERS], text)
    read = [_Reading(file, each).read() for each in node.value[:MAX_MEMBERS]]
    found = [each for each in read if each is not None]
    _hold_apart(file, found)
    size = sum(each.wanted.ByteSize() for each in found)
    if size > _MAX_BYTES:
        text = f"together the members take {size} bytes and may take {_MAX_BYTES}: shorten their texts"
        file.wrong(node, text)
    yield from found


def _hold_apart(file: YamlFile, members: list[FileMember]) -> None:
    """Note keys that stand twice, and a second lead."""
    keys: dict[str, Place] = {}
    lead: Place | None = None
    for each in members:
        key, place = each.wanted.key, each.place_of("key")
        if key in keys:
            file.note(place.line, f"the key {key!r} stands twice, first in line {keys[key].line}")
        elif key:
            keys[key] = place
        if each.wanted.lead:
            place = each.place_of("lead")
            if lead is not None:
                file.note(place.line, f"a crew has one lead; the first stands in line {lead.line}")
            lead = lead or place


class _Reading:
    """Reads one member."""

    def __init__(self, file: YamlFile, node: Node) -> None:
        self._file = file
        self._node = node
        self._wanted = pb.CrewMember()
        self._places: dict[str, Place] = {}

    def read(self) -> FileMember | None:
        """Return the member, without the fields that are not as they have to be."""
        if self._node.id != "mapping":
            self._file.wrong(self._node, "a member must be a mapping: write `- key: librarian`")
            return None
        named = set()
        for key, key_node, value in self._file.pairs(self._node, "a member"):
            named.add(key)
            if key not in _FIELDS:
                there = ", ".join(sorted(_FIELDS))
                self._file.wrong(key_node, f"a member has no field {key!r}; there are: {there}")
            elif self._take(key, value):
                self._places[key] = self._file.place(key_node)
        if "key" not in named:
            self._file.wrong(self._node, "the member has no key: give it one, e.g. `key: librarian`")
        member = FileMember(self._wanted, self._file.place(self._node), self._places)
        self._file.problems.extend(_limits(member))
        return member

    def _take(self, key: str, node: Node) -> bool:
        """Take one field over; False when it is wrong."""
        if key in _TEXTS:
            text = self._file.text(node, key, plain=key in _PLAIN)
            if text is not None and key == "key":
                text = unicodedata.normalize("NFC", text)  # one key, however an editor wrote its accents
            return self._set(key, text)
        if key in _FLAGS:
            return self._set(key, self._file.flag(node, key))
        if key == "models":
            found = self._file.texts(node, key)
            if found is not None:
                self._wanted.models.SetInParent()
                self._wanted.models.patterns.extend(text for text, _ in found)
            return found is not None
        return self._choice(key, node)

    def _choice(self, key: str, node: Node) -> bool:
        # `off` is a boolean to YAML, and a thinking level to us.
        word = self._file.text(node, key, plain=True)
        if word is None:
            return False
        kind = pb.CrewMember.DESCRIPTOR.fields_by_name[key].enum_type
        number = number_of(kind, word)
        if number is None:
            self._file.wrong(node, f"{key} must be one of {', '.join(words_of(kind))}, not {word[:40]!r}")
        return self._set(key, number)

    def _set(self, name: str, value: Any) -> bool:
        if value is None:
            return False
        setattr(self._wanted, name, value)
        return True


def _limits(member: FileMember) -> Iterator[Problem]:
    """Find what breaks a limit of the contract; a key that is missing or no text has been told."""
    wanted = pb.CrewMember()
    wanted.CopyFrom(member.wanted)
    if "key" not in member.places:
        wanted.key = "-"
    try:
        check(wanted)
    except HoplineError as error:
        for path, text in error.violations:
            yield Problem(member.place_of(path), f"{path}: {text}")
