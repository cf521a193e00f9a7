"""The rules of each method, read from the contract once: who may call it and how long it may take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from google.protobuf import descriptor_pool
from hopline.common.v1 import options_pb2

from hopline_rpc.principals import KINDS, PrincipalKind

DEFAULT_DEADLINE: Final = 10.0
_PREFIX: Final = "PRINCIPAL_KIND_"


@dataclass(frozen=True, slots=True)
class Rules:
    """What `hopline.common.v1.rules` says of a method."""

    allow: frozenset[PrincipalKind] = frozenset()
    public: bool = False
    deadline: float = DEFAULT_DEADLINE
    # Probes would fill every trace store with themselves.
    traced: bool = True


# A method that declares nothing: whoever calls it is refused.
UNDECLARED: Final = Rules()


def rules_of_service(service: str) -> dict[str, Rules]:
    """Return the rules of every method of a service (`package.Service`), by method name."""
    described = descriptor_pool.Default().FindServiceByName(service)
    table = {}
    for method in described.methods:
        options = method.GetOptions()
        if not options.HasExtension(options_pb2.rules):
            table[method.name] = UNDECLARED
            continue
        rules = options.Extensions[options_pb2.rules]
        table[method.name] = Rules(
            frozenset(_kinds(rules.allow)),
            rules.public,
            float(rules.default_deadline_seconds or DEFAULT_DEADLINE),
        )
    return table


def _kinds(allowed: Iterable[options_pb2.PrincipalKind.ValueType]) -> list[PrincipalKind]:
    names = {options_pb2.PrincipalKind.Name(kind).removeprefix(_PREFIX).lower() for kind in allowed}
    return [kind for kind in KINDS if kind in names]
