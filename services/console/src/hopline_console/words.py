"""Words of people for values of the contract."""

from __future__ import annotations

from typing import Final

from google.protobuf.descriptor import EnumDescriptor

VIEWER: Final = 1
OPERATOR: Final = 2
ADMIN: Final = 3
_ROLES: Final = {VIEWER: "viewer", OPERATOR: "operator", ADMIN: "admin"}


def word(kind: EnumDescriptor, value: int) -> str:
    """Return an enum's value as people say it: `receive only`; empty for the unset one."""
    found = kind.values_by_number.get(value)
    if found is None or not value:
        return ""
    prefix = kind.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return found.name.removeprefix(prefix).lower().replace("_", " ")


def role_word(role: int) -> str:
    """Return `viewer`, `operator`, `admin`; `none` for no role."""
    return _ROLES.get(role, "none")


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 agent`, `3 agents`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
