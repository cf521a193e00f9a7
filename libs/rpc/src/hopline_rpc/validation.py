"""What is checked of every request before a handler sees it: the contract's own limits, and NUL.

The limits are protovalidate rules in the .proto files; the answer names the field and its limit.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from protovalidate import ValidationError, Validator

from hopline_rpc.errors import HoplineError, invalid

_validator = Validator()
_ROOM = 3  # violations that get into the sentence; the details list more


def check(request: Message) -> None:
    """Refuse a request that breaks a limit of the contract, with `invalid_argument`."""
    if _has_text(request.DESCRIPTOR) and b"\0" in request.SerializeToString():
        # Tags and numbers may hold zero bytes too: look at the texts themselves.
        for path in _texts_with_nul(request, ""):
            raise invalid(path, "must not contain the NUL character (U+0000)")
    try:
        _validator.validate(request)
    except ValidationError as error:
        raise _refusal(error) from None


def _refusal(error: ValidationError) -> HoplineError:
    violations = []
    for violation in error.violations:
        proto = violation.proto
        violations.append((_path(proto.field), proto.message or proto.rule_id or "is not valid"))
    sentences = [f"{field}: {text}" if field else text for field, text in violations[:_ROOM]]
    return HoplineError("invalid_argument", "; ".join(sentences), violations=violations)


def _path(field: Any) -> str:
    """Write a field path the way it is written in code: `messages[2].labels["a"].text`."""
    text = ""
    for element in field.elements if field is not None else ():
        text += f".{element.field_name}" if text else element.field_name
        subscript = element.subscript
        if subscript is not None:
            value = subscript.value
            text += f'["{value}"]' if isinstance(value, str) else f"[{value}]"
    return text


@functools.cache
def _has_text(descriptor: Descriptor) -> bool:
    """Tell whether a string can occur anywhere in a message of this type."""
    seen: set[str] = set()
    pending = [descriptor]
    while pending:
        current = pending.pop()
        seen.add(current.full_name)
        for field in current.fields:
            if field.type == FieldDescriptor.TYPE_STRING:
                return True
            if field.message_type is not None and field.message_type.full_name not in seen:
                pending.append(field.message_type)
    return False


def _texts_with_nul(message: Message, prefix: str) -> Iterator[str]:
    """Yield the path of each string field that holds U+0000."""
    for field, value in message.ListFields():
        path = f"{prefix}.{field.name}" if prefix else field.name
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            yield from _in_map(value, path)
        elif field.type == FieldDescriptor.TYPE_STRING:
            texts = value if field.is_repeated else (value,)
            if any("\0" in text for text in texts):
                yield path
        elif field.message_type is not None:
            nested = value if field.is_repeated else (value,)
            for index, item in enumerate(nested):
                yield from _texts_with_nul(item, f"{path}[{index}]" if field.is_repeated else path)


def _in_map(entries: Any, path: str) -> Iterator[str]:
    for key, value in entries.items():
        if isinstance(key, str) and "\0" in key:
            yield path
        elif isinstance(value, str) and "\0" in value:
            yield f'{path}["{key}"]'
        elif isinstance(value, Message):
            yield from _texts_with_nul(value, f'{path}["{key}"]')
