"""At every door, for everything that can be named: what is hidden answers like what never existed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.opaque import questions
from tests.opaque.hidden import Asker

DOORS = [
    questions.over_grpc,
    questions.over_http,
    questions.over_own_endpoints,
    questions.over_stdio,
    questions.over_tunnel,
]


def test_whatever_a_method_or_a_tool_can_name_is_asked_for() -> None:
    assert questions.unasked() == []


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_whatever_hides_it_the_whole_answer_is_the_same(asker: Asker, door: Any) -> None:
    different = []
    async with door(asker) as found:
        for question in found:
            answers = await question.answers()
            if len(set(answers.values())) > 1:
                different.append((question.name, answers))
    assert different == []
    assert len(found) > 10
