"""`hopline up|serve|attach|mcp`: the processes of a mesh."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hopline_cli.verbs import Data

app = typer.Typer()


@app.command("mcp")
def mcp(
    data: Data = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="F", help="File with the agent's token.")
    ] = None,
) -> None:
    """Serve the platform's MCP tools on standard input and output.

    Finds the mesh by HOPLINE_SOCKET, else by HOPLINE_URL and HOPLINE_TOKEN_FILE.
    """
    from hopline_cli.pipe import run

    raise typer.Exit(run(data, token_file))
