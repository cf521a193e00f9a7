"""Statements that are compiled once: lists of any length find what they name, by few texts."""

from __future__ import annotations

from hopline_relay.store.sql import Statement
from hopline_store import open_engine
from sqlalchemy import Column, Integer, MetaData, Table, bindparam, select

_numbers = Table("numbers", MetaData(), Column("n", Integer, primary_key=True))
_AMONG = Statement(
    select(_numbers.c.n).where(_numbers.c.n.in_(bindparam("ns", expanding=True))).order_by(_numbers.c.n), "ns"
)


def test_a_list_of_any_length_finds_exactly_what_it_names() -> None:
    engine = open_engine("sqlite://")
    with engine.connect() as connection:
        _numbers.create(connection)
        connection.execute(_numbers.insert(), [{"n": n} for n in range(200)])
        for length in (0, 1, 2, 3, 64, 65, 150):
            wanted = list(range(10, 10 + length))
            assert _AMONG.scalars(connection, {"ns": wanted}) == wanted


def test_lists_of_many_lengths_share_a_few_texts() -> None:
    engine = open_engine("sqlite://")
    texts: set[str] = set()
    with engine.connect() as connection:
        _numbers.create(connection)
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.set_trace_callback(texts.add)
        for length in range(1, 129):
            _AMONG.scalars(connection, {"ns": [0] * length})
    assert len({text.count(",") for text in texts if "SELECT" in text}) == 8
