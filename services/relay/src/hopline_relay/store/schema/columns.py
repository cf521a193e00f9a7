"""What all tables are made of: their columns, and the states that indexes cover."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Integer, MetaData, String, Text, literal_column

metadata = MetaData()

# Written out where an index covers only rows in that state: a bound value would not match its condition.
# Such an index holds the state as well, or the planner would take a longer one that begins alike.
QUEUED = literal_column("'queued'", String)
RUNNING = literal_column("'running'", String)
OPEN = literal_column("'open'", String)
LIVE = literal_column("'live'", String)
CLOSING = literal_column("'closing'", String)
PENDING = literal_column("'pending'", String)
DEAD = literal_column("'dead'", String)
EMPTY = literal_column("''", String)
WAKE = literal_column("'wake'", String)


def id_column(name: str, **more: Any) -> Column[str]:
    """Return a column that always has a value."""
    return Column(name, String, nullable=False, **more)


def key_column(name: str) -> Column[str]:
    """Return a column of the primary key."""
    return Column(name, String, primary_key=True, nullable=False)


def text_column(name: str) -> Column[str]:
    """Return a text that is empty unless it was given."""
    return Column(name, Text, nullable=False, server_default="")


def number_column(name: str) -> Column[int]:
    """Return a number that is 0 unless it was given."""
    return Column(name, Integer, nullable=False, server_default="0")
