"""The scenes of the demo; each checks its own outcome."""

from __future__ import annotations

from typing import Any

from local_mesh import CREW, SHELF, expect
from mcp import Client
from rich.console import Console

BODY_LIMIT = 65536  # bytes of UTF-8 in one message
CHECKS = 4  # an ask waits 50 s at most; on a busy machine the answer may take longer


async def call(client: Client, tool: str, **arguments: Any) -> tuple[bool, dict[str, Any]]:
    """Call a tool; return whether it was refused, and the structured result."""
    result = await client.call_tool(tool, arguments, read_timeout_seconds=60)
    return bool(result.is_error), dict(result.structured_content or {})


async def ask(client: Client, agent: str, text: str) -> tuple[bool, dict[str, Any]]:
    """Ask an agent, and check for its answer where it takes longer than one call waits."""
    refused, result = await call(client, "ask", agent=agent, text=text)
    for _ in range(CHECKS):
        if refused or result["status"] not in ("queued", "running", "waiting_for_owner"):
            break
        refused, result = await call(client, "check", turn_id=result["turn_id"])
    return refused, result


async def list_peers(client: Client, console: Console) -> None:
    """The planner sees the crew, and nobody of another workspace."""
    refused, result = await call(client, "list_agents")
    names = [agent["name"] for agent in result.get("agents", [])]
    expect(not refused and sorted(names) == sorted([*CREW, SHELF]), f"list_agents gave {result}")
    console.print(f"[cyan]list_agents[/]  {', '.join(names)}")


async def fan_out(client: Client, console: Console) -> None:
    """One message to two agents; both answer into the planner's inbox."""
    text = "How is the weather in Paris and Oslo?"
    refused, sent = await call(client, "send_message", agent=["weather", "reviewer"], text=text)
    expect(not refused and len(sent["deliveries"]) == 2, f"the fan-out gave {sent}")
    console.print(f"[cyan]send_message[/] weather, reviewer  [dim]{text}[/]")
    answers: dict[str, str] = {}
    for _ in range(6):
        if len(answers) == 2:
            break
        refused, inbox = await call(client, "read_inbox", wait_seconds=10)
        expect(not refused, f"read_inbox gave {inbox}")
        for message in inbox["messages"]:
            answers[message["from"]["name"]] = message["body"]
            await call(client, "done", message_id=message["id"])
    expect(set(answers) == {"weather", "reviewer"}, f"answers to the fan-out: {answers}")
    for name, body in answers.items():
        console.print(f"  [green]{name}[/] {body}")


async def delegation(client: Client, console: Console) -> str:
    """An ask that a peer answers after asking a third; returns the id of its turn."""
    refused, result = await ask(client, "researcher", "Where do swifts sleep?")
    expect(not refused and result["status"] == "completed", f"ask researcher gave {result}")
    expect("reviewer says" in result["reply"], f"the researcher answered {result['reply']!r}")
    console.print(f"[cyan]ask[/]          researcher  [green]{result['reply']}[/]")
    return str(result["turn_id"])


async def loop(client: Client, console: Console) -> None:
    """Concierge and researcher ask each other until the depth rail ends it."""
    refused, result = await ask(client, "concierge", "loop, please")
    expect(not refused and result["status"] == "completed", f"the loop gave {result}")
    expect("too many agents in a row" in result["reply"], f"the loop answered {result['reply']!r}")
    console.print(f"[cyan]ask[/]          concierge, in a loop  [yellow]{result['reply']}[/]")


async def over_long(client: Client, console: Console) -> None:
    """A body over the limit is refused, and the refusal names the limit."""
    refused, result = await call(client, "send_message", agent="weather", text="x" * (BODY_LIMIT + 1))
    expect(refused and result["error"]["code"] == "invalid_argument", f"the long body gave {result}")
    console.print(f"[cyan]send_message[/] 64 KiB and one byte  [yellow]{result['error']['message']}[/]")


async def foreign(client: Client, console: Console) -> None:
    """An agent of another workspace answers like one that never existed."""
    answers = {}
    for name in ("stranger", "nobody-at-all"):
        refused, result = await ask(client, name, "hello?")
        expect(refused and result["error"]["code"] == "not_found", f"ask {name} gave {result}")
        answers[name] = result["error"]["message"]
    alike = {message.replace(name, "NAME") for name, message in answers.items()}
    expect(len(alike) == 1, f"a foreign agent can be told from none: {answers}")
    console.print(f"[cyan]ask[/]          an agent of another workspace  [yellow]{answers['stranger']}[/]")


async def play_all(client: Client, console: Console) -> str:
    """Play every scene in order; return the turn of the delegation."""
    await list_peers(client, console)
    await fan_out(client, console)
    turn_id = await delegation(client, console)
    await loop(client, console)
    await over_long(client, console)
    await foreign(client, console)
    return turn_id
