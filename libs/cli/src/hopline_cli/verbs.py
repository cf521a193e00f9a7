"""How a command is made of a function: options every command has, the mesh, errors, exit status."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Output, report

if TYPE_CHECKING:
    from hopline_rpc.errors import HoplineError

    from hopline_cli.mesh import Mesh

REFUSED = 1
USAGE = 2

Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Data directory of a local mesh.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Workspace = Annotated[
    str | None,
    typer.Option("--workspace", metavar="W", help="Workspace to act in.", show_default=False),
]
Limit = Annotated[int, typer.Option("--limit", help="At most this many; 0 for all.")]
Cursor = Annotated[
    str, typer.Option("--cursor", metavar="C", help="Go on after an earlier list.", show_default=False)
]

TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="F", help="Write the token here (mode 0600).", show_default=False),
]

Work = Callable[..., Awaitable[None]]


def command(group: typer.Typer, name: str = "") -> Callable[[Work], Work]:
    """Make a command of `async work(mesh, out, ...)`: its further parameters are arguments and options.

    `--data`, `--workspace` and `--json` come with it; refusals of the mesh end it with exit status 1.
    Without a name it is what the group itself does when none of its commands is named.
    """

    def decorate(work: Work) -> Work:
        own = [_resolved(work, each) for each in list(inspect.signature(work).parameters.values())[2:]]

        def run(*, data: Path | None, workspace: str | None, as_json: bool, **given: Any) -> None:
            out = Output(as_json=as_json)
            raise typer.Exit(execute(lambda: _with_mesh(work, data, workspace, out, given), as_json=as_json))

        common = [
            _option("data", Data, None),
            _option("workspace", Workspace, None),
            _option("as_json", AsJson, default=False),
        ]
        parameters = own + common
        setattr(run, "__signature__", inspect.Signature(parameters))  # noqa: B010 - mypy knows no such name
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        if name:
            group.command(name, help=work.__doc__)(run)
        else:
            group.callback(invoke_without_command=True, help=work.__doc__)(_unless_named(run, parameters))
        return work

    return decorate


def _unless_named(run: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """Return a group's own command, which leaves the word to the one that was named."""

    def group(*, context: typer.Context, **given: Any) -> None:
        if context.invoked_subcommand is None:
            run(**given)

    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    setattr(group, "__signature__", inspect.Signature([*parameters, context]))  # noqa: B010 - as above
    group.__annotations__ = {each.name: each.annotation for each in (*parameters, context)}
    return group


def _resolved(work: Work, parameter: inspect.Parameter) -> inspect.Parameter:
    """Evaluate a parameter's annotation; those of the mesh and the output are for type checkers alone."""
    annotation = eval(parameter.annotation, vars(sys.modules[work.__module__]))  # noqa: S307 - our own source
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation)


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


async def _with_mesh(work: Work, data: Path | None, workspace: str | None, out: Output, given: Any) -> None:
    from hopline_cli.mesh import find

    mesh: Mesh = await find(data, workspace)
    try:
        await work(mesh, out, **given)
    finally:
        await mesh.close()


def execute(work: Callable[[], Coroutine[Any, Any, None]], *, as_json: bool, quick: bool = False) -> int:
    """Run a command's work to its end and return the exit status; a refusal is printed on one line.

    With `quick` on the event loop that is worth its import in a process that stays.
    """
    from hopline_rpc.errors import HoplineError

    try:
        with asyncio.Runner(loop_factory=_quick_loop if quick else None) as runner:
            runner.run(work())
    except HoplineError as error:
        report(_advised(error), as_json=as_json)
        return REFUSED
    return 0


def _quick_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _advised(error: HoplineError) -> HoplineError:
    """Add what to do where the mesh itself could not say it."""
    from hopline_rpc.errors import HoplineError

    if error.reason == "unavailable" and error.message == "the service cannot be reached just now":
        text = (
            "the mesh does not answer: start it with `hopline up`, or check HOPLINE_URL,"
            " and HOPLINE_TLS_* where it speaks TLS"
        )
        return HoplineError(error.reason, text, details=error.details, retry_after=error.retry_after)
    if error.reason == "unauthenticated":
        text = f"{error.message}: the token may be revoked or expired (`hopline token create` makes another)"
        return HoplineError(error.reason, text, details=error.details)
    return error


def text_or_file(value: str | None, option: str) -> str | None:
    """Return an option's text; `@FILE` stands for what is in the file, `-` for standard input."""
    if value is None:
        return None
    if value == "-":
        return sys.stdin.read()
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{value[1:]} cannot be read: {why(error)}", param_hint=option) from None


def why(error: OSError | UnicodeDecodeError) -> str:
    """Say why a file could not be read or written, in words for people."""
    if isinstance(error, OSError):
        return error.strerror or "it cannot be reached"
    return "it is not text in UTF-8"
