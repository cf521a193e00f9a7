"""`POST /mcp`: whatever a client makes up gets a clean answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.budget import inputs
from tests.fuzz.envelopes import MODERN, calls, headers
from tests.fuzz.ground import Ground, unlike
from tests.fuzz.jsons import STRANGE, damaged, written
from tests.fuzz.wire import Door, judged


@pytest.fixture(scope="module")
def door(mesh: Ground) -> Iterator[Door]:
    """A connection that is kept open."""
    found = Door(mesh.gateway)
    yield found
    found.close()


def check(mesh: Ground, door: Door, body: bytes, more: dict[str, str]) -> None:
    asked = unlike(body) + str(more)
    judged(door.post(body, mesh.headers() | more), asked)
    mesh.unharmed()


@inputs(100)
@given(data=st.data())
def test_calls_with_something_wrong_get_a_clean_answer(mesh: Ground, door: Door, data: st.DataObject) -> None:
    check(mesh, door, written(data.draw(calls(mesh.known))), {})


@inputs(100)
@given(data=st.data())
def test_calls_of_the_modern_era_get_a_clean_answer(mesh: Ground, door: Door, data: st.DataObject) -> None:
    envelope = data.draw(calls(mesh.known, modern=True))
    method, params = envelope.get("method"), envelope.get("params")
    name = params.get("name") if isinstance(params, dict) else None
    more = {"MCP-Protocol-Version": MODERN}
    if isinstance(method, str) and method.isascii() and method.isprintable():
        more["Mcp-Method"] = method
    if isinstance(name, str) and name.isascii() and name.isprintable():
        more["Mcp-Name"] = name
    check(mesh, door, written(envelope), more)


@inputs(70)
@given(data=st.data())
def test_any_headers_get_a_clean_answer(mesh: Ground, door: Door, data: st.DataObject) -> None:
    modern = data.draw(st.booleans())
    body = written(data.draw(calls(mesh.known, modern=modern, most=0)))
    check(mesh, door, body, data.draw(headers(mesh.known)))


@inputs(70)
@given(data=st.data())
def test_bodies_that_are_hardly_json_get_a_clean_answer(
    mesh: Ground, door: Door, data: st.DataObject
) -> None:
    bodies = calls(mesh.known, most=0).filter(lambda call: "wait_seconds" not in str(call)).map(written)
    check(mesh, door, data.draw(damaged(bodies)), {})


@inputs(50)
@given(data=st.data())
def test_batches_and_bare_values_get_a_clean_answer(mesh: Ground, door: Door, data: st.DataObject) -> None:
    batch = st.lists(calls(mesh.known), max_size=5)
    check(mesh, door, written(data.draw(batch | STRANGE)), {})
