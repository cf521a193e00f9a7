"""`tools/call` over streamable HTTP, as clients of both eras post it, from aiohttp: it costs little."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
from mcp.types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from tests.bench.load.serve import closed_loop, configuration, run, serve
from tests.bench.load.unary import TEXT

LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"


def body(era: str, tool: str, arguments: Mapping[str, Any]) -> bytes:
    """Return the JSON-RPC request that calls a tool."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if era == MODERN:
        params["_meta"] = {
            PROTOCOL_VERSION_META_KEY: MODERN,
            CLIENT_CAPABILITIES_META_KEY: {},
            CLIENT_INFO_META_KEY: {"name": "bench", "version": "1"},
        }
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def headers(era: str, tool: str, token: str) -> dict[str, str]:
    """Return what goes with it."""
    found = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": era,
    }
    if era == MODERN:
        found |= {"Mcp-Method": "tools/call", "Mcp-Name": tool}
    return found | ({"Authorization": f"Bearer {token}"} if token else {})


class Posts:
    """The prepared requests of every agent: `[url, body, headers]` for each era."""

    def __init__(self, http: aiohttp.ClientSession, config: Mapping[str, Any]) -> None:
        self._http = http
        self._config = config
        self._url = config["url"]

    async def play(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Play one round of one era."""
        era = {"legacy": LEGACY, "modern": MODERN}[request["era"]]
        tool: str = self._config["tool"]
        prepared = [
            (body(era, tool, {**agent["arguments"], "text": TEXT}), headers(era, tool, agent["token"]))
            for agent in self._config["agents"]
        ]

        async def post(number: int) -> None:
            content, head = prepared[number % len(prepared)]
            async with self._http.post(self._url, data=content, headers=head) as response:
                answer = await response.json()
            if response.status != 200 or "result" not in answer or answer["result"].get("isError"):
                raise RuntimeError(f"status {response.status}: {answer}")

        return await closed_loop(post, request["outstanding"], request["seconds"])


async def main() -> None:
    config = configuration()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        await serve(Posts(http, config).play)


if __name__ == "__main__":
    run(main)
