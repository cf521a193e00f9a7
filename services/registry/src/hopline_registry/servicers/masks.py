"""Field masks: which fields of a message an update takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from hopline_rpc.errors import invalid
from hopline_rpc.validation import check

M = TypeVar("M", bound=Message)


def chosen(mask: FieldMask, known: Collection[str], fixed: Mapping[str, str]) -> Sequence[str]:
    """Return the fields that a mask names; unknown ones and those in `fixed` are refused, with the reason."""
    if not mask.paths:
        raise invalid("update_mask", "names no field")
    for path in mask.paths:
        if path in fixed:
            raise invalid(f"update_mask: {path}", fixed[path])
        if path not in known:
            raise invalid("update_mask", f"there is no field {path!r}; there are {', '.join(known)}")
    return list(dict.fromkeys(mask.paths))


def overlay(base: M, update: M, paths: Sequence[str]) -> M:
    """Return `base` with the named fields taken from `update`, those held to the contract's limits."""
    for path in paths:
        base.ClearField(path)
    picked = type(base)()
    picked.CopyFrom(update)
    for field in picked.DESCRIPTOR.fields:
        if field.name not in paths:
            picked.ClearField(field.name)
    base.MergeFrom(picked)
    check(base)
    return base
