"""`hopline plugin`: extensions with agents, tools, skills, commands and hooks of their own."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Output
from hopline_cli.secret import save_token, write_private
from hopline_cli.verbs import Cursor, Limit, TokenFile, command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopline_files.plugin_file import PluginFile

    from hopline_cli.mesh import Mesh

plugin = typer.Typer(help="Plugins: what extends the mesh from outside.", no_args_is_help=True)

Ref = Annotated[str, typer.Argument(metavar="PLUGIN", help="The plugin's id or key.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="Its manifest (YAML).")]
Yes = Annotated[bool, typer.Option("--yes", help="Agree to all that it asks for.")]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        "--secret-file",
        metavar="F",
        help="Write the endpoint's secret here (mode 0600).",
        show_default=False,
    ),
]


@command(plugin, "install")
async def install_plugin(
    mesh: Mesh,
    out: Output,
    file: File,
    yes: Yes = False,
    token_file: TokenFile = None,
    secret_file: SecretFile = None,
) -> None:
    """Install a plugin; without --yes it waits until you confirm what it asks for."""
    from hopline.registry.v1 import plugin_pb2 as pb

    from hopline_cli import shapes

    read = _read(file)
    with _placed(read):
        made = await mesh.plugins.InstallPlugin(pb.InstallPluginRequest(manifest=read.manifest, confirm=yes))
    found = {
        **shapes.plugin(made.plugin),
        "adds_agents": made.adds_agents,
        "was_created": made.was_created,
        "token": made.token or None,
        "endpoint_secret": made.endpoint_secret or None,
    }
    if not made.was_created:
        said = f"plugin {found['key']} ({found['id']}) is installed already"
        out.result(found, said, *_waits(found))
        return
    lines = [f"plugin {found['name']} ({found['id']}) installed, version {found['version']}"]
    lines += [_adds(made.adds_agents), *_waits(found), save_token(token_file, made.token)]
    if found["endpoint"]:
        lines.append(_save_secret(secret_file, made.endpoint_secret))
    out.result(found, *lines)


@command(plugin, "confirm")
async def confirm_plugin(
    mesh: Mesh,
    out: Output,
    plugin: Ref,
    revision: Annotated[
        int, typer.Option(metavar="N", min=0, help="Only what was looked at under this number.")
    ] = 0,
) -> None:
    """Agree to what a plugin waits for: its installation, or a new version."""
    from hopline.registry.v1 import plugin_pb2 as pb

    from hopline_cli import shapes

    made = await mesh.plugins.ConfirmPlugin(pb.ConfirmPluginRequest(plugin=plugin, revision=revision))
    found = shapes.plugin(made.plugin)
    out.result(found, f"plugin {found['key']} is active, version {found['version']}")


@command(plugin, "update")
async def update_plugin(
    mesh: Mesh,
    out: Output,
    file: File,
    yes: Yes = False,
) -> None:
    """Give a plugin a new version; one that asks for more waits until you confirm it."""
    from hopline.registry.v1 import plugin_pb2 as pb

    from hopline_cli import shapes

    read = _read(file)
    with _placed(read):
        made = await mesh.plugins.UpdatePlugin(
            pb.UpdatePluginRequest(plugin=read.manifest.key, manifest=read.manifest, confirm=yes)
        )
    retired = list(made.retired_agent_ids)
    found = {**shapes.plugin(made.plugin), "adds_agents": made.adds_agents, "retired_agent_ids": retired}
    if found["waiting"] is None:
        lines = [f"plugin {found['key']} is at version {found['version']}"]
    else:
        lines = [f"version {found['waiting']['version']} of {found['key']} waits; {found['version']} goes on"]
    if made.adds_agents:
        lines.append(_adds(made.adds_agents))
    lines += _waits(found)
    lines += [f"no longer declared: {each}; `hopline agent delete {each}` deletes it" for each in retired]
    out.result(found, *lines)


@command(plugin, "decline")
async def decline_plugin(mesh: Mesh, out: Output, plugin: Ref) -> None:
    """Drop a new version that waits; the old one goes on."""
    from hopline.registry.v1 import plugin_pb2 as pb

    from hopline_cli import shapes

    made = await mesh.plugins.DeclinePluginUpdate(pb.DeclinePluginUpdateRequest(plugin=plugin))
    found = shapes.plugin(made.plugin)
    out.result(found, f"plugin {found['key']} stays at version {found['version']}")


@command(plugin, "uninstall")
async def uninstall_plugin(mesh: Mesh, out: Output, plugin: Ref) -> None:
    """End a plugin: its tokens, its agents and their sessions go."""
    from hopline.registry.v1 import plugin_pb2 as pb

    made = await mesh.plugins.UninstallPlugin(pb.UninstallPluginRequest(plugin=plugin))
    found = {"plugin": plugin, "uninstalled": True, "removed_agents": made.removed_agents}
    out.result(found, f"plugin {plugin} uninstalled; {_agents(made.removed_agents)} went with it")


@command(plugin, "list")
async def list_plugins(mesh: Mesh, out: Output, limit: Limit = 50, cursor: Cursor = "") -> None:
    """List the plugins of the workspace."""
    from hopline.registry.v1 import plugin_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        page = await mesh.plugins.ListPlugins(pb.ListPluginsRequest(page_size=size, page_token=at))
        return [shapes.plugin(each) for each in page.plugins], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    columns = [("KEY", "key"), ("NAME", "name"), ("VERSION", "version"), ("STATE", "state")]
    columns += [("WAITS", "waiting.version"), ("ID", "id"), ("DESCRIPTION", "description")]
    out.rows("plugins", items, columns, rest)


@command(plugin, "show")
async def show_plugin(mesh: Mesh, out: Output, plugin: Ref) -> None:
    """Show a plugin, and what it asks for where something waits."""
    from hopline.registry.v1 import plugin_pb2 as pb

    from hopline_cli import shapes

    found = shapes.plugin((await mesh.plugins.GetPlugin(pb.GetPluginRequest(plugin=plugin))).plugin)
    names = {key: [each["name"] for each in found[key]] for key in ("agents", "tools", "skills", "commands")}
    hooks = [f"{each['kind']} ({each['fail_mode']})" for each in found["hooks"]]
    waiting = found["waiting"]["version"] if found["waiting"] else None
    out.fields(found, {**found, **names, "hooks": hooks, "waiting": waiting})


@command(plugin, "rotate-secret")
async def rotate_secret(mesh: Mesh, out: Output, plugin: Ref, secret_file: SecretFile = None) -> None:
    """Make a new secret by which the mesh proves itself to the plugin's endpoint."""
    from hopline.registry.v1 import plugin_pb2 as pb

    made = await mesh.plugins.RotatePluginSecret(pb.RotatePluginSecretRequest(plugin=plugin))
    found = {"plugin": plugin, "endpoint_secret": made.endpoint_secret}
    out.result(found, f"{plugin} has a new secret", _save_secret(secret_file, made.endpoint_secret))


def _read(path: Path) -> PluginFile:
    from hopline_files.plugin_file import read_plugin

    return read_plugin(path)


@contextmanager
def _placed(read: PluginFile) -> Iterator[None]:
    """Say where in the file stands what the registry refuses."""
    from hopline_rpc.errors import HoplineError

    try:
        yield
    except HoplineError as refusal:
        raise read.with_places(refusal) from None


def _adds(count: int) -> str:
    return f"Adds {_agents(count)}"


def _agents(count: int) -> str:
    return "1 agent" if count == 1 else f"{count} agents"


def _waits(found: dict[str, Any]) -> list[str]:
    """Return what is still to be agreed to, and how."""
    if found["state"] == "active":
        return []
    number = found["waiting_revision"] or found["revision"]
    asked = ", ".join(found["asks"]) or "nothing"
    how = f"hopline plugin confirm {found['key']} --revision {number}"
    return [f"it asks for: {asked}", f"it waits to be confirmed: {how}"]


def _save_secret(path: Path | None, secret: str) -> str:
    """Keep the secret of an endpoint as tokens are kept; it is shown once."""
    shown = f"endpoint secret (shown once): {secret}"
    if path is None:
        return shown
    try:
        write_private(path, secret + "\n")
    except OSError as error:
        return f"{shown}\nit could not be written to {path}: {error.strerror}"
    return f"endpoint secret written to {path}"
