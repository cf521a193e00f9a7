"""`hopline agent`: the agents of a workspace and their definitions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.commands.connecting import Connect, Disconnect, connections, shown
from hopline_cli.commands.models import told_to_run
from hopline_cli.output import Output
from hopline_cli.secret import save_token
from hopline_cli.verbs import Cursor, Limit, TokenFile, command, text_or_file

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

agent = typer.Typer(help="Agents: named workers with one owner each.", no_args_is_help=True)

Ref = Annotated[str, typer.Argument(metavar="A", help="The agent's id, slug or name.")]
Description = Annotated[str | None, typer.Option(help="What it is good at; peers read this.")]
Owner = Annotated[str | None, typer.Option(metavar="U", help="The person in whose name it acts.")]
Kind = Annotated[str | None, typer.Option(metavar="K", help="standard or receive-only.")]
Soul = Annotated[str | None, typer.Option(metavar="TEXT", help="Its persona; @FILE reads a file.")]
Instructions = Annotated[
    str | None, typer.Option(metavar="TEXT", help="What it is to do; @FILE reads a file.")
]
Model = Annotated[
    str | None, typer.Option(metavar="M", help="The model its worker should run; '' for the default.")
]
Thinking = Annotated[str | None, typer.Option(metavar="L", help="off, low, medium or high.")]
ReplyMode = Annotated[str | None, typer.Option(metavar="M", help="implicit, auto or all.")]
Reach = Annotated[
    str | None, typer.Option(metavar="A,B", help="Only these may it start something on; '' for all.")
]
GroupOnly = Annotated[
    bool | None, typer.Option("--group-only/--no-group-only", help="Only its lead and siblings reach it.")
]
Parent = Annotated[str | None, typer.Option(metavar="A", help="The lead whose subagent it is; '' for none.")]
Default = Annotated[
    bool | None, typer.Option("--default/--no-default", help="The workspace's default agent.")
]
Runtime = Annotated[str | None, typer.Option(metavar="R", help="local or cloud.")]
Wake = Annotated[
    str | None,
    typer.Option(metavar="W", help="What starts its worker when there is work: none, exec or webhook."),
]
WakeUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="With --wake webhook: what is called.", show_default=False),
]
WakeSecretFile = Annotated[
    Path | None,
    typer.Option(
        metavar="F", help="With --wake webhook: holds the secret that signs the call.", show_default=False
    ),
]
Tools = Annotated[str | None, typer.Option(metavar="T,U", help="The tools it is offered; '' for the usual.")]
Label = Annotated[list[str] | None, typer.Option(metavar="K=V", help="A label; repeat for more.")]


@command(agent, "create")
async def create_agent(
    mesh: Mesh,
    out: Output,
    name: str,
    kind: Kind = None,
    owner: Owner = None,
    slug: Annotated[str | None, typer.Option(help="Its stable short name; derived from NAME.")] = None,
    description: Description = None,
    soul: Soul = None,
    instructions: Instructions = None,
    model: Model = None,
    thinking_level: Thinking = None,
    reply_mode: ReplyMode = None,
    reach: Reach = None,
    group_only: GroupOnly = None,
    parent: Parent = None,
    default: Default = None,
    runtime: Runtime = None,
    wake: Wake = None,
    wake_url: WakeUrl = None,
    wake_secret_file: WakeSecretFile = None,
    tools: Tools = None,
    label: Label = None,
    connect: Connect = None,
    key: Annotated[str | None, typer.Option(help="A stable key for scripts.")] = None,
    token_file: TokenFile = None,
) -> None:
    """Create an agent; prints its id and, once, its token."""
    from hopline.registry.v1 import agent_pb2 as pb

    from hopline_cli import shapes

    given = {key_: value for key_, value in locals().items() if key_ in _SETTERS}
    wanted, _ = definition(given)
    _assign_webhook(wanted, wake_url, wake_secret_file)
    wanted.slug = slug or ""
    wanted.key = key or ""
    wanted.connections.extend(connections([], connect or [], []))
    made = await mesh.agents.CreateAgent(pb.CreateAgentRequest(agent=wanted))
    found = {**shapes.agent(made.agent), "token": made.token or None}
    kept = save_token(token_file, made.token)
    out.result(found, f"agent {made.agent.name} created: {made.agent.slug} ({made.agent.id})", kept)


@command(agent, "set")
async def set_agent(
    mesh: Mesh,
    out: Output,
    agent: Ref,
    name: Annotated[str | None, typer.Option(help="Its display name.")] = None,
    kind: Kind = None,
    owner: Owner = None,
    description: Description = None,
    soul: Soul = None,
    instructions: Instructions = None,
    model: Model = None,
    thinking_level: Thinking = None,
    reply_mode: ReplyMode = None,
    reach: Reach = None,
    group_only: GroupOnly = None,
    parent: Parent = None,
    default: Default = None,
    runtime: Runtime = None,
    wake: Wake = None,
    wake_url: WakeUrl = None,
    wake_secret_file: WakeSecretFile = None,
    tools: Tools = None,
    label: Label = None,
    connect: Connect = None,
    disconnect: Disconnect = None,
) -> None:
    """Change an agent; what you leave out stays as it is."""
    from google.protobuf.field_mask_pb2 import FieldMask
    from hopline.registry.v1 import agent_pb2 as pb

    from hopline_cli import shapes

    given = {key_: value for key_, value in locals().items() if key_ in _SETTERS}
    wanted, paths = definition(given)
    _assign_webhook(wanted, wake_url, wake_secret_file)
    if connect or disconnect:
        before = await mesh.agents.GetAgent(pb.GetAgentRequest(agent=agent))
        wanted.connections.extend(connections(before.agent.connections, connect or [], disconnect or []))
        paths.append("connections")
    if not paths:
        raise typer.BadParameter("nothing to change: give at least one option")
    request = pb.UpdateAgentRequest(agent_ref=agent, agent=wanted, update_mask=FieldMask(paths=paths))
    made = await mesh.agents.UpdateAgent(request)
    out.result(shapes.agent(made.agent), f"agent {made.agent.slug} changed: {', '.join(paths)}")


# Option -> the field of the contract that it sets.
_SETTERS = {
    "name": "name",
    "kind": "kind",
    "owner": "owner_id",
    "description": "description",
    "soul": "soul",
    "instructions": "instructions",
    "model": "model_id",
    "thinking_level": "thinking_level",
    "reply_mode": "reply_mode",
    "reach": "reach",
    "group_only": "is_group_only_callable",
    "parent": "parent_agent_id",
    "default": "is_default",
    "runtime": "runtime",
    "wake": "wake",
    "tools": "tools",
    "label": "labels",
}


def definition(given: dict[str, Any]) -> tuple[Any, list[str]]:
    """Return the agent message that the options describe, and the paths of the fields they set."""
    from hopline.registry.v1 import agent_pb2 as pb

    wanted = pb.Agent()
    paths = []
    for option, value in given.items():
        if value is None or value == []:
            continue
        field = _SETTERS[option]
        _assign(wanted, field, value, f"--{option.replace('_', '-')}")
        paths.append(field)
        if option == "parent":
            wanted.is_subagent = bool(value)
            paths.append("is_subagent")
    return wanted, paths


def _assign(wanted: Any, field: str, value: Any, option: str) -> None:
    from hopline.registry.v1 import agent_pb2 as pb

    descriptor = wanted.DESCRIPTOR.fields_by_name[field]
    if field == "wake":
        wanted.wake.kind = _enum(pb.WakeKind.DESCRIPTOR, value, option)
    elif field == "labels":
        for pair in value:
            key, given, text = pair.partition("=")
            if not given:
                raise typer.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint=option)
            wanted.labels[key] = text
    elif field in {"reach", "tools"}:
        getattr(wanted, field).extend(part.strip() for part in value.split(",") if part.strip())
    elif descriptor.enum_type is not None:
        setattr(wanted, field, _enum(descriptor.enum_type, value, option))
    elif field in {"soul", "instructions"}:
        setattr(wanted, field, text_or_file(value, option))
    else:
        setattr(wanted, field, value)


def _assign_webhook(wanted: Any, url: str | None, secret_file: Path | None) -> None:
    """Add the address that wakes the agent, and its secret; both go with `--wake webhook` alone."""
    from hopline.registry.v1 import agent_pb2 as pb

    is_webhook = wanted.wake.kind == pb.WAKE_KIND_WEBHOOK
    if is_webhook and not url:
        raise typer.BadParameter("is needed with --wake webhook: an http(s) address", param_hint="--wake-url")
    for option, value in (("--wake-url", url), ("--wake-secret-file", secret_file)):
        if value is not None and not is_webhook:
            raise typer.BadParameter("goes with --wake webhook", param_hint=option)
    if is_webhook:
        wanted.wake.webhook_url = url or ""
        if secret_file is not None:
            secret = text_or_file(f"@{secret_file}", "--wake-secret-file") or ""
            wanted.wake.webhook_secret = secret.strip()


def _enum(kind: Any, value: str, option: str) -> int:
    """Return the number of an enum's value written as people write it: `receive-only`."""
    from hopline_files.words import number_of, words_of

    number = number_of(kind, value)
    if number is None:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(words_of(kind))}", param_hint=option)
    return number


@command(agent, "list")
async def list_agents(mesh: Mesh, out: Output, limit: Limit = 50, cursor: Cursor = "") -> None:
    """List the agents on which you hold a role, and how each stands."""
    from hopline.registry.v1 import agent_pb2 as pb

    from hopline_cli import shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        page = await mesh.agents.ListAgents(pb.ListAgentsRequest(page_size=size, page_token=at))
        found = [shapes.agent(each) for each in page.agents]
        presence = await _presence(mesh, [each["id"] for each in found])
        return [{**each, "presence": presence.get(each["id"])} for each in found], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    columns = [("SLUG", "slug"), ("NAME", "name"), ("STATE", "state"), ("PRESENCE", "presence")]
    columns += [("PLUGIN", "plugin_name"), ("ID", "id"), ("DESCRIPTION", "description")]
    out.rows("agents", items, columns, rest)


async def _presence(mesh: Mesh, ids: list[str]) -> dict[str, str]:
    """Return how each agent stands by the relay; nothing while the relay does not answer."""
    from hopline.relay.v1 import session_pb2
    from hopline_rpc.errors import HoplineError

    if not ids:
        return {}
    try:
        answer = await mesh.sessions.GetPresence(session_pb2.GetPresenceRequest(agents=ids))
    except HoplineError as error:
        if error.reason != "unavailable":
            raise
        return {}
    return dict(answer.presence)


@command(agent, "show")
async def show_agent(mesh: Mesh, out: Output, agent: Ref) -> None:
    """Show an agent's definition."""
    from hopline.registry.v1 import agent_pb2 as pb

    from hopline_cli import shapes

    found = await mesh.agents.GetAgent(pb.GetAgentRequest(agent=agent))
    presence = await _presence(mesh, [found.agent.id])
    facts = {
        **shapes.agent(found.agent),
        "model": await told_to_run(mesh, found.agent),
        "presence": presence.get(found.agent.id),
    }
    lines = facts if out.as_json else {**facts, "connections": await shown(mesh, found.agent.connections)}
    out.fields(facts, lines)


@command(agent, "pause")
async def pause_agent(mesh: Mesh, out: Output, agent: Ref) -> None:
    """Pause an agent: its running turns end, messages to it wait."""
    from hopline.registry.v1 import agent_pb2 as pb

    from hopline_cli import shapes

    made = await mesh.agents.PauseAgent(pb.PauseAgentRequest(agent=agent))
    out.result(shapes.agent(made.agent), f"agent {made.agent.slug} is paused")


@command(agent, "resume")
async def resume_agent(mesh: Mesh, out: Output, agent: Ref) -> None:
    """Make a paused agent active again."""
    from hopline.registry.v1 import agent_pb2 as pb

    from hopline_cli import shapes

    made = await mesh.agents.ResumeAgent(pb.ResumeAgentRequest(agent=agent))
    out.result(shapes.agent(made.agent), f"agent {made.agent.slug} is active")


@command(agent, "delete")
async def delete_agent(mesh: Mesh, out: Output, agent: Ref) -> None:
    """Delete an agent; its threads stay readable."""
    from hopline.registry.v1 import agent_pb2 as pb

    await mesh.agents.DeleteAgent(pb.DeleteAgentRequest(agent=agent))
    out.result({"agent": agent, "deleted": True}, f"agent {agent} deleted")
