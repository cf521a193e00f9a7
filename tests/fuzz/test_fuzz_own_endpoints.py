"""Agents' own endpoints: whatever a client makes up gets a clean answer, over MCP and in plain JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.budget import inputs
from tests.fuzz.ground import Ground, unlike
from tests.fuzz.jsons import STRANGE, TEXTS, damaged, mutated, written
from tests.fuzz.wire import Door, judged

MCP, SESSIONS = "/peer/v1/mcp", "/peer/v1/sessions"


@pytest.fixture(scope="module")
def door(mesh: Ground) -> Iterator[Door]:
    """A connection that is kept open."""
    found = Door(mesh.gateway)
    yield found
    found.close()


def check(mesh: Ground, door: Door, body: bytes, path: str, **more: str) -> None:
    judged(door.post(body, mesh.headers() | more, path), unlike(body) + str(more))
    mesh.unharmed()


def prompts(mesh: Ground) -> st.SearchStrategy[dict[str, Any]]:
    """Return prompts that are right or nearly so, and wait for nothing."""
    of = {
        "sessionId": st.sampled_from(mesh.known["session_id"]) | TEXTS,
        "request_id": TEXTS | st.uuids().map(str),
    }
    return st.fixed_dictionaries({"message": TEXTS, "waitSeconds": st.just(0)}, optional=of)


@st.composite
def hurried(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> Any:
    """Draw one with things wrong with it, but never one that waits."""
    found = draw(mutated(values))
    inner = found.get("params") if isinstance(found, dict) else None
    held = inner.get("arguments") if isinstance(inner, dict) else found
    if isinstance(held, dict) and (inner is held or not _waits_not(held.get("waitSeconds"))):
        held["waitSeconds"] = 0
    elif isinstance(inner, dict) and not isinstance(held, dict):
        inner["arguments"] = {"waitSeconds": 0}
    return found


def _waits_not(seconds: Any) -> bool:
    return not isinstance(seconds, (int, float)) or seconds <= 0 if seconds is not None else False


@inputs(80)
@given(data=st.data())
def test_calls_with_something_wrong_get_a_clean_answer(mesh: Ground, door: Door, data: st.DataObject) -> None:
    tool = data.draw(st.sampled_from(["ask", "check", "call_tool", "whoami"]))
    of_tools = st.fixed_dictionaries({"name": TEXTS}, optional={"arguments": STRANGE})
    arguments = of_tools if tool == "call_tool" else prompts(mesh)
    params = st.fixed_dictionaries({"name": st.just(tool), "arguments": arguments})
    always = {
        "jsonrpc": st.just("2.0"),
        "id": st.integers(0, 9),
        "method": st.just("tools/call"),
        "params": params,
    }
    check(mesh, door, written(data.draw(hurried(st.fixed_dictionaries(always)))), MCP)


@inputs(80)
@given(data=st.data())
def test_prompts_with_something_wrong_get_a_clean_answer(
    mesh: Ground, door: Door, data: st.DataObject
) -> None:
    key = st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=300)
    more = data.draw(st.fixed_dictionaries({}, optional={"Idempotency-Key": key}))
    check(mesh, door, written(data.draw(hurried(prompts(mesh)))), SESSIONS, **more)


@inputs(40)
@given(data=st.data())
def test_bodies_that_are_hardly_json_get_a_clean_answer(
    mesh: Ground, door: Door, data: st.DataObject
) -> None:
    # Without a word of a message nothing is asked, so that nothing waits.
    bodies = prompts(mesh).map(lambda body: {**body, "message": ""}).map(written)
    check(mesh, door, data.draw(damaged(bodies) | STRANGE.map(written)), SESSIONS)


@inputs(40)
@given(data=st.data())
def test_any_slug_session_and_page_get_a_clean_answer(mesh: Ground, door: Door, data: st.DataObject) -> None:
    word = TEXTS.filter(lambda text: text.isprintable() and len(text) < 300)
    slug = data.draw(st.sampled_from(mesh.known["agent"]) | word)
    session = data.draw(st.sampled_from(mesh.known["session_id"]) | word)
    limit, cursor = data.draw(st.integers(-1, 300) | word), data.draw(word)
    path = f"/{quote(slug, safe='')}/v1/sessions/{quote(session, safe='')}"
    asked = f"{path}?limit={quote(str(limit))}&cursor={quote(cursor)}"
    judged(door.get(asked, mesh.headers()), unlike((slug + session + cursor).encode()))
    mesh.unharmed()
