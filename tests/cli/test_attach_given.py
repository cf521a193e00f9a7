"""Credentials that come by descriptor: read once and closed, and fresh ones from a supervisor."""

from __future__ import annotations

import asyncio
import os

import pytest
from hopline_cli.attach import given
from hopline_cli.attach.given import GivenToken, read_once
from hopline_rpc.errors import HoplineError


def pipe_with(data: bytes) -> int:
    """Return the reading end of a pipe that holds this and no more."""
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    return reader


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("data", [b"token", b"token\n", b" token \r\n", b"token\nand more"])
def test_the_token_is_read_once_and_the_descriptor_closed(data: bytes) -> None:
    descriptor = pipe_with(data)
    os.set_inheritable(descriptor, True)
    assert read_once(descriptor) == "token"
    assert not is_open(descriptor)


def test_a_writer_that_stays_does_not_hold_it_up() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"token\n")
    assert read_once(reader) == "token"
    os.close(writer)


@pytest.mark.parametrize("data", [b"", b"\n", b"two words\n", b"\xff\xfe\n", b"x y" * 2000])
def test_what_is_no_token_is_refused_and_not_shown(data: bytes) -> None:
    descriptor = pipe_with(data)
    with pytest.raises(HoplineError, match=f"descriptor {descriptor} does not hold a token") as refused:
        read_once(descriptor)
    assert refused.value.reason == "unauthenticated"
    assert not is_open(descriptor)


def test_a_descriptor_that_is_not_open_is_named() -> None:
    with pytest.raises(HoplineError, match="descriptor 9999 cannot be read"):
        read_once(9999)


@pytest.mark.parametrize("descriptor", [-1, 0, 1, 2])
def test_the_standard_ones_are_not_for_this(descriptor: int) -> None:
    with pytest.raises(HoplineError, match="hand the token over on another one"):
        read_once(descriptor)
    assert descriptor < 0 or is_open(descriptor)


def test_one_that_says_nothing_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "_SECONDS", 0.0)
    reader, writer = os.pipe()
    with pytest.raises(HoplineError, match="gave no token"):
        read_once(reader)
    os.close(writer)


async def test_a_supervisor_gives_fresh_tokens_and_its_end_is_told_once() -> None:
    token = GivenToken("t1")
    reader, writer = os.pipe()
    gone = asyncio.Event()
    stop = token.follow(reader, gone.set)
    assert not os.get_inheritable(reader)
    assert await token.current() == "t1"
    for piece in (b"t", b"2\nt3", b"\n\nt4 unfinished"):
        os.write(writer, piece)
        assert not gone.is_set()
    os.close(writer)
    await gone.wait()
    assert await token.current() == "t3"
    stop()
    assert not is_open(reader)
