"""The fields of a form: how each is shown, read, and held to the limits that the contract states."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from buf.validate import validate_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from hopline_rpc.visible import visible

Kind = Literal["text", "area", "number", "choice", "flag", "lines", "pairs", "secret", "file", "moment"]
Value = str | int | bool | list[str] | dict[str, str]
"""What a field means; what is typed into it is text, or for a flag whether it was there."""

_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
# What a line break is differs between browsers, systems, and what agents wrote.
_BREAKS: Final = re.compile(r"\r\n?")


class Choice(NamedTuple):
    """One of the values to choose from."""

    value: str
    label: str


class Mistake(Exception):  # noqa: N818 - what is typed wrong, in words for whoever typed it
    """What was typed cannot be read as what the field is for."""


@dataclass(frozen=True)
class Field:
    """One field. `name` is that of the contract's field too; refusals of `paths` are shown at it as well."""

    name: str
    label: str
    kind: Kind = "text"
    hint: str = ""
    choices: Sequence[Choice] = ()
    required: bool = False
    longest: int = 0
    least: int | None = None
    most: int | None = None
    paths: tuple[str, ...] = ()
    rows: int = 4
    # What a browser may fill in by itself.
    autocomplete: str = "off"

    def within(self, message: Descriptor, path: str = "") -> Field:
        """Return the field with the limits that the contract states for it."""
        found = message.fields_by_name[path or self.name]
        rules = found.GetOptions().Extensions[validate_pb2.field]
        text = rules.string
        longest = text.max_len or text.max_bytes
        if found.type == FieldDescriptor.TYPE_STRING and not found.is_repeated:
            needed = bool(text.min_len or text.min_bytes) and not rules.ignore
            return replace(self, longest=self.longest or longest, required=self.required or needed)
        if self.kind == "number":
            numbers = rules.uint32 if found.type == FieldDescriptor.TYPE_UINT32 else rules.uint64
            least = numbers.gte if numbers.HasField("gte") else 0
            most = numbers.lte if numbers.HasField("lte") else 2**32 - 1
            return replace(self, least=least, most=most)
        return self

    def read(self, typed: str, *, there: bool) -> Value:
        """Return what was typed as what it means; raises `Mistake`."""
        if self.kind == "flag":
            return there
        text = plain(typed) if self.kind in ("area", "lines", "pairs") else typed
        if self.kind not in ("area", "secret"):
            text = text.strip()
        if self.required and not text.strip():
            raise Mistake("is needed")
        if self.longest and len(text) > self.longest and self.kind != "lines":
            raise Mistake(f"may have {self.longest} characters and has {len(text)}")
        return _READERS.get(self.kind, _as_it_is)(self, text)

    def written(self, value: Value) -> str:
        """Return a value as it stands in the field: all of it can be seen, and what is seen is sent."""
        if isinstance(value, bool):
            return "1" if value else ""
        if isinstance(value, list):
            return visible("\n".join(map(plain, value)))
        if isinstance(value, dict):
            return visible("\n".join(f"{key}={item}" for key, item in value.items()))
        return visible(plain(str(value)) if self.kind == "area" else str(value))


def plain(text: str) -> str:
    """Return a text of lines with one kind of break, as it comes back from a browser."""
    return _BREAKS.sub("\n", text)


def choices_of(kind: EnumDescriptor, unset: str = "") -> tuple[Choice, ...]:
    """Return the values of an enum as people say them, behind `unset` for none where it may be left open."""
    prefix = kind.values_by_number[0].name.removesuffix("UNSPECIFIED")
    named = (
        Choice(str(each.number), each.name.removeprefix(prefix).lower().replace("_", " "))
        for each in kind.values
        if each.number
    )
    return ((Choice("0", unset),) if unset else ()) + tuple(named)


def _as_it_is(field: Field, text: str) -> Value:
    return text


def _number(field: Field, text: str) -> Value:
    least, most = field.least or 0, 2**32 - 1 if field.most is None else field.most
    if not text and not field.required:
        return 0
    if _WHOLE.fullmatch(text) is None or not least <= int(text) <= most:
        raise Mistake(f"must be a whole number from {least} to {most}")
    return int(text)


def _choice(field: Field, text: str) -> Value:
    if text not in {each.value for each in field.choices}:
        raise Mistake(f"must be one of {', '.join(each.label for each in field.choices)}")
    return text


def _lines(field: Field, text: str) -> Value:
    return list(dict.fromkeys(line.strip() for line in text.split("\n") if line.strip()))


def _pairs(field: Field, text: str) -> Value:
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        key, sign, value = line.partition("=")
        if not sign or not key.strip():
            raise Mistake(f"line {number} must be NAME=VALUE")
        if key.strip() in found:
            raise Mistake(f"line {number}: the name {key.strip()!r} stands twice")
        found[key.strip()] = value.strip()
    return found


def _moment(field: Field, text: str) -> Value:
    """Return a time in UTC as RFC 3339 text, from what a browser's field for times gives."""
    if not text:
        return ""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Mistake("must be a time such as 2027-01-31T08:00, in UTC") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC).isoformat().replace("+00:00", "Z")


_READERS: Final[dict[str, Callable[[Field, str], Value]]] = {
    "number": _number,
    "choice": _choice,
    "lines": _lines,
    "pairs": _pairs,
    "moment": _moment,
}
