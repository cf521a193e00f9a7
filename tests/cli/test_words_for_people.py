"""How the command line says what is held."""

from __future__ import annotations

import pytest
from hopline_cli.words import held_for


@pytest.mark.parametrize(
    ("waiting_on", "open_todos", "said"),
    [
        (["ann", "bob"], 0, "held for reports of ann, bob"),
        (["ann"], 1, "held for reports of ann and one open todo"),
        ([], 2, "held for 2 open todos"),
        # The lead is awake with its draft: there need not have been any report.
        ([], 0, "held until its agent has had a last look"),
    ],
)
def test_what_an_answer_is_held_for_is_said_in_a_line(
    waiting_on: list[str], open_todos: int, said: str
) -> None:
    assert held_for({"waiting_on": waiting_on, "open_todos": open_todos}) == said
