"""A worker as a process that a test can kill.

`python -m tests.support.worker_process DATA TOKEN_FILE FOLDER`
A turn that begins leaves the file `TURN_ID.ATTEMPT` in FOLDER, and ends once the file `go` is there.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from hopline_client import Turn, Worker


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    data, token_file, folder = (Path(word) for word in sys.argv[1:])

    async def handle(turn: Turn) -> str:
        (folder / f"{turn.id}.{turn.attempt}").touch()
        while not (folder / "go").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.02)
        return f"{turn.text}, answered at attempt {turn.attempt}"

    Worker(data, handle, token_file=token_file).run_forever()


if __name__ == "__main__":
    main()
