"""Whether calls get slower as the record grows: a mesh with much of everything beside one with little.

The much is made of the little: messages go through the mesh once, workers answer them, and then the rows
that this left are multiplied in SQL, two days back, with ids of their own.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from hopline_relay.store.schema import audit_events, audit_seals, heads, messages
from hopline_relay.store.schema import metadata as relay_tables
from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    String,
    Table,
    case,
    cast,
    create_engine,
    func,
    insert,
    literal,
    select,
    text,
    true,
    update,
)
from sqlalchemy.sql.elements import KeyedColumnElement

from tests.bench.mesh import Mesh
from tests.bench.processes import BenchError, Child
from tests.bench.rig import Play, Rig, interleaved, rounds_of
from tests.bench.rows import Row, row

_TALKERS: Final = 50
_FILL_SECONDS: Final = 0.1
_FEW_MESSAGES: Final = 1_000
_MANY_MESSAGES: Final = 1_000_000
_FEW_AGENTS: Final = 100
_MANY_AGENTS: Final = 10_000
_BACK_SECONDS: Final = 2 * 86_400
_DAY: Final = "2000-01-01"
_SEAL_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 0.5
_DATABASE: Final = "relay.db"
_RECORD: Final = ("threads", "participants", "messages", "deliveries", "turns", "debts", "audit_events")
_INDEXES: Final = text("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
# Columns that tell the copies apart; agents, sessions and the workspace stay what they are.
_IDS: Final = frozenset(
    {"id", "message_id", "thread_id", "turn_id", "from_turn_id", "parent_turn_id", "in_reply_to", "root_id"}
    | {"creditor_turn_id", "reply_message_id"}
)
_TIMES: Final = frozenset({"created_at", "started_at", "ended_at", "last_at", "deadline_at", "at"})


def growth(rig: Rig) -> list[Row]:
    """Measure the four calls on both meshes."""
    with ExitStack() as stack:
        plays: dict[str, Play] = {}
        for name, agents, multiplied in (("small", _FEW_AGENTS, False), ("large", _MANY_AGENTS, True)):
            tokens = _filled(name, agents, multiplied=multiplied)
            mesh = stack.enter_context(Mesh(f"growth-{name}", fresh=False))
            _wait_until_sealed(mesh.data / _DATABASE)
            reader = list(tokens)[-1]
            config = {
                "relay": mesh.endpoints["relay"],
                "registry": mesh.endpoints["registry"],
                "sender": tokens["agent-0"],
                "reader": tokens[reader],
                "to": reader,
            }
            probe = stack.enter_context(Child(f"probe-{name}", "tests.bench.load.probe", config))
            plays[name] = rounds_of(probe)
        found = interleaved(plays)
    return [
        row(f"growth_{call}", found["large"][call] * 1000, found["small"][call] * 1000)
        for call in ("send", "inbox", "threads", "agents")
    ]


def _filled(name: str, agents: int, *, multiplied: bool) -> dict[str, str]:
    """Make a data directory with a history and return the agents' tokens."""
    with Mesh(f"growth-{name}") as mesh:
        mesh.lift_limits()
        tokens = mesh.create_agents([f"agent-{number}" for number in range(agents)])
        listed = list(tokens)
        config = {
            "target": mesh.endpoints["relay"],
            "own_streams": False,
            "callers": [tokens[agent] for agent in listed[:_TALKERS]],
            "workers": [tokens[agent] for agent in listed[-_TALKERS:]],
            "recipients": listed[-_TALKERS:],
        }
        with Child(f"load-{name}", "tests.bench.load.host", config) as crowd:
            asked = 0  # each ask is two messages
            while asked < _FEW_MESSAGES // 2:
                asked += crowd.ask({"call": "ask", "outstanding": _TALKERS, "seconds": _FILL_SECONDS})[
                    "calls"
                ]
    if multiplied:
        _multiply(mesh.data / _DATABASE)
    return tokens


def _wait_until_sealed(database: Path) -> None:
    """Let the audit log of the copies be sealed first: no mesh in use has a million events before it."""
    engine = create_engine(f"sqlite:///file:{database}?mode=ro&uri=true")
    give_up = time.monotonic() + _SEAL_SECONDS
    while True:
        with engine.connect() as connection:
            sealed = connection.execute(select(func.max(audit_seals.c.last_seq))).scalar()
            written = connection.execute(select(func.max(heads.c.audit_seq))).scalar()
        if sealed == written:
            break
        if time.monotonic() > give_up:
            raise BenchError(f"only {sealed} of {written} events were sealed within {_SEAL_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)
    engine.dispose()


def _multiply(database: Path) -> None:
    engine = create_engine(f"sqlite:///{database}")
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA synchronous = OFF")
        connection.exec_driver_sql("PRAGMA cache_size = -1000000")
        there: int = connection.execute(select(func.count()).select_from(messages)).scalar_one()
        copies = _MANY_MESSAGES // there
        shift: int = connection.execute(select(func.max(heads.c.ordinal))).scalar_one()
        # What the log says of the agents is not multiplied.
        said = audit_events.c.action == "message.sent"
        before = connection.execute(select(func.min(audit_events.c.seq)).where(said)).scalar_one() - 1
        events: int = connection.execute(select(func.max(heads.c.audit_seq))).scalar_one() - before
        # Built over what is there in one go, an index costs a fraction of what it costs row by row.
        indexes = connection.execute(_INDEXES).all()
        for index, _ in indexes:
            connection.exec_driver_sql(f"DROP INDEX {index}")
        for name in _RECORD:
            _multiply_table(connection, relay_tables.tables[name], copies, shift, (before, events))
        for _, statement in indexes:
            connection.exec_driver_sql(statement)
        grown = {"ordinal": shift * (copies + 1), "audit_seq": before + events * (copies + 1)}
        connection.execute(update(heads).values(grown))
        connection.commit()
    engine.dispose()


def _multiply_table(
    connection: Connection, table: Table, copies: int, shift: int, log: tuple[int, int]
) -> None:
    series = select(literal(1).label("n")).cte("copies", recursive=True)
    series = series.union_all(select(series.c.n + 1).where(series.c.n < copies))
    shifts = {"ordinal": shift, "last_ordinal": shift}
    source: FromClause = table
    if table.name == "audit_events":
        before, shifts["seq"] = log
        source = select(table).where(table.c.seq > before).subquery()

    def copied(column: KeyedColumnElement[Any]) -> ColumnElement[Any]:
        if column.name in shifts:
            return column + series.c.n * shifts[column.name]
        if column.name in _TIMES:
            return column - _BACK_SECONDS
        if column.name == "day":
            return literal(_DAY)
        if column.name in _IDS:
            return case((column == "", ""), else_=column + "-" + cast(series.c.n, String))
        return column

    rows = select(*(copied(column) for column in source.columns)).select_from(series.join(source, true()))
    connection.execute(insert(table).from_select([column.name for column in table.columns], rows))
