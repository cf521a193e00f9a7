"""`hopline top|tree|why`: what goes on, who asked whom, and why something does not go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from hopline_rpc.visible import visible

from hopline_cli.output import Json, Output, moment
from hopline_cli.verbs import command

if TYPE_CHECKING:
    from hopline.relay.v1 import floor_pb2
    from rich.console import RenderableType

    from hopline_cli.mesh import Mesh

app = typer.Typer()

_EVERY_SECONDS: Final = 1.0
_PAGE: Final = 200
# It is another turn that keeps it.
_ON_ANOTHER: Final = frozenset({"answer", "session", None})
_OPEN: Final = frozenset({"queued", "running", "waiting_for_owner"})


@command(app, "top")
async def top(
    mesh: Mesh,
    out: Output,
    agent: Annotated[str, typer.Option(metavar="A", help="Only this agent.", show_default=False)] = "",
    once: Annotated[bool, typer.Option("--once", help="Print it once instead of going on.")] = False,
) -> None:
    """Show the floor: every agent, what it does, for whom, and why what waits does wait; until Ctrl-C."""
    from hopline.relay.v1 import floor_pb2

    request = floor_pb2.GetFloorRequest(agent=agent, page_size=_PAGE)
    if once or not out.is_terminal:
        _print_floor(out, _shape(await mesh.floor.GetFloor(request)))
        return
    from rich.live import Live

    with Live(console=out.console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_drawn(_shape(await mesh.floor.GetFloor(request))), refresh=True)
            await asyncio.sleep(_EVERY_SECONDS)


@command(app, "tree")
async def tree(
    mesh: Mesh, out: Output, identifier: Annotated[str, typer.Argument(metavar="TURN|SESSION|THREAD")]
) -> None:
    """Draw who asked whom: all turns that go back to the same act, with what open ones wait for."""
    found = await _tree_of(mesh, identifier)
    if out.as_json:
        out.json(found)
        return
    from rich.text import Text
    from rich.tree import Tree

    drawn = Tree(Text(f"{len(found['turns'])} turns", style="bold"), guide_style="dim")
    stack: list[Tree] = [drawn]
    for node in found["turns"]:
        del stack[node["level"] + 1 :]
        stack.append(stack[-1].add(_label(node)))
    out.console.print(drawn)
    if found["is_truncated"]:
        out.line("there are more turns than are shown", "dim")


@command(app, "why")
async def why(
    mesh: Mesh,
    out: Output,
    identifier: Annotated[str, typer.Argument(metavar="TURN|SESSION|THREAD|AGENT")],
) -> None:
    """Say why something does not go on, and the command that ends it."""
    if not identifier.startswith(("trn_", "ses_", "thr_")):
        await _why_agent(mesh, out, identifier)
        return
    found = await _tree_of(mesh, identifier)
    by_id = {node["id"]: node for node in found["turns"]}
    asked = by_id.get(found["turn_id"])
    blocked = _blocked(found["turns"], by_id, asked)
    hooks = (await _floor(mesh, ""))["hooks"]
    if out.as_json:
        out.json({"turn": asked, "blocked": blocked, "hooks": hooks})
        return
    if asked is not None:
        out.line(f"{_who(asked)} is {asked['status']}")
    for node in blocked:
        _say(out, _who(node), node["wait"])
    for each in hooks:
        _say(out, "a hook", each["wait"])
    going = [node for node in found["turns"] if node["status"] in _OPEN and node not in blocked]
    if not blocked and going:
        out.line(f"nothing keeps it: {_who(going[-1])} works since {moment(going[-1]['started_at'] or '')}")
        out.line(f"  to end it: hopline cancel {going[-1]['id']}", "cyan")
    elif not blocked:
        out.line("nothing of it is open any more")


def _blocked(nodes: list[Json], by_id: dict[str, Json], asked: Json | None) -> list[Json]:
    """Return the turns that something keeps: of those that the one that was asked for waits for, else all."""
    seen: set[str] = set()
    node = asked
    while node is not None and node["id"] not in seen:
        seen.add(node["id"])
        wait = node["wait"]
        if wait is None:
            break
        if wait["reason"] not in {"answer", "session"}:
            return [node]
        node = by_id.get(wait["turn_id"] or "")
    if asked is not None and asked["wait"] is not None and node is None:
        return [asked]  # what it waits for is not for this person to see
    return [
        each for each in nodes if each["wait"] and each["wait"]["reason"] not in {"answer", "session", None}
    ]


async def _why_agent(mesh: Mesh, out: Output, agent: str) -> None:
    found = await _floor(mesh, agent)
    if out.as_json:
        out.json(found)
        return
    for each in found["agents"]:
        name = each["agent"]["name"]
        out.line(
            f"{name} is {each['presence']}: {each['running_count']} running, {each['queued_count']} queued"
        )
        for turn in each["running"]:
            if turn["wait"]:
                _say(out, _who(turn), turn["wait"])
        if each["queued_wait"]:
            _say(out, f"what waits for {name}", each["queued_wait"])
    for each in found["hooks"]:
        _say(out, "a hook", each["wait"])


def _say(out: Output, who: str, wait: Json) -> None:
    since = f", since {moment(wait['since'])}" if wait["since"] else ""
    out.line(f"{who}: {wait['text']}{since}", "yellow")
    if wait["remedy"]:
        out.line(f"  to end it: {wait['remedy']}", "cyan")


def _who(node: Json) -> str:
    return f"{node['agent']['name']} ({node['id']}, for {node['for']['display']})"


async def _floor(mesh: Mesh, agent: str) -> Json:
    from hopline.relay.v1 import floor_pb2

    return _shape(await mesh.floor.GetFloor(floor_pb2.GetFloorRequest(agent=agent, page_size=_PAGE)))


def _shape(found: floor_pb2.GetFloorResponse) -> Json:
    from hopline_cli import floor_shapes

    return floor_shapes.floor(found)


async def _tree_of(mesh: Mesh, identifier: str) -> Json:
    from hopline.relay.v1 import floor_pb2

    from hopline_cli import floor_shapes

    turn_id = await _turn_of(mesh, identifier)
    found = await mesh.floor.GetTree(floor_pb2.GetTreeRequest(turn_id=turn_id))
    return {
        "turn_id": turn_id,
        "turns": [floor_shapes.node(each) for each in found.nodes],
        "is_truncated": found.is_truncated,
    }


async def _turn_of(mesh: Mesh, identifier: str) -> str:
    """Return the turn that is meant: the newest of a session, or of a thread."""
    from hopline.relay.v1 import delegation_pb2, message_pb2
    from hopline_rpc.errors import HoplineError

    if identifier.startswith("ses_"):
        request = delegation_pb2.ListTurnsRequest(session_id=identifier, page_size=1)
        turns = (await mesh.turns.ListTurns(request)).turns
        if not turns:
            raise HoplineError("not_found", f"no turn of the session {identifier}")
        return turns[0].id
    if not identifier.startswith("thr_"):
        return identifier
    newest, token = "", ""
    while True:
        page = await mesh.messages.ListMessages(
            message_pb2.ListMessagesRequest(thread_id=identifier, page_size=_PAGE, page_token=token)
        )
        for message in page.messages:
            newest = next((each.turn_id for each in message.deliveries if each.turn_id), newest)
        token = page.next_page_token
        if not token:
            break
    if not newest:
        raise HoplineError("not_found", f"no turn of the thread {identifier}")
    return newest


# --- drawing ---------------------------------------------------------------------------------------


def _print_floor(out: Output, found: Json) -> None:
    if out.as_json:
        out.json(found)
        return
    out.line(_slots(found))
    rows = [
        {
            "agent": each["agent"]["name"],
            "presence": each["presence"],
            "running": str(each["running_count"]),
            "queued": str(each["queued_count"]),
            "doing": "; ".join(_doing(each)),
        }
        for each in found["agents"]
    ]
    columns = [("AGENT", "agent"), ("STATE", "presence"), ("RUN", "running"), ("QUEUE", "queued")]
    out.rows("agents", rows, [*columns, ("DESCRIPTION", "doing")])
    for each in found["hooks"]:
        out.line(each["wait"]["text"], "red")


def _slots(found: Json) -> str:
    oldest = f", the oldest since {moment(found['oldest_queued_at'])}" if found["oldest_queued_at"] else ""
    return f"run slots {found['runs_used']} of {found['runs_limit']} · {found['queued_count']} queued{oldest}"


def _doing(each: Json) -> list[str]:
    lines = [
        f"for {turn['for']['display']} at depth {turn['depth']}"
        + (f": {turn['wait']['text']}" if turn["wait"] else f" since {moment(turn['started_at'] or '')[11:]}")
        for turn in each["running"]
    ]
    if each["queued_wait"]:
        lines.append(f"waiting: {each['queued_wait']['text']}")
    return lines


def _drawn(found: Json) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold dim", padding=(0, 2, 0, 0), expand=True)
    for title in ("AGENT", "STATE", "RUN", "QUEUE"):
        table.add_column(title, no_wrap=title in {"RUN", "QUEUE"}, overflow="fold")
    table.add_column("DOING", overflow="fold", ratio=1)
    colours = {"busy": "yellow", "idle": "green", "paused": "magenta"}
    for each in found["agents"]:
        table.add_row(
            Text(visible(each["agent"]["name"]), style="bold"),
            Text(each["presence"], style=colours.get(each["presence"], "dim")),
            str(each["running_count"]),
            str(each["queued_count"]),
            Text(visible("\n".join(_doing(each)))),
        )
    hooks = [Text(visible(each["wait"]["text"]), style="red") for each in found["hooks"]]
    foot = Text("Ctrl-C ends · hopline why AGENT says more", style="dim")
    return Group(Text(_slots(found), style="bold"), *hooks, Text(), table, Text(), foot)


def _label(node: Json) -> Any:
    from rich.text import Text

    colours = {"failed": "red", "canceled": "red", "completed": "green"}
    wait = f"\n{node['wait']['text']}" if node["wait"] else ""
    remedy = f"\n{node['wait']['remedy']}" if node["wait"] and node["wait"]["remedy"] else ""
    return Text.assemble(
        (visible(node["agent"]["name"]), "bold"),
        ("  ", ""),
        (node["status"], colours.get(node["status"], "yellow")),
        (f"  {_took(node)}", ""),
        (f"  {visible(node['excerpt'])[:60]}", "dim"),
        (f"  {node['id']}", "dim"),
        (visible(wait), "yellow"),
        (remedy, "cyan"),
    )


def _took(node: Json) -> str:
    from datetime import datetime

    if not node["started_at"]:
        return "not begun"
    if not node["ended_at"]:
        return f"since {moment(node['started_at'])[11:]}"
    seconds = datetime.fromisoformat(node["ended_at"]) - datetime.fromisoformat(node["started_at"])
    return f"{seconds.total_seconds():.1f} s"
