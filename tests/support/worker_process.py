"""A worker as a process that a test can kill.

`python -m tests.support.worker_process DATA TOKEN_FILE FOLDER`
A turn that begins leaves the file `TURN_ID.ATTEMPT` in FOLDER, and ends once the file `go` is there. So does
a call of its tool `hold`, with the file `TURN_ID.tool`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from hopline_client import ToolContext, Turn, Worker


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    data, token_file, folder = (Path(word) for word in sys.argv[1:])

    async def allowed() -> None:
        while not (folder / "go").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.02)

    async def handle(turn: Turn) -> str:
        (folder / f"{turn.id}.{turn.attempt}").touch()
        await allowed()
        return f"{turn.text}, answered at attempt {turn.attempt}"

    async def hold(text: str, context: ToolContext) -> str:
        (folder / f"{context.turn_id}.tool").touch()
        await allowed()
        return text.upper()

    Worker(data, handle, token_file=token_file, tools=[hold]).run_forever()


if __name__ == "__main__":
    main()
