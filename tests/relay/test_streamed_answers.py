"""Reply mode `all`: pieces become one text, each part of it once."""

from __future__ import annotations

import pytest
from hopline_relay.domain.writing import Writing
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.text(alphabet="aé😀 ", min_size=1), max_size=8), st.data())
def test_however_often_pieces_are_said_again_the_text_is_written_once(
    pieces: list[str], data: st.DataObject
) -> None:
    whole = "".join(pieces)
    writing, offset = Writing(), 0
    for piece in pieces:
        if data.draw(st.booleans()):
            writing.add(whole[: len(writing.text)], 0)  # a worker that has come back says all of it again
        writing.add(piece, offset)
        offset += len(piece.encode())
    assert writing.text == whole


def test_a_piece_behind_a_gap_and_one_that_cuts_a_character_are_passed_over() -> None:
    writing = Writing("ä")
    assert not writing.add("late", 7)
    assert not writing.add("ä!", 1)
    assert writing.add("ä!", 0)
    assert writing.text == "ä!"


@pytest.mark.parametrize(
    ("written", "answer", "whole"),
    [
        ("", "so", "so"),
        ("one two", "one two", "one two"),
        ("one two\n", "one two", "one two"),
        ("one ", "one two", "one two"),
        ("one two", "", "one two"),
        ("one two", "two", "one two"),
        ("looking it up", "it is so", "looking it up\n\nit is so"),
    ],
)
def test_each_part_of_what_was_written_stands_once_in_the_whole(
    written: str, answer: str, whole: str
) -> None:
    assert Writing(written).final(answer) == whole
