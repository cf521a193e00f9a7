"""The MCP side: `tools/call` over HTTP in both eras, beside an echo tool on the bare SDK."""

from __future__ import annotations

from typing import Final

from tests.bench.processes import Child
from tests.bench.rig import Rig, agents, interleaved, rounds_of
from tests.bench.rows import Row, row

_OUTSTANDING: Final = 32


def load(rig: Rig) -> Child:
    """Start the load of `send_message` by every sender."""
    config = {
        "url": f"{rig.mesh.endpoints['gateway']}/mcp",
        "tool": "send_message",
        "agents": [
            {"token": token, "arguments": {"agent": recipient}}
            for token, recipient in zip(rig.tokens_of("sender"), agents("recipient"), strict=True)
        ],
    }
    return Child("load-mcp", "tests.bench.load.mcp_http", config)


def floor_server() -> Child:
    """Start the echo tool on the bare SDK."""
    return Child("mcp-echo", "tests.bench.floors.mcp_echo", {})


def floor_load(server: Child) -> Child:
    """Start the load on it."""
    bare = {"url": server.ready["url"], "tool": "echo", "agents": [{"token": "", "arguments": {}}]}
    return Child("load-mcp-echo", "tests.bench.load.mcp_http", bare)


def mcp_send(rig: Rig) -> list[Row]:
    """Measure `send_message` for both kinds of client."""
    with floor_server() as server, floor_load(server) as floor, load(rig) as mesh:
        found = interleaved(
            {
                f"{name}_{era}": rounds_of(child, era=era, outstanding=_OUTSTANDING)
                for era in ("legacy", "modern")
                for name, child in (("floor", floor), ("mesh", mesh))
            }
        )
    return [
        row(f"mcp_send_{era}", found[f"mesh_{era}"]["rate"], found[f"floor_{era}"]["rate"])
        for era in ("legacy", "modern")
    ]
