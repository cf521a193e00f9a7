"""The scenes that people take part in: an owner answers, and rails hold agents back until they are moved."""

from __future__ import annotations

import asyncio
from typing import Any

from local_mesh import SHELF, DemoError, LocalMesh, expect
from mcp import Client
from rich.console import Console
from scenes import ask, call

TRIES = 100
PAUSE = 0.1  # between two looks at what people see
CAP = 3  # messages a thread
USUAL = ("messages_per_thread=20", "sent_per_day=200")


async def owner(mesh: LocalMesh, client: Client, console: Console) -> None:
    """An agent that may only receive asks its owner, while the planner waits for it."""
    asking = asyncio.create_task(ask(client, "publisher", "Swifts sleep on the wing."))
    try:
        question = await _question(mesh)
    except BaseException:
        asking.cancel()
        raise
    asks = f"{question['agent']['name']} asks {question['owner']['name']}"
    console.print(
        f"[cyan]ask_owner[/]    {asks}  [dim]{question['question']} ({' | '.join(question['options'])})[/]"
    )
    _, turn = await call(client, "check", turn_id=question["turn_id"], wait_seconds=0)
    expect(turn.get("status") == "waiting_for_owner", f"the planner, which waits, sees {turn}")
    console.print("[cyan]check[/]        publisher  [yellow]waiting_for_owner[/]")
    await asyncio.to_thread(mesh.hopline, "answer", question["id"], "yes")
    console.print(f"[cyan]hopline answer[/] …{question['id'][-6:]} yes")
    refused, result = await asking
    expect(not refused and result["status"] == "completed", f"ask publisher gave {result}")
    expect("admin said yes" in result["reply"], f"the publisher answered {result['reply']!r}")
    console.print(f"  [green]publisher[/] {result['reply']}")


async def _question(mesh: LocalMesh) -> dict[str, Any]:
    for _ in range(TRIES):
        listed = (await asyncio.to_thread(mesh.hopline, "escalations"))["escalations"]
        if listed:
            found: dict[str, Any] = listed[0]
            return found
        await asyncio.sleep(PAUSE)
    raise DemoError("the publisher asked its owner nothing")


async def full_thread(mesh: LocalMesh, client: Client, console: Console) -> None:
    """A thread takes so many messages; the refusal says how to go on."""
    await asyncio.to_thread(mesh.hopline, "policy", "set", f"messages_per_thread={CAP}")
    refused, sent = await call(client, "send_message", agent=SHELF, text="message 1")
    expect(not refused, f"the first message gave {sent}")
    count, result = 1, sent
    while not refused:
        expect(count <= CAP, f"the thread took {count} messages and more")
        count += 1
        text, thread_id = f"message {count}", sent["thread_id"]
        refused, result = await call(client, "send_message", agent=SHELF, text=text, thread_id=thread_id)
    error = result["error"]
    expect(
        error["code"] == "thread_full" and error["details"]["limit"] == CAP, f"a full thread gave {result}"
    )
    console.print(
        f"[cyan]send_message[/] into a thread that takes {CAP}  "
        f"[yellow]{error['code']}: {error['message']}[/]"
    )


async def used_up(mesh: LocalMesh, client: Client, console: Console) -> None:
    """The day's quota is seen before it is reached; the refusal says when it begins anew."""
    sent = (await call(client, "whoami"))[1]["usage"]["sent_today"]
    await asyncio.to_thread(
        mesh.hopline, "policy", "set", f"sent_per_day={sent + 1}", "messages_per_thread=20"
    )
    refused, last = await call(client, "send_message", agent=SHELF, text="the last one today")
    expect(not refused, f"the last message of the day gave {last}")
    usage = (await call(client, "whoami"))[1]["usage"]
    expect(usage["sent_today"] == sent + 1, f"whoami says {usage}")
    refused, result = await call(client, "send_message", agent=SHELF, text="one too many")
    expect(refused and result["error"]["code"] == "quota_exceeded", f"one too many gave {result}")
    error = result["error"]
    resets = error["details"].get("resets_at", "")
    expect(
        resets[:10] == usage["resets_at"][:10], f"the refusal says {resets!r}, whoami {usage['resets_at']!r}"
    )
    console.print(
        f"[cyan]send_message[/] with {sent + 1} of {sent + 1} sent today  "
        f"[yellow]{error['code']}: {error['message']}[/]  [dim]resets_at {resets}[/]"
    )


async def play(mesh: LocalMesh, client: Client, console: Console) -> None:
    """Play them in order, and put the policy back."""
    await owner(mesh, client, console)
    await full_thread(mesh, client, console)
    await used_up(mesh, client, console)
    await asyncio.to_thread(mesh.hopline, "policy", "set", *USUAL)
