"""`hopline todos` and `hopline timers`: what they print, and how they end."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest
from hopline_client import Mesh

from tests.cli.conftest import Run


@pytest.fixture
def left(hopline: Run, mesh_data: Path) -> tuple[str, str, str]:
    """A session of an agent that has left a todo and a timer to itself, and their ids."""
    made = hopline("agent", "create", f"agent-{uuid.uuid4().hex[:8]}").json

    async def leave() -> tuple[str, str, str]:
        async with Mesh(mesh_data, token=made["token"]) as mesh:
            (todo,) = await mesh.add_todos("read the logs")
            return todo.session_id, todo.id, (await mesh.notify_in(3600, "is it green?")).id

    return asyncio.run(leave())


def test_todos_of_a_session_are_listed_and_removed(
    hopline: Run, plain: Run, left: tuple[str, str, str]
) -> None:
    session, todo, _ = left
    (listed,) = hopline("todos", session).json["todos"]
    assert (listed["id"], listed["text"], listed["state"]) == (todo, "read the logs", "open")
    assert "read the logs" in plain("todos", session).out
    assert hopline("todos", session, "--remove", todo).json == {"id": todo, "removed": True}
    assert hopline("todos", session, "--all").json["todos"] == []
    gone = hopline("todos", session, "--remove", todo)
    assert (gone.status, gone.error["code"]) == (1, "not_found")


def test_timers_of_a_session_are_listed_and_called_off(
    hopline: Run, plain: Run, left: tuple[str, str, str]
) -> None:
    session, _, timer = left
    (listed,) = hopline("timers", session).json["timers"]
    assert (listed["id"], listed["message"]) == (timer, "is it green?")
    assert "is it green?" in plain("timers", session).out
    assert hopline("timers", session, "--cancel", timer).json == {"id": timer, "canceled": True}
    assert hopline("timers", session).json["timers"] == []


def test_a_session_that_is_not_there_is_said(hopline: Run) -> None:
    for command in ("todos", "timers"):
        refused = hopline(command, "ses_none")
        assert (refused.status, refused.error["code"]) == (1, "not_found")
