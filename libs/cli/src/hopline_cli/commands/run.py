"""`hopline up|serve|attach|supervise|mcp`: the processes of a mesh."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from hopline_cli.output import Output
from hopline_cli.verbs import AsJson, Data, Workspace, execute

app = typer.Typer()

Single = Annotated[
    str,
    typer.Option(
        "--single",
        metavar="AGENT",
        help="Serve this agent (its slug) alone, at /v1/mcp and /v1/sessions without a slug.",
        show_default=False,
    ),
]


def default_data() -> Path:
    """Return where a local mesh keeps its files unless told otherwise."""
    return Path(os.environ.get("HOPLINE_DATA") or Path.home() / ".hopline")


@app.command("up")
def up(
    data: Data = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings and agents as YAML.", show_default=False),
    ] = None,
    any_port: Annotated[
        bool, typer.Option("--any-port", help="Listen on free ports; endpoints.json says which.")
    ] = False,
    public_url: Annotated[
        str,
        typer.Option(metavar="URL", help="Where the gateway is reached from elsewhere.", show_default=False),
    ] = "",
    single: Single = "",
    as_json: AsJson = False,
) -> None:
    """Run the whole mesh in this process, on SQLite; Ctrl-C drains it."""
    from hopline_cli.running.up import run_up

    folder = (data or default_data()).expanduser().absolute()
    out = Output(as_json=as_json)
    raise typer.Exit(
        execute(
            lambda: run_up(folder, config, any_port=any_port, out=out, public_url=public_url, single=single),
            as_json=as_json,
            quick=True,
        )
    )


@app.command("serve")
def serve(
    name: Annotated[str, typer.Argument(metavar="SERVICE", help="registry, relay, quota or gateway.")],
    bind: Annotated[
        str, typer.Option("--bind", metavar="ADDRESS", help="Where to listen, host:port.", show_default=False)
    ] = "",
    data: Data = None,
    single: Single = "",
    as_json: AsJson = False,
) -> None:
    """Run one service of a mesh; HOPLINE_* variables set it up."""
    from hopline_cli.running.serve import run_serve

    out = Output(as_json=as_json)
    raise typer.Exit(
        execute(
            lambda: run_serve(name, bind=bind, data=data, single=single, out=out), as_json=as_json, quick=True
        )
    )


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


@app.command("attach", context_settings={"allow_interspersed_args": False})
def attach(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND…", help="Run for each turn: prompt in, answer out.")
    ],
    agent: Annotated[str, typer.Option("--agent", metavar="NAME", help="The agent whose turns to run.")],
    max_turns: Annotated[int, typer.Option(min=1, max=1000, help="Turns at once.")] = 8,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="F", help="File with the agent's token.", show_default=False),
    ] = None,
    token_fd: Annotated[
        int | None,
        typer.Option("--token-fd", metavar="N", help="Inherited descriptor with it.", show_default=False),
    ] = None,
    supervisor_fd: Annotated[int | None, typer.Option("--supervisor-fd", hidden=True)] = None,
    data: Data = None,
    workspace: Workspace = None,
    socket_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where sessions' sockets go.", show_default=False)
    ] = None,
    user: Annotated[
        str, typer.Option(metavar="U", help="Run the command as this user (needs root).", show_default=False)
    ] = "",
    prompt: Annotated[
        Literal["fenced", "raw"], typer.Option(help="Text of other agents fenced, or bare.")
    ] = "fenced",
    as_json: AsJson = False,
) -> None:
    """Give an agent a worker: run COMMAND for each of its turns.

    The prompt is COMMAND's standard input, its standard output the answer. `{mcp_config}` and `{prompt}` in
    its words are replaced; a command with `{prompt}` has an empty standard input. It gets a socket of its own
    session, and no credential.
    """
    from hopline_cli.attach.daemon import AttachOptions, run_attach

    out = Output(as_json=as_json)
    options = AttachOptions(
        agent=agent,
        command=tuple(command),
        max_turns=max_turns,
        prompt=prompt,
        token_file=token_file,
        token_fd=token_fd,
        supervisor_fd=supervisor_fd,
        data=data,
        workspace=workspace,
        socket_dir=socket_dir,
        user=user,
    )
    raise typer.Exit(execute(lambda: run_attach(options, out), as_json=as_json))


@app.command("supervise")
def supervise(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="YAML: the agents, and what runs their turns.")
    ],
    data: Data = None,
    workspace: Workspace = None,
    as_json: AsJson = False,
) -> None:
    """Start `hopline attach` for each agent of FILE when it has work, and end it when it has none.

    Runs until it is ended. Finds the mesh like every command; its token must be an admin's of the agents.
    """
    from hopline_cli.supervise.daemon import run_supervise

    out = Output(as_json=as_json)
    raise typer.Exit(execute(lambda: run_supervise(file, data, workspace, out), as_json=as_json))
