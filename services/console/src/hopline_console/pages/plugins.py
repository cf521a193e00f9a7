"""`/plugins`: what is installed, what it may do, what waits to be agreed to."""

from __future__ import annotations

import re
from typing import Final

from hopline.registry.v1 import plugin_pb2 as pb
from hopline_rpc.clock import from_timestamp
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.blocks import (
    Ask,
    Block,
    Cell,
    Code,
    Facts,
    Link,
    Links,
    Moment,
    Note,
    Press,
    Secret,
    Several,
    State,
    Table,
    Tone,
)
from hopline_console.context import ConsoleContext
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE as PAGE
from hopline_console.pages import plugin_files
from hopline_console.visit import Visit, routed
from hopline_console.words import ADMIN, OPERATOR, count, word

# What no version ever is: 0 would agree to whichever waits by now.
_NO_REVISION: Final = 2**63
NAV: Final = (Item("Set up", "Plugins", "/plugins"),)

_TONES: Final[dict[str, Tone]] = {
    "active": "good",
    "awaiting confirmation": "waiting",
    "update waiting": "waiting",
}
_ROTATE: Final = "The plugin must know the new one before the mesh can call it again. It is shown once."


def routes(context: ConsoleContext) -> list[Route]:
    """Return the pages of plugins."""
    return [
        *routed(context, "/plugins", get=show),
        *routed(context, "/plugins/{plugin}", get=show_one),
        *routed(context, "/plugins/{plugin}/confirm", post=confirm),
        *routed(context, "/plugins/{plugin}/decline", post=decline),
        *routed(context, "/plugins/{plugin}/uninstall", post=uninstall),
        *routed(context, "/plugins/{plugin}/secret", post=rotate),
        *plugin_files.routes(context),
    ]


async def show(visit: Visit) -> Response:
    """List the plugins."""
    page = await visit.mesh.plugins.ListPlugins(
        pb.ListPluginsRequest(page_size=PAGE, page_token=visit.asked("page"))
    )
    rows: list[list[Cell]] = [
        [
            Link(each.manifest.name, f"/plugins/{each.id}"),
            Code(each.manifest.key),
            each.manifest.version,
            _state(each),
            count(len(each.manifest.agents), "agent"),
            ", ".join(each.manifest.permissions) or "none",
        ]
        for each in page.plugins
    ]
    columns = ("Plugin", "Key", "Version", "State", "Brings", "Permissions")
    empty = "No plugins."
    table = Table("Plugins", columns, rows, empty, more=page.next_page_token)
    blocks: list[Block] = [Links("More", [Link("Hooks", "/hooks")]), table]
    if visit.role >= OPERATOR:
        blocks.append(Ask(plugin_files.installing()))
    return await visit.page("Plugins", blocks)


def _state(plugin: pb.Plugin) -> State:
    said = word(pb.PluginState.DESCRIPTOR, plugin.state)
    return State(said, _TONES.get(said, "quiet"))


async def _found(visit: Visit) -> pb.Plugin:
    return (await visit.mesh.plugins.GetPlugin(pb.GetPluginRequest(plugin=visit.path("plugin")))).plugin


async def show_one(visit: Visit) -> Response:
    """Show one plugin."""
    plugin = await _found(visit)
    manifest = plugin.manifest
    people = await visit.names_of_people()
    may = visit.role >= ADMIN or plugin.installed_by == visit.person_id
    facts: list[tuple[str, Cell]] = [
        ("State", _state(plugin)),
        ("Key", Code(manifest.key)),
        ("Id", Code(plugin.id)),
        ("Version", manifest.version),
        ("Slugs begin with", Code(plugin.slug_prefix)),
        ("Endpoint", Code(manifest.endpoint) if manifest.endpoint else "none: it is never called"),
        ("Provides models", "yes" if manifest.model_provider else "no"),
        ("Permissions", ", ".join(manifest.permissions) or "none"),
        ("Installed by", people.get(plugin.installed_by, plugin.installed_by)),
        ("Installed", Moment(from_timestamp(plugin.installed_at))),
    ]
    blocks: list[Block] = [Links("Plugins", [Link("All plugins", "/plugins"), Link("Hooks", "/hooks")])]
    blocks += _waiting(plugin, may=may)
    blocks += [Facts("", facts), *plugin_files.brings(manifest)]
    if may:
        blocks += [Facts("What you can do", _acts(plugin)), Ask(plugin_files.updating(plugin.id))]
    return await visit.page(manifest.name, blocks, lead=manifest.description)


def _waiting(plugin: pb.Plugin, *, may: bool) -> list[Block]:
    """Return what is to be agreed to, if anything is."""
    if plugin.state == pb.PLUGIN_STATE_ACTIVE:
        return []
    update = plugin.HasField("waiting")
    revision = plugin.waiting_revision if update else plugin.revision
    asks = ", ".join(plugin.asks) or "nothing"
    what = f"version {plugin.waiting.version}" if update else "its installation"
    said = f"It asks for: {asks}. " + (
        "Until then the old version goes on." if update else "Until then it may do nothing."
    )
    blocks: list[Block] = [Note(said, "warn", f"{what[0].upper()}{what[1:]} waits for an OK")]
    if may:
        at = f"/plugins/{plugin.id}"
        acts: list[Cell] = [Press(f"{at}/confirm", f"Agree to {what}", carries={"revision": str(revision)})]
        if update:
            acts.append(Press(f"{at}/decline", "Decline", f"{what} of {plugin.manifest.name}"))
        blocks.append(Facts("", [("What waits", Several(acts))]))
    return blocks


def _acts(plugin: pb.Plugin) -> list[tuple[str, Cell]]:
    at, name = f"/plugins/{plugin.id}", plugin.manifest.name
    agents = ", ".join(each.name for each in plugin.manifest.agents) or "no agents"
    gone = (
        f"With it go its tokens, with all that they opened, and {agents} with their sessions."
        " This cannot be taken back."
    )
    acts: list[tuple[str, Cell]] = []
    if plugin.manifest.endpoint:
        acts.append(("Replace the secret", Press(f"{at}/secret", "New secret", name, warning=_ROTATE)))
    return [*acts, ("End it", Press(f"{at}/uninstall", "Uninstall", name, warning=gone))]


async def confirm(visit: Visit) -> Response:
    """Agree to what the person has seen, and to nothing newer."""
    posted = await visit.posted()
    revision = str(posted.get("revision", ""))
    said = re.fullmatch("[1-9][0-9]{0,17}", revision) is not None
    request = pb.ConfirmPluginRequest(
        plugin=visit.path("plugin"), revision=int(revision) if said else _NO_REVISION
    )
    made = (await visit.mesh.plugins.ConfirmPlugin(request)).plugin
    return visit.done(f"/plugins/{made.id}", f"{made.manifest.name} {made.manifest.version} is in force.")


async def decline(visit: Visit) -> Response:
    """Drop a version that waits."""
    await visit.posted()
    request = pb.DeclinePluginUpdateRequest(plugin=visit.path("plugin"))
    made = (await visit.mesh.plugins.DeclinePluginUpdate(request)).plugin
    return visit.done(f"/plugins/{made.id}", f"{made.manifest.name} stays at {made.manifest.version}.")


async def uninstall(visit: Visit) -> Response:
    """End a plugin."""
    await visit.posted()
    request = pb.UninstallPluginRequest(plugin=visit.path("plugin"))
    gone = await visit.mesh.plugins.UninstallPlugin(request)
    return visit.done(
        "/plugins", f"The plugin is uninstalled; {count(gone.removed_agents, 'agent')} went with it."
    )


async def rotate(visit: Visit) -> Response:
    """Make a new secret of the endpoint and show it."""
    plugin = await _found(visit)
    with visit.once(await visit.posted()):
        request = pb.RotatePluginSecretRequest(plugin=plugin.id)
        made = await visit.mesh.plugins.RotatePluginSecret(request)
    text = "By it the mesh proves itself to the plugin's endpoint. It is shown this one time: copy it now."
    shown = Secret(f"{plugin.manifest.name} has a new secret", "Secret", made.endpoint_secret, text)
    back = Links("Go on", [Link("Back to the plugin", f"/plugins/{plugin.id}")])
    return await visit.page("A plugin's secret", [shown, back])
