"""`hopline webhook`: addresses under which others give an agent a turn, with a signature."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Json, Output
from hopline_cli.secret import write_private
from hopline_cli.verbs import Cursor, Limit, command

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

app = typer.Typer(help="Incoming webhooks: signed requests that give an agent a turn.", no_args_is_help=True)

Agent = Annotated[str, typer.Argument(metavar="AGENT")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Lower-case letters, digits, - and _.")]
SecretFile = Annotated[
    Path | None,
    typer.Option("--secret-file", metavar="F", help="Write the secret here (mode 0600).", show_default=False),
]


@command(app, "add")
async def add(mesh: Mesh, out: Output, agent: Agent, name: Name, secret_file: SecretFile = None) -> None:
    """Add one and print its secret, this once."""
    from hopline.relay.v1 import webhook_pb2 as pb

    made = await mesh.webhooks.AddWebhook(pb.AddWebhookRequest(agent=agent, name=name))
    found = (await _shown(mesh, made.webhook))[0]
    out.result({**found, "secret": made.secret}, f"POST to {found['url']}", _kept(secret_file, made.secret))


@command(app, "list")
async def list_webhooks(
    mesh: Mesh,
    out: Output,
    agent: Annotated[
        str, typer.Option("--agent", metavar="A", help="Only of this agent.", show_default=False)
    ] = "",
    limit: Limit = 50,
    cursor: Cursor = "",
) -> None:
    """List webhooks, newest first. Needs the role operator on the agent."""
    from hopline.relay.v1 import webhook_pb2 as pb

    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        page = await mesh.webhooks.ListWebhooks(
            pb.ListWebhooksRequest(agent=agent, page_size=size, page_token=at)
        )
        return await _shown(mesh, *page.webhooks), page.next_page_token

    items, rest = await pages(read, limit, cursor)
    columns = [("AGENT", "agent.name"), ("NAME", "name"), ("URL", "url"), ("IN THE NAME OF", "author.name")]
    columns += [("ADDED", "created_at"), ("OLD SECRET UNTIL", "old_until")]
    out.rows("webhooks", items, columns, rest)


@command(app, "rotate")
async def rotate(
    mesh: Mesh,
    out: Output,
    agent: Agent,
    name: Name,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="The old secret ends now, not in 24 h: it has leaked.")
    ] = False,
    secret_file: SecretFile = None,
) -> None:
    """Give it another secret, printed this once; the old one is valid for 24 h more."""
    from hopline.relay.v1 import webhook_pb2 as pb

    request = pb.RotateWebhookRequest(agent=agent, name=name, at_once=at_once)
    made = await mesh.webhooks.RotateWebhook(request)
    found = (await _shown(mesh, made.webhook))[0]
    until = found["old_until"]
    old = f"the old secret is valid until {until}" if until else "the old secret is valid no more"
    out.result({**found, "secret": made.secret}, _kept(secret_file, made.secret), old)


@command(app, "remove")
async def remove(mesh: Mesh, out: Output, agent: Agent, name: Name) -> None:
    """Remove it; its session stays readable."""
    from hopline.relay.v1 import webhook_pb2 as pb

    await mesh.webhooks.RemoveWebhook(pb.RemoveWebhookRequest(agent=agent, name=name))
    out.result({"name": name, "removed": True}, f"webhook {name} removed")


async def _shown(mesh: Mesh, *webhooks: Any) -> list[Json]:
    from hopline_cli import shapes

    there = await mesh.outside()
    return [shapes.webhook(each, there.gateway, single=there.single) for each in webhooks]


def _kept(path: Path | None, secret: str) -> str:
    """Write a secret to a file, and return the line that tells a person where it is; else the secret."""
    shown = f"secret (shown once): {secret}"
    if path is None:
        return shown
    try:
        write_private(path, secret + "\n")
    except OSError as error:
        return f"{shown}\nit could not be written to {path}: {error.strerror}"
    return f"secret written to {path}"
