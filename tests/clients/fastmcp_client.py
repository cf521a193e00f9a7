"""The client of `fastmcp`: lists the tools of a server, calls one, and prints both as JSON.

`fastmcp_client.py URL REVISION TOOL ARGUMENTS`, with the token in the environment variable TOKEN. A process
of its own, because it changes the SDK that the tests use.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from fastmcp import Client


async def main(url: str, revision: str, name: str, given: str) -> None:
    """List, call, print."""
    async with Client(url, auth=os.environ["TOKEN"], mode=revision) as client:
        tools = await client.list_tools()
        result = await client.call_tool_mcp(name, json.loads(given))
    found = {
        "tools": [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools],
        "result": result.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
