"""Schemas of tools: what cannot be used refuses the worker, and none holds the others up."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline_relay import tool_schemas

from tests.support.relay_mesh import RelayMesh, refusal
from tests.support.tool_worker import CITY, ToolWorker, call_tool, calling, definition, worker_of

LONG = {"type": "object", "description": "x" * (16 * 1024)}
# Each of these doubles what there is to check: 2^30 at the bottom.
BOMB: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/n0"}},
    "$defs": {
        f"n{level}": {"anyOf": [{"$ref": f"#/$defs/n{level + 1}"}, {"$ref": f"#/$defs/n{level + 1}"}]}
        for level in range(30)
    }
    | {"n30": {"type": "null"}},
}
ENDLESS = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/x"}},
    "$defs": {"x": {"$ref": "#/$defs/x"}},
}


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([definition("look", {"type": "nonsense"})], "'look' is no usable JSON Schema: type"),
        ([definition("look", {"type": "array"})], "arguments are an object"),
        ([definition("look", {"properties": {"a": {"$ref": "#/$defs/b"}}})], "leads nowhere"),
        ([definition("look", {"properties": {"a": {"$ref": "http://127.0.0.1/x"}}})], "leads nowhere"),
        ([definition("look", {"properties": {"a": {"$ref": "file:///etc/passwd"}}})], "leads nowhere"),
        ([definition("look", LONG)], "more than 16 KiB"),
        ([definition("look", CITY, output={"type": 5})], "server_tools[0].output_schema_json"),
        ([pb.ToolDefinition(name="look", input_schema_json="{")], "'look' is not JSON"),
        ([pb.ToolDefinition(name="look", input_schema_json="5")], "'look' is no usable JSON Schema"),
        ([pb.ToolDefinition(name="look", input_schema_json='{"$schema": []}')], "'look' is no usable JSON"),
        (
            [pb.ToolDefinition(name="look", input_schema_json='{"$ref": 5}')],
            "'look' is no usable JSON Schema",
        ),
        ([pb.ToolDefinition(name="look", input_schema_json="[" * 99 + "]" * 99)], "nested deeper"),
        ([definition("look"), definition("look")], "offered twice"),
        ([definition("look", {"$schema": 5})], "$schema: 5 is not of type 'string'"),
        ([definition("look", {"$schema": ["x"]})], "$schema: ['x'] is not of type"),
        ([definition("look", {"maximum": math.inf})], "server_tools[0].input_schema"),
        ([definition("look at me")], "may hold letters"),
        ([definition("")], "server_tools"),
        ([definition(f"t{number}") for number in range(101)], "server_tools"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_broken_tool_refuses_its_worker_and_says_what_is_wrong(
    mesh: RelayMesh, tools: list[Any], words: str
) -> None:
    worker = ToolWorker(await mesh.agent("bob"))
    refused = (await worker.offer(*tools)).detached
    assert (refused.code, words in refused.message) == ("invalid_argument", True), refused.message


async def test_the_workers_of_an_agent_offer_100_names_together(mesh: RelayMesh) -> None:
    bob = await mesh.agent("bob")
    names = [f"t{number}" for number in range(100)]
    await worker_of(bob, *names[:60])
    await worker_of(bob, *names[40:])
    refused = (await ToolWorker(bob).offer("one-more")).detached
    assert (refused.code, "at most 100" in refused.message) == ("limit_reached", True)
    await worker_of(bob, "t99")


async def test_a_pattern_is_left_to_the_worker(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    worker = await worker_of(bob, definition("look", schema))
    under_way = calling(ada, bob, arguments={"a": "a" * 5000 + "!"})
    await worker.answer(await worker.call(), refusal="a: does not match")
    assert (await refusal(under_way)).message == "arguments: a: does not match"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (
            {
                "properties": {"a": {"$ref": "#/$defs/b"}},
                "$defs": {"b": {"$id": "x:y", "$ref": "#/c"}},
                "c": {},
            },
            1,
        ),
        ({"properties": {"a": {"$ref": "#/required"}}, "required": ["a"]}, 1),
        ({"properties": {"a": {"$ref": "#/description"}}, "description": "text"}, 1),
        ({"properties": {"a": {"multipleOf": 0.1}}}, 10**400),
        (
            {
                "$schema": "http://json-schema.org/draft-03/schema#",
                "properties": {"a": {"type": [{"type": "string"}]}},
            },
            1,
        ),
    ],
    ids=["nested id", "a list", "a text", "a large number", "a union of an old draft"],
)
async def test_a_schema_that_breaks_only_in_use_is_left_to_the_worker(
    mesh: RelayMesh, schema: dict[str, Any], value: Any
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, definition("look", {"type": "object", **schema}))
    under_way = calling(ada, bob, arguments={"a": value})
    await worker.answer(await worker.call())
    assert (await under_way).result_json == '"ok"'


@pytest.mark.parametrize("schema", [BOMB, ENDLESS], ids=["bomb", "endless"])
async def test_a_schema_that_would_take_for_ever_is_left_to_the_worker(
    mesh: RelayMesh, schema: dict[str, Any]
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, definition("look", schema))
    under_way = calling(ada, bob, arguments={"a": 1})
    await worker.answer(await worker.call())
    assert (await under_way).result_json == '"ok"'


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [{"n": n} for n in range(5000)]}),
        ({"properties": {"a": {"items": {"type": "integer"}}}}, {"a": ["x"] * 30_000}),
        (BOMB, {"a": 1}),
        ({"properties": {"a": {"enum": ["x" * 1000] * 15}}}, {"a": "x" * 60_000}),
    ],
    ids=["unique", "items", "bomb", "enum"],
)
def test_no_check_takes_long_whatever_the_schema(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    text = tool_schemas._text(schema)
    tool_schemas.misfit(text, {})
    began = time.process_time()
    tool_schemas.misfit(text, arguments)
    # A bound on work, not on speed: without limits these take minutes or never end.
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("schema", "arguments", "problem"),
    [
        (CITY, {"city": "Oslo"}, None),
        (CITY, {"city": "Oslo", "more": 1}, None),
        (CITY, {}, ("arguments", "'city' is a required property")),
        (CITY, {"city": 5}, ("arguments.city", "5 is not of type 'string'")),
        (
            {"properties": {"a": {"items": {"minimum": 3}}}},
            {"a": [5, 2]},
            ("arguments.a[1]", "2 is less than the minimum of 3"),
        ),
        ({"properties": {"n": {"type": "integer"}}}, {"n": 1.0}, None),
        ({"additionalProperties": False}, {"x": 1}, ("arguments", "Additional properties")),
        ({"properties": {"$ref": {"type": "string"}}}, {"$ref": "x"}, None),
        # What the library cannot do is left to the worker.
        ({"properties": {"n": {"multipleOf": 0.5}}}, {"n": 10**400}, None),
        (
            {
                "properties": {"a": {"$ref": "#/$defs/x"}},
                "$defs": {"x": {"$id": "urn:y", "$ref": "#/$defs/x"}},
            },
            {"a": 1},
            None,
        ),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "required": ["a"]}, {}, ("arguments", "'a'")),
    ],
)
def test_arguments_are_checked_by_the_schema(
    schema: dict[str, Any], arguments: dict[str, Any], problem: tuple[str, str] | None
) -> None:
    found = tool_schemas.misfit(tool_schemas._text(schema), arguments)
    if problem is None:
        assert found is None
    else:
        assert found is not None
        assert (found[0], found[1][: len(problem[1])]) == problem


async def test_a_refusal_of_long_arguments_is_short(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await worker_of(bob, definition("look", CITY))
    error = await refusal(call_tool(ada, bob, arguments={"city": [0] * 20_000}))
    assert error.reason == "invalid_argument"
    assert len(error.message) < 400
