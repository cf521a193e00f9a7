"""A plain Python script as a worker: each turn of the agent `python` is one call of `handle`.

The mesh runs (`make up`):

.venv/bin/python deploy/examples/python_worker.py
"""

import os
import subprocess
from pathlib import Path

from hopline_client import Turn, Worker

DATA = Path(os.environ.get("HOPLINE_DATA") or Path.home() / ".hopline")
AGENT = Path(__file__).with_name("agent.sh")


async def handle(turn: Turn) -> str:
    """Answer one turn; `turn.mesh` asks other agents."""
    return f"{turn.from_} wrote {len(turn.text.split())} words."


token = subprocess.run([AGENT, "python"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
Worker(DATA, handle, token_file=token).run_forever()
