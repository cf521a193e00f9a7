"""Agent → agent → answer, beside AutoGen's in-memory runtime where it is installed, else beside the echo."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from tests.bench.measures.peers import autogen
from tests.bench.processes import Child
from tests.bench.rig import Play, Rig, agents, interleaved, rounds_of
from tests.bench.rows import AUTOGEN_OF_ECHO, AUTOGEN_OF_ECHO_C1, KINDS, Row, Target, row

_OUTSTANDING: Final = 64


def crowd(rig: Rig, name: str, *, own_streams: bool) -> Child:
    """Start the load of asks, on one stream or with one for each agent."""
    config = {
        "target": rig.mesh.endpoints["relay"],
        "own_streams": own_streams,
        "callers": rig.tokens_of("asker"),
        "workers": rig.tokens_of("worker"),
        "recipients": agents("worker"),
    }
    return Child(name, "tests.bench.load.host", config)


def asks(rig: Rig) -> list[Row]:
    """Measure the three `ask_*` rows and, with the peers, AutoGen itself."""
    with ExitStack() as stack:
        peer = stack.enter_context(autogen()) if rig.peers else None
        floor = {"call": "echo"} if peer is None else {}
        beside = peer or rig.echo
        plays: dict[str, Play] = {
            "floor": rounds_of(beside, outstanding=_OUTSTANDING, **floor),
            "floor_c1": rounds_of(beside, outstanding=1, **floor),
        }
        # An agent that attaches a second time takes its turns to the new stream: one crowd at a time.
        with crowd(rig, "load-asks", own_streams=False) as asking:
            one = interleaved(
                plays
                | {
                    "ask_one_stream": rounds_of(asking, call="ask", outstanding=_OUTSTANDING),
                    "ask_c1": rounds_of(asking, call="ask", outstanding=1),
                }
            )
        with crowd(rig, "load-asks-own", own_streams=True) as asking:
            play = rounds_of(asking, call="ask", outstanding=_OUTSTANDING)
            own = interleaved({"floor": plays["floor"], "ask_own_streams": play})
    of_echo = (1.0, 1.0) if peer is not None else (AUTOGEN_OF_ECHO, AUTOGEN_OF_ECHO_C1)
    rows = [
        _row("ask_one_stream", one["ask_one_stream"]["rate"], one["floor"]["rate"], of_echo[0]),
        _row("ask_own_streams", own["ask_own_streams"]["rate"], own["floor"]["rate"], of_echo[0]),
        _row("ask_c1", one["ask_c1"]["rate"], one["floor_c1"]["rate"], of_echo[1]),
    ]
    if peer is not None:
        rows += [row("peer_autogen", one["floor"]["rate"]), row("peer_autogen_c1", one["floor_c1"]["rate"])]
    return rows


def _row(name: str, value: float, floor: float, of_floor: float) -> Row:
    target = KINDS[name].target
    assert target is not None
    return row(name, value, floor, Target(target.sign, round(target.bound * of_floor, 2)))
