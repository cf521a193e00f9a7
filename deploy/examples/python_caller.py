"""A plain Python script as a caller: asks an agent through the official MCP client, as the agent `me`.

The mesh runs (`make up`), and so does what answers (`python_worker.py`):

.venv/bin/python deploy/examples/python_caller.py python "Is two plus two four?"
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from mcp import Client, StdioServerParameters, stdio_client

DATA = os.environ.get("HOPLINE_DATA") or str(Path.home() / ".hopline")
EXAMPLES = Path(__file__).resolve().parent


async def main(token: str, agent: str, text: str) -> None:
    """Ask, and print the answer."""
    hopline = str(EXAMPLES.parents[1] / ".venv" / "bin" / "hopline")
    server = StdioServerParameters(command=hopline, args=["mcp", "--data", DATA, "--token-file", token])
    async with Client(stdio_client(server)) as mesh:
        result = await mesh.call_tool("ask", {"agent": agent, "text": text})
        facts = result.structured_content or {}
        print(facts.get("reply") or facts)


words = [str(EXAMPLES / "agent.sh"), "me"]
token_file = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
asyncio.run(main(token_file, *sys.argv[1:3]))
