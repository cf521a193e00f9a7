"""The crew of deploy/examples/crew on the demo's mesh: a lead that a person talks to, and its specialists.

Five parts of a goal go out at once. Two specialists report, one forgets to and is heard all the same, one
says what a plugin's hook vetoes, one crashes. The lead answers too early; its answer is held until all of
that is in.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from local_mesh import FOLDER, HOPLINE, ROOT, DemoError, LocalMesh, expect
from rich.console import Console

EXAMPLE: Final = ROOT / "deploy" / "examples" / "crew"
GOAL: Final = "Is the release ready?"
_SECONDS: Final = 30.0
# Six of the seven are at work; nobody asks the writer.
_AT_WORK: Final = 6
_SHOWN: Final = ("hook.", "subagent.", "draft.", "answer.", "turn.ended")
_TOKENS: Final = FOLDER / "crew"
# What the final answer has to say, and why.
_TOLD: Final = {
    "CHANGELOG.md:7": "the librarian's report",
    "src/cli.py:5": "the navigator's report",
    "30 tests passed": "the final message of the tester, who forgot to report",
    "a secret stays where it is": "the critic's second report, after a hook said no to the first",
    "Builder did not answer": "that the builder crashed",
}


def start(mesh: LocalMesh, console: Console) -> None:
    """Apply the crew, install the plugin, and put everybody to work."""
    with console.status("applying the crew …"):
        applied = mesh.hopline("crew", "apply", str(EXAMPLE / "crew.yaml"), "--tokens-dir", str(_TOKENS))
        mesh.hopline("policy", "set", "evidence_required=on")
        _install(mesh)
        mesh.spawn(
            "workers",
            [sys.executable, str(EXAMPLE / "workers.py"), str(_TOKENS)],
            HOPLINE_DATA=str(mesh.data),
        )
        mesh.attach("builder", str(EXAMPLE / "builder.sh"))
        _wait_for_everybody(mesh)
    made = [member["slug"] for member in applied["members"]]
    console.print(f"[cyan]crew apply[/]   {', '.join(made)}")


def _install(mesh: LocalMesh) -> None:
    endpoint = f"127.0.0.1:{_free_port()}"
    script, manifest, secret = (
        str(EXAMPLE / "gatekeeper.py"),
        FOLDER / "gatekeeper.json",
        FOLDER / "gatekeeper.secret",
    )
    said = subprocess.run(
        [sys.executable, script, "manifest"],
        env=os.environ | {"GATEKEEPER": endpoint},
        stdout=subprocess.PIPE,
        check=True,
    )
    manifest.write_bytes(said.stdout)
    mesh.hopline("plugin", "install", str(manifest), "--yes", "--secret-file", str(secret))
    mesh.spawn(
        "gatekeeper",
        [sys.executable, script],
        GATEKEEPER=endpoint,
        HOPLINE_URL=mesh.endpoints["gateway"],
        HOPLINE_PLUGIN_SECRET_FILE=str(secret),
    )
    _wait(lambda: _listens(endpoint), "the plugin never listened")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _listens(endpoint: str) -> bool:
    host, _, port = endpoint.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def _wait_for_everybody(mesh: LocalMesh) -> None:
    def all_there() -> bool:
        agents = mesh.hopline("agent", "list")["agents"]
        return len([agent for agent in agents if agent["presence"] == "idle"]) >= _AT_WORK

    _wait(all_there, "the crew never attached")


def _wait(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _SECONDS
    while not condition():
        expect(time.monotonic() < until, what)
        time.sleep(0.1)


def play(mesh: LocalMesh, console: Console) -> None:
    """Have a person ask the lead, look at what its answer waits for, and read the answer."""
    console.print(f"[cyan]chat[/]         planner  [dim]{GOAL}[/]")
    chat = subprocess.Popen(
        [str(HOPLINE), "chat", "planner", GOAL, "--data", str(mesh.data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        answer, notes = chat.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        chat.kill()
        raise DemoError("the lead never answered") from None
    expect(chat.returncode == 0, f"the lead gave no answer: {notes}")
    for note in notes.splitlines():
        console.print(f"  [yellow]{note}[/]", markup=True)
    expect("held" in notes, f"nothing was held: {notes}")
    for line in answer.splitlines():
        console.print(f"  [green]{line}[/]", soft_wrap=True)
    for words, what in _TOLD.items():
        expect(words in answer, f"the answer lacks {what}: {answer}")
    expect(mesh.hopline("held")["held"] == [], "an answer is still held")
    _show_audit(mesh, console)


def _show_audit(mesh: LocalMesh, console: Console) -> None:
    """Show what the log has of the hook and of the answer that was held."""
    events: list[dict[str, Any]] = mesh.hopline("audit", "--limit", "0")["events"]
    seen = Counter(event["action"] for event in events)
    expect(seen["hook.vetoed"] == 1, f"the log has {seen['hook.vetoed']} vetoes")
    shown = ", ".join(
        f"{action} {count}" for action, count in sorted(seen.items()) if action.startswith(_SHOWN)
    )
    console.print(f"[cyan]audit[/]        {shown}")
