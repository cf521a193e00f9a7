"""Sends, durable and with every rail on: unary, over a tunnel, and what tracing costs them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

from tests.bench.mesh import Mesh
from tests.bench.processes import Child
from tests.bench.rig import Rig, agents, interleaved, rounds_of
from tests.bench.rows import Row, row
from tests.bench.served import Served

_SENDERS: Final = 50
_OUTSTANDING: Final = 64
_NO_TRACES: Final = {"OTEL_SDK_DISABLED": "true"}


def kept(ratio: str) -> dict[str, str]:
    """Return the settings that keep this part of all traces."""
    return {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": ratio}


def unary_load(mesh: Mesh, tokens: Mapping[str, str], name: str = "load-unary") -> Child:
    """Start the load of unary calls on a mesh."""
    config = {
        "target": mesh.endpoints["relay"],
        "senders": [tokens[sender] for sender in agents("sender")[:_SENDERS]],
        "recipients": agents("recipient")[:_SENDERS],
    }
    return Child(name, "tests.bench.load.unary", config)


def tunnel_load(rig: Rig) -> Child:
    """Start the load of sends over one tunnel."""
    config = {
        "target": rig.mesh.endpoints["relay"],
        "own_streams": False,
        "callers": rig.tokens_of("sender")[:_SENDERS],
        "recipients": agents("recipient")[:_SENDERS],
    }
    return Child("load-tunnel", "tests.bench.load.host", config)


def sends(rig: Rig) -> list[Row]:
    """Measure `send_unary_embedded` and `send_tunnel_embedded` beside the echo."""
    with unary_load(rig.mesh, rig.tokens) as unary, tunnel_load(rig) as tunnel:
        found = interleaved(
            {
                "echo": rounds_of(rig.echo, call="echo", outstanding=_OUTSTANDING),
                "unary": rounds_of(unary, call="send", outstanding=_OUTSTANDING),
                "tunnel": rounds_of(tunnel, call="send", outstanding=_OUTSTANDING),
            }
        )
    echo = found["echo"]["rate"]
    return [
        row("send_unary_embedded", found["unary"]["rate"], echo),
        row("send_tunnel_embedded", found["tunnel"]["rate"], echo),
    ]


def served(rig: Rig) -> list[Row]:
    """Measure the same unary sends on a mesh of processes and PostgreSQL."""
    with Served("served") as mesh:
        mesh.lift_limits()
        tokens = mesh.create_agents(agents("sender")[:_SENDERS] + agents("recipient")[:_SENDERS])
        with unary_load(mesh, tokens, "load-served") as load:
            found = interleaved(
                {
                    "echo": rounds_of(rig.echo, call="echo", outstanding=_OUTSTANDING),
                    "unary": rounds_of(load, call="send", outstanding=_OUTSTANDING),
                }
            )
    return [row("send_unary_mesh", found["unary"]["rate"], found["echo"]["rate"])]


def trace_cost(rig: Rig) -> list[Row]:
    """Measure the same sends on three meshes that differ in tracing alone."""
    settings: dict[str, dict[str, Any]] = {"off": _NO_TRACES, "100": kept("1.0"), "1": kept("0.01")}
    with ExitStack() as stack:
        plays = {}
        for name, environment in settings.items():
            mesh = stack.enter_context(Mesh(f"trace-{name}", environment))
            mesh.lift_limits()
            tokens = mesh.create_agents(agents("sender")[:_SENDERS] + agents("recipient")[:_SENDERS])
            child = stack.enter_context(unary_load(mesh, tokens, f"load-trace-{name}"))
            plays[name] = rounds_of(child, call="send", outstanding=_OUTSTANDING)
        found = interleaved(plays)
    off = found["off"]["rate"]
    return [row("trace_cost_100", found["100"]["rate"], off), row("trace_cost_1", found["1"]["rate"], off)]


def wake(rig: Rig) -> list[Row]:
    """Measure how long a send takes to reach an agent that waits in its inbox."""
    mesh = rig.mesh
    config = {
        "target": mesh.endpoints["relay"],
        "senders": rig.tokens_of("sender")[:1],
        "recipients": ["reader"],
        "reader": rig.tokens["reader"],
    }
    with Child("load-wake", "tests.bench.load.unary", config) as child:
        found = interleaved(
            {
                "echo": rounds_of(rig.echo, call="echo", outstanding=1),
                "wake": rounds_of(child, call="wake"),
            },
            seconds=1.0,
        )
    return [row("wake", found["wake"]["p50"] * 1000, found["echo"]["p50"] * 1000)]
