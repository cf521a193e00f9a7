"""Requests made from the contracts' descriptors, and bytes that are hardly requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from tests.fuzz.jsons import SPLINTERS

_F = FieldDescriptor
_WHOLE: Final = {
    _F.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    _F.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    _F.CPPTYPE_UINT32: (0, 2**32 - 1),
    _F.CPPTYPE_UINT64: (0, 2**64 - 1),
    _F.CPPTYPE_ENUM: (-1, 40),
}
_TEXTS: Final = st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(
    [
        "",
        "\0",
        "x" * 70,
        "y" * 210,
        "é" * 33_000,
        "%s",
        "..",
        "*",
        "{}",
        "null",
        "[1, 2",
        "1e999",
        "NaN",
        "[" * 90 + "]" * 90,
    ]
)
# What a field of this name may hold that is real.
_NAMES: Final = {
    "agent": "agent",
    "agent_ref": "agent",
    "agents": "agent",
    "to": "agent",
    "message_id": "message_id",
    "thread_id": "thread_id",
    "turn_id": "turn_id",
    "session_id": "session_id",
    "caller_session_id": "session_id",
}

Known = Mapping[str, list[str]]


def _scalar(field: FieldDescriptor, known: Known) -> st.SearchStrategy[Any]:
    kind = field.cpp_type
    if field.name in {"wait_seconds"}:
        return st.just(0)  # what waiting does is tested elsewhere
    if kind in _WHOLE:
        low, high = _WHOLE[kind]
        return st.integers(low, high) | st.integers(max(low, -1), 3) | st.sampled_from([low, high])
    if kind == _F.CPPTYPE_BOOL:
        return st.booleans()
    if kind in {_F.CPPTYPE_DOUBLE, _F.CPPTYPE_FLOAT}:
        return st.floats(width=32)
    if field.type == _F.TYPE_BYTES:
        return st.binary(max_size=100)
    real = known.get(_NAMES.get(field.name, ""), [])
    return st.sampled_from(real) | _TEXTS if real else _TEXTS


@st.composite
def messages(draw: st.DrawFn, kind: Descriptor, known: Known, depth: int = 0) -> Any:
    """Draw a message in which every field may stand, once or often, with any value of its type."""
    message = GetMessageClass(kind)()
    for field in kind.fields:
        # A wait that is left out is a long one.
        if field.name != "wait_seconds" and draw(st.integers(0, 3)) == 0:
            continue
        if field.message_type is not None:
            _put_messages(draw, message, field, known, depth)
        elif field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(_scalar(field, known), max_size=3)))
        else:
            setattr(message, field.name, draw(_scalar(field, known)))
    return message


def _put_messages(draw: st.DrawFn, message: Any, field: FieldDescriptor, known: Known, depth: int) -> None:
    kind = field.message_type
    if depth > 2 or kind is None:
        return
    if kind.GetOptions().map_entry:
        value = kind.fields_by_name["value"]
        if value.message_type is None:
            for key in draw(st.lists(_TEXTS, max_size=3)):
                getattr(message, field.name)[key] = draw(_scalar(value, known))
        return
    for _ in range(draw(st.integers(0, 2)) if field.is_repeated else 1):
        inner = draw(messages(kind, known, depth + 1))
        held = getattr(message, field.name)
        (held.add() if field.is_repeated else held).CopyFrom(inner)


@st.composite
def encoded(draw: st.DrawFn, kind: Descriptor, known: Known, tail: bytes = b"") -> bytes:
    """Draw the bytes of a message, whole or damaged; `tail` comes behind whatever they are."""
    raw = bytes(draw(messages(kind, known)).SerializeToString())
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2, 4]))):
        at = draw(st.integers(0, len(raw)))
        match draw(st.sampled_from(["flip", "cut", "put", "unknown", "double"])):
            case "flip" if raw:
                at = min(at, len(raw) - 1)
                raw = raw[:at] + bytes([raw[at] ^ (1 << draw(st.integers(0, 7)))]) + raw[at + 1 :]
            case "cut":
                raw = raw[:at]
            case "put":
                raw = raw[:at] + draw(SPLINTERS) + raw[at:]
            case "unknown":
                raw += _unknown(draw)
            case _:
                raw += raw
    return raw + tail


def _unknown(draw: st.DrawFn) -> bytes:
    """Return a field that the contract does not have: each wire type, groups without an end included."""
    number = draw(st.sampled_from([15, 99, 19_000, 2**29 - 1]))
    wire = draw(st.integers(0, 7))
    contents = {0: b"\xff" * 9 + b"\x01", 1: b"12345678", 2: b"\x03abc", 3: b"", 4: b"", 5: b"1234"}
    return _varint(number << 3 | wire) + contents.get(wire, b"")


def _varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])
