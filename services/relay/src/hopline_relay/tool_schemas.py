"""Server tools as workers describe them: whether their schemas can be used, and whether arguments fit.

A schema comes from one worker and is used on the arguments of another agent, on the thread that serves all.
So what may take for ever is left to the worker, which checks as well: patterns, what looks back at what was
evaluated, and whatever takes more than a few thousand steps. Nothing is ever fetched.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from hopline.runtime.v1.tunnel_pb2 import ToolDefinition
from hopline_rpc.errors import invalid

from hopline_relay.domain.payloads import payload_problem

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MAX_TOOLS: Final = 100
MAX_SCHEMA_BYTES: Final = 16 * 1024
_MAX_ALL_BYTES: Final = 256 * 1024
_STEPS: Final = 5_000
# Comparing each with each: more are left to the worker.
_MAX_UNIQUE: Final = 100
_WORDS: Final = 300
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ANYTHING: Final[Mapping[str, Any]] = {"type": "object"}
_UNCHECKED: Final = frozenset(
    {
        "pattern",
        "patternProperties",
        "unevaluatedProperties",
        "unevaluatedItems",
        "$dynamicRef",
        "$recursiveRef",
    }
)
# Places in a schema that hold data, not schemas.
_DATA: Final = frozenset({"const", "enum", "default", "examples"})


class _TooMuchError(Exception):
    """It would take too long to check here."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: its schemas as JSON text (the second is empty where it was not given)."""

    name: str
    description: str
    input_json: str
    output_json: str = ""

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raise `invalid_argument`, naming the field, for arguments that do not fit as far as can be told."""
        if (problem := misfit(self.input_json, arguments)) is not None:
            raise invalid(*problem)


def described(name: str, description: str, schema: Mapping[str, Any]) -> Tool:
    """Return a tool that an agent's definition names."""
    return Tool(name, description, _text(_whole(schema) or _ANYTHING))


async def read(definitions: Iterable[ToolDefinition]) -> dict[str, Tool]:
    """Read what a worker offers; raises `invalid_argument` with the tool and what is wrong with it."""
    found: dict[str, Tool] = {}
    size = 0
    for index, each in enumerate(definitions):
        field = f"server_tools[{index}]"
        if not _NAME.fullmatch(each.name):
            raise invalid(f"{field}.name", f"{each.name!r} may hold letters, digits, '_', '-' and '.' alone")
        if each.name in found:
            raise invalid(f"{field}.name", f"{each.name!r} is offered twice")
        inner = _schema(each, "input_schema_json", field) or _text(_ANYTHING)
        outer = _schema(each, "output_schema_json", field)
        size += len(inner) + len(outer)
        if size > _MAX_ALL_BYTES:
            raise invalid("server_tools", f"their schemas take more than {_MAX_ALL_BYTES // 1024} KiB")
        if (kind := _kind(inner)) != "object":
            raise invalid(f"{field}.input_schema_json", f"is of type {kind!r}; arguments are an object")
        found[each.name] = Tool(each.name, each.description, inner, outer)
        await asyncio.sleep(0)  # others go on in between
    return found


def _schema(definition: ToolDefinition, name: str, field: str) -> str:
    given, where = getattr(definition, name), f"{field}.{name}"
    if not given:
        return ""
    if problem := payload_problem(given):
        raise invalid(where, f"of {definition.name!r} {problem}")
    # Shorter, and in the order it was given: models read it so.
    text = _text(json.loads(given))
    if len(text.encode()) > MAX_SCHEMA_BYTES:
        raise invalid(where, f"of {definition.name!r} has more than {MAX_SCHEMA_BYTES // 1024} KiB")
    if problem := _broken(text):
        raise invalid(where, f"of {definition.name!r} is no usable JSON Schema: {problem}")
    return text


def _kind(schema: str) -> Any:
    """Return the type that a schema names; what names none, or allows all, takes objects."""
    found = json.loads(schema)
    return found.get("type", "object") if isinstance(found, dict) else "object"


def _text(schema: Any) -> str:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def _whole(value: Any) -> Any:
    """Return JSON that came by way of doubles with its whole numbers whole again."""
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


# --- schemas -------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _broken(text: str) -> str:
    """Say what is wrong with a schema; empty when nothing is."""
    from jsonschema.exceptions import SchemaError

    schema = json.loads(text)
    for word, value in _parts(schema):
        if word in {"$ref", "$dynamicRef", "$recursiveRef"} and not _leads_somewhere(schema, value):
            return f"{word} {value[:_WORDS]!r} leads nowhere within it"
    try:
        _draft(schema).check_schema(schema)
    except SchemaError as error:
        where = "/".join(map(str, error.absolute_path))
        return f"{where}: {error.message}"[:_WORDS] if where else error.message[:_WORDS]
    except RecursionError:
        return "it is nested too deeply"
    except Exception as error:  # what a check of the library's trips over is no schema to it
        return f"it cannot be read ({type(error).__name__})"
    return ""


def _draft(schema: Any) -> Any:
    """Return the kind of validator that a schema asks for."""
    from jsonschema.validators import Draft202012Validator, validator_for

    named = isinstance(schema, dict) and isinstance(schema.get("$schema"), str)
    return validator_for(schema, default=Draft202012Validator) if named else Draft202012Validator


def _parts(schema: Any) -> Iterator[tuple[str, str]]:
    """Yield every word of a schema with its text; what holds none with nothing."""
    pending = [schema]
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending += each
        elif isinstance(each, dict):
            for word, value in each.items():
                yield word, value if isinstance(value, str) else ""
                if word not in _DATA:
                    pending.append(value)


def _leads_somewhere(schema: Any, reference: str) -> bool:
    if not reference:
        return True  # a property of that name
    if not reference.startswith("#"):
        return False
    for step in reference[1:].split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, list) and step.isdecimal() and int(step) < len(schema):
            schema = schema[int(step)]
        elif isinstance(schema, dict) and step in schema:
            schema = schema[step]
        else:
            return False
    return reference == "#" or reference.startswith("#/")


# --- arguments -----------------------------------------------------------------------------------


def misfit(schema: str, arguments: Any) -> tuple[str, str] | None:
    """Say where arguments do not fit a schema, and why; None where they do, or only the worker can tell."""
    from jsonschema.exceptions import best_match

    validator = _validator(schema)
    if validator is None:
        return None
    _Steps.left = _STEPS
    try:
        error = best_match(validator.iter_errors(arguments))
    except Exception:
        # It takes too long; or the library trips only in use, over a reference that leads to no schema, or
        # over a number that no double holds.
        return None
    if error is None:
        return None
    where = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in error.absolute_path)
    return f"arguments{where}"[:_WORDS], str(error.message)[:_WORDS]


class _Steps:
    """How many steps the check that is made may still take: one is made at a time, and none waits."""

    left = 0


@lru_cache(maxsize=1024)
def _validator(text: str) -> Validator | None:
    from referencing import Registry

    schema = json.loads(text)
    if any(word in _UNCHECKED for word, _ in _parts(schema)):
        return None
    kind = _counting(_draft(schema))
    # An empty registry: references to elsewhere are never followed.
    return kind(schema, registry=Registry())  # type: ignore[no-any-return]


@lru_cache(maxsize=16)
def _counting(kind: Any) -> Any:
    """Return a kind of validator that counts its steps."""
    from jsonschema import validators

    extend: Any = validators.extend
    return extend(kind, {word: _counted(word, check) for word, check in kind.VALIDATORS.items()})


def _counted(word: str, check: Any) -> Any:
    # Following a reference costs as much as some ten of the others.
    cost = 10 if word == "$ref" else 1

    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        _Steps.left -= cost
        if _Steps.left < 0 or (
            word == "uniqueItems" and isinstance(instance, list) and len(instance) > _MAX_UNIQUE
        ):
            raise _TooMuchError
        yield from check(validator, value, instance, schema) or ()

    return counted


def arguments_of(text: str) -> dict[str, Any]:
    """Return the arguments that a JSON text holds; raises `invalid_argument` where it holds no object."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise invalid("arguments_json", "must be a JSON object")
    return found
