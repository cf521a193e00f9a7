"""A few rounds of what `make faults` plays at length."""

from __future__ import annotations

from tests.chaos.playing import play


async def test_whatever_befalls_a_part_callers_were_told_the_truth_and_all_comes_to_rest() -> None:
    lines: list[str] = []
    played = await play(11, 5, lines.append)
    assert played.wrong == [], f"make faults SEED={played.seed} ROUNDS=5\n" + "\n".join(lines)
    assert played.rounds == 5
    assert played.told.total() > 50
