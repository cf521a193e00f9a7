"""Installing a plugin, or giving it a new version, by its file: shown first, and then done just so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hopline.registry.v1 import plugin_pb2 as pb
from hopline_files.plugin_file import PluginFile, read_plugin
from hopline_rpc.errors import HoplineError
from starlette.responses import Response
from starlette.routing import Route

from hopline_console import uploads
from hopline_console.blocks import Ask, Block, Cell, Code, Facts, Link, Links, Note, Secret, Table
from hopline_console.context import ConsoleContext
from hopline_console.forms import Field, Filled, Form
from hopline_console.visit import Visit, routed
from hopline_console.words import OPERATOR

_NAME: Final = Path("plugin.yaml")
_TOO_LONG: Final = "is longer than 180 KiB: use `hopline plugin install FILE` or `hopline plugin update`"
_FIELDS: Final = (
    Field("file", "File", "file", "A plugin.yaml of at most 180 KiB, as `hopline plugin install` takes it."),
    uploads.TEXT,
)
_INSTALL: Final = "/plugins/install"
_SHOWN: Final = (
    "Its token proves the plugin to the mesh. It is shown this one time, and stored nowhere: copy it now."
)
_PROVES: Final = (
    "By it the mesh proves itself to the plugin's endpoint. It is shown this one time: copy it now."
)


def routes(context: ConsoleContext) -> list[Route]:
    """Return the two steps, of an installation and of a new version."""
    return [
        *routed(context, f"{_INSTALL}/plan", post=plan_installation),
        *routed(context, _INSTALL, post=install),
        *routed(context, "/plugins/{plugin}/update/plan", post=plan_update),
        *routed(context, "/plugins/{plugin}/update", post=update),
    ]


def installing() -> Filled:
    """Return the form for the file of a new plugin."""
    intro = "Nothing is installed before you have seen what it brings and may do."
    form = Form(f"{_INSTALL}/plan", "Install a plugin", "Show what it brings", _FIELDS, intro, folded=True)
    return form.empty()


def updating(plugin_id: str) -> Filled:
    """Return the form for the file of a new version."""
    at, intro = f"/plugins/{plugin_id}/update/plan", "Nothing is changed before you have seen what it brings."
    return Form(at, "A new version", "Show what it brings", _FIELDS, intro, folded=True).empty()


def brings(manifest: pb.PluginManifest) -> list[Block]:
    """Return tables of all that a manifest brings."""
    commands = [
        (f"/{each.name}", f"{each.description} (goes to {each.agent_key})") for each in manifest.commands
    ]
    hooks = [(each.kind, f"order {each.order}, {each.fail_mode or 'fail_open'}") for each in manifest.hooks]
    found: Sequence[tuple[str, Sequence[tuple[str, str]]]] = (
        ("Agents", [(each.key, each.name) for each in manifest.agents]),
        ("Tools", [(f"{manifest.key}__{each.name}", each.description) for each in manifest.tools]),
        ("Skills", [(each.name, each.description) for each in manifest.skills]),
        ("Commands", commands),
        ("Hooks", hooks),
    )
    return [
        Table(title, ("Name", "What it is"), [[Code(name), text] for name, text in rows])
        for title, rows in found
        if rows
    ]


async def _read(text: str) -> PluginFile:
    # Reading a long one takes a while, in which others are served.
    return await asyncio.to_thread(read_plugin, _NAME, text)


async def _planned(visit: Visit, filled: Filled, does: Form, back: Link, old: str = "") -> Response:
    """Show what a file brings, with the form that does it."""
    links = Links("Plugins", [back])
    text = await uploads.text_of(await visit.posted(), filled, _TOO_LONG)

    async def act() -> Response:
        manifest = (await _read(text)).manifest
        facts: list[tuple[str, Cell]] = [
            ("Key", Code(manifest.key)),
            ("Version", f"{manifest.version}, in place of {old}" if old else manifest.version),
            ("Endpoint", Code(manifest.endpoint) if manifest.endpoint else "none: it is never called"),
            ("Provides models", "yes" if manifest.model_provider else "no"),
            ("Permissions", ", ".join(manifest.permissions) or "none"),
        ]
        carrying = Form(
            does.action, does.title, does.submit, intro=does.intro, carries=uploads.carrying(text)
        )
        blocks: list[Block] = [links, Facts("", facts), *brings(manifest), Ask(carrying.empty())]
        return await visit.page(f"{manifest.name}: what it brings", blocks, lead=manifest.description)

    async def again() -> Response:
        return await visit.page("A plugin's file", [links, Ask(filled)], filled=filled)

    return await visit.answer(filled, act, again)


_DOES_INSTALL: Final = Form(
    _INSTALL,
    "Install it",
    "Agree and install",
    intro="By this you agree to all that it asks for. Its token is shown afterwards.",
)


async def plan_installation(visit: Visit) -> Response:
    """Show what a plugin would bring."""
    visit.require(visit.role, OPERATOR)
    filled = installing().form.read(await visit.posted())
    return await _planned(visit, filled, _DOES_INSTALL, Link("All plugins", "/plugins"))


async def install(visit: Visit) -> Response:
    """Install the plugin that was shown, and show its secrets."""
    visit.require(visit.role, OPERATOR)
    posted = await visit.posted()
    text, sent = uploads.carried(posted), _DOES_INSTALL.read(posted)
    filled = _came_along(installing().form, text)
    filled.once = sent.once

    async def act() -> Response:
        read = await _read(text)
        request = pb.InstallPluginRequest(manifest=read.manifest, confirm=True, request_id=sent.once)
        try:
            made = await visit.mesh.plugins.InstallPlugin(request)
        except HoplineError as refusal:
            raise read.with_places(refusal) from None
        blocks: list[Block] = [
            Links("Go on", [Link(f"The plugin {read.manifest.name}", f"/plugins/{made.plugin.id}")])
        ]
        if made.token:
            blocks.append(Secret(f"{read.manifest.name} is installed", "Token", made.token, _SHOWN))
        else:
            blocks.append(Note("It is installed already. What was made for it is not shown again.", "warn"))
        if made.endpoint_secret:
            blocks.append(Secret("The secret of its endpoint", "Secret", made.endpoint_secret, _PROVES))
        return await visit.page("A plugin is installed", blocks)

    async def again() -> Response:
        links = Links("Plugins", [Link("All plugins", "/plugins")])
        return await visit.page("A plugin's file", [links, Ask(filled)], filled=filled)

    return await visit.answer(filled, act, again)


def _came_along(form: Form, text: str) -> Filled:
    filled = form.empty(text=text)
    if not text:
        filled.problem = "The file did not come along; choose it once more."
    return filled


async def _plugin(visit: Visit) -> pb.Plugin:
    return (await visit.mesh.plugins.GetPlugin(pb.GetPluginRequest(plugin=visit.path("plugin")))).plugin


async def plan_update(visit: Visit) -> Response:
    """Show what a new version brings."""
    plugin = await _plugin(visit)
    intro = "By this you agree to all that the new version adds. Agents that it no longer names stay."
    does = Form(f"/plugins/{plugin.id}/update", "Put it in force", "Agree and update", intro=intro)
    filled = updating(plugin.id).form.read(await visit.posted())
    back = Link("Back to the plugin", f"/plugins/{plugin.id}")
    return await _planned(visit, filled, does, back, plugin.manifest.version)


async def update(visit: Visit) -> Response:
    """Give a plugin the version that was shown."""
    plugin = await _plugin(visit)
    text = uploads.carried(await visit.posted())
    filled = _came_along(updating(plugin.id).form, text)

    async def act() -> Response:
        read = await _read(text)
        request = pb.UpdatePluginRequest(plugin=plugin.id, manifest=read.manifest, confirm=True)
        try:
            made = (await visit.mesh.plugins.UpdatePlugin(request)).plugin
        except HoplineError as refusal:
            raise read.with_places(refusal) from None
        return visit.done(f"/plugins/{made.id}", f"{made.manifest.name} {made.manifest.version} is in force.")

    async def again() -> Response:
        links = Links("Plugins", [Link("Back to the plugin", f"/plugins/{plugin.id}")])
        return await visit.page("A plugin's file", [links, Ask(filled)], filled=filled)

    return await visit.answer(filled, act, again)
