"""The command line as a whole: what there is, and how wrong usage ends."""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException

from hopline_cli.commands import (
    agents,
    audit,
    credit,
    crews,
    database,
    dead,
    doctor,
    exchanges,
    export,
    floor,
    held,
    left,
    look,
    manage,
    models,
    owner,
    plugins,
    root,
    run,
    schedules,
    talk,
    trace,
    verify,
    webhooks,
)
from hopline_cli.output import report
from hopline_cli.verbs import REFUSED, USAGE

_INTERRUPTED = 130
# Where our output goes there is no room.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

app = typer.Typer(
    name="hopline",
    help="Hopline: a self-hosted switchboard for AI agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # hardly ever asked: not read at every start

        print(f"hopline {version('hopline-cli')}")
        raise typer.Exit


@app.callback()
def _whole(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.add_typer(run.app)
app.add_typer(manage.workspace, name="workspace")
app.add_typer(manage.user, name="user")
app.add_typer(manage.role, name="role")
app.add_typer(agents.agent, name="agent")
app.add_typer(crews.crew, name="crew")
app.add_typer(models.model, name="model")
app.add_typer(plugins.plugin, name="plugin")
app.add_typer(manage.token, name="token")
app.add_typer(manage.policy, name="policy")
app.add_typer(credit.app, name="credits")
app.add_typer(root.app, name="root")
app.add_typer(dead.app, name="dead")
app.add_typer(schedules.app, name="schedule")
app.add_typer(webhooks.app, name="webhook")
app.add_typer(talk.app)
app.add_typer(look.app)
app.add_typer(floor.app)
app.add_typer(exchanges.app)
app.add_typer(doctor.app)
look.threads.add_typer(export.threads)
app.add_typer(look.threads, name="threads")
app.add_typer(owner.app)
app.add_typer(held.app)
app.add_typer(left.app)
audit.app.add_typer(verify.app)
audit.app.add_typer(export.audit)
app.add_typer(audit.app, name="audit")
app.add_typer(trace.app)
app.add_typer(database.app, name="db")
app.add_typer(database.moving)


def run_app(arguments: list[str]) -> int:
    """Run a command and return its exit status: 0, 1 when refused or failed, 2 for wrong usage."""
    # What stands behind `--` is somebody else's command line.
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    as_json = "--json" in ours
    try:
        status = app(arguments, prog_name="hopline", standalone_mode=False)
        sys.stdout.flush()
    except TyperException as error:
        if error.format_message().strip():  # nothing to add where the help was shown in place of an error
            report(_usage(error), as_json=as_json)
        return USAGE
    except (Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has had enough; Python would complain once more at its exit.
        sys.stdout = None
        return 0
    except OSError as error:
        if error.errno not in _FULL:
            raise
        text = f"what was written is not whole: {error.strerror}; make room and run it again"
        report(
            {"code": "failed_precondition", "message": text, "retryable": False, "details": {}},
            as_json=as_json,
        )
        sys.stdout = None
        return REFUSED
    return status if isinstance(status, int) else 0


def _usage(error: TyperException) -> dict[str, object]:
    """Say what is wrong with the command line, and where to read how it goes."""
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "hopline"
    message = error.format_message().strip().rstrip(".")
    text = f"{message}; see `{where} --help`"
    return {"code": "invalid_argument", "message": text, "retryable": False, "details": {}}
