"""What a command gets for one turn: its files, its environment, its words. No credential is among them."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hopline.runtime.v1 import tunnel_pb2

from hopline_cli import shapes
from hopline_cli.attach.isolation import Account
from hopline_cli.secret import write_private

SOCKET: Final = "mcp.sock"
_SYSTEM: Final = "system.md"
# OpenCode gives a server 5 s to start unless told otherwise; a busy machine needs more, and a wait takes 50.
_OPENCODE_MS: Final = 60_000
_PLACEHOLDER: Final = re.compile(r"\{(mcp_config|prompt)\}")
_TOKEN: Final = re.compile(r"hpl_[a-z]_[A-Za-z0-9_-]{43}")
# Ours begin so; what the daemon itself was told by them is not for the command.
_OURS: Final = "HOPLINE_"


@dataclass(frozen=True)
class Handover:
    """One turn's folder with the session's socket and the files that the environment names."""

    folder: Path
    environment: Mapping[str, str]

    @property
    def socket(self) -> Path:
        """Where the session's socket belongs."""
        return self.folder / SOCKET


def hand_over(
    turn: tunnel_pb2.StartTurn, folder: Path, env: Mapping[str, str], user: Account | None = None
) -> Handover:
    """Write a turn's files into a fresh `folder`, which is ours alone until `give_to`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    socket = str(folder / SOCKET)
    server = {"HOPLINE_SOCKET": socket}
    if turn.traceparent:
        server["TRACEPARENT"] = turn.traceparent
    words = [*own_command(), "mcp"]
    persona = system(turn)
    opencode = opencode_config(words, server, str(folder / _SYSTEM) if persona else "")
    files = {
        "HOPLINE_MESSAGE_FILE": ("message.json", json.dumps(message(turn), ensure_ascii=False)),
        "HOPLINE_SYSTEM_FILE": (_SYSTEM, persona),
        "HOPLINE_MCP_CONFIG": ("mcp.json", json.dumps(mcp_config(words, server))),
        "OPENCODE_CONFIG": ("opencode.json", json.dumps(opencode)),
    }
    # Some harnesses work where PWD says, and the daemon may have been started with somebody else's.
    environment = {**cleaned(env), "PWD": os.getcwd(), **server, **_facts(turn)}
    for name, (file, text) in files.items():
        write_private(folder / file, text)
        environment[name] = str(folder / file)
    if user is not None:
        environment |= {"HOME": user.home, "USER": user.name, "LOGNAME": user.name, "SHELL": user.shell}
    return Handover(folder, environment)


def give_to(user: Account, folder: Path) -> None:
    """Make the folder and all in it the user's; the folder goes last, for from then on they may change it."""
    for path in (*folder.iterdir(), folder):
        os.chown(path, user.uid, user.gid, follow_symlinks=False)


def _facts(turn: tunnel_pb2.StartTurn) -> dict[str, str]:
    return {
        "HOPLINE_SESSION_ID": turn.session_id,
        "HOPLINE_TURN_ID": turn.turn_id,
        "HOPLINE_DEPTH": str(turn.depth),
        "HOPLINE_FROM": getattr(turn, "from"),  # a keyword of Python
        "HOPLINE_MODEL": turn.model_id,
        "HOPLINE_THINKING_LEVEL": turn.thinking_level,
    }


def cleaned(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without our own settings and without anything that is one of our tokens."""
    dropped = {"TRACEPARENT", "OPENCODE_CONFIG"}
    return {
        name: value
        for name, value in env.items()
        if not name.startswith(_OURS) and name not in dropped and not _TOKEN.search(value)
    }


def message(turn: tunnel_pb2.StartTurn) -> dict[str, Any]:
    """Return the message as JSON; of several that were handed over at once, the first with all of them."""
    found = [shapes.message(each) for each in turn.messages]
    if not found:
        return {}
    return found[0] if len(found) == 1 else {**found[0], "messages": found}


def system(turn: tunnel_pb2.StartTurn) -> str:
    """Return what belongs into a model's system prompt: persona and instructions, as hooks left them."""
    return turn.system_prompt or "\n\n".join(part for part in (turn.soul, turn.instructions) if part)


def body(turn: tunnel_pb2.StartTurn) -> str:
    """Return the text alone, as it was sent (`--prompt raw`)."""
    return "\n\n".join(each.body for each in turn.messages) if turn.messages else turn.prompt


def mcp_config(words: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration that most harnesses take."""
    server = {"type": "stdio", "command": words[0], "args": list(words[1:]), "env": dict(env)}
    return {"mcpServers": {"hopline": server}}


def opencode_config(words: Sequence[str], env: Mapping[str, str], system_file: str = "") -> dict[str, Any]:
    """Return the same for OpenCode, which reads the system prompt too."""
    server = {"type": "local", "command": list(words), "environment": dict(env), "enabled": True}
    server["timeout"] = _OPENCODE_MS
    found = {"$schema": "https://opencode.ai/config.json", "mcp": {"hopline": server}}
    return {**found, "instructions": [system_file]} if system_file else found


def fill_in(words: Sequence[str], prompt: str, mcp_config_file: str) -> list[str]:
    """Replace `{prompt}` and `{mcp_config}` in the command's words; nothing that comes in is read again."""
    # A prompt that looks like an option must not become one.
    values = {"prompt": f" {prompt}" if prompt.startswith("-") else prompt, "mcp_config": mcp_config_file}
    return [_PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in words]


def takes_prompt(words: Sequence[str]) -> bool:
    """Tell whether a command has the prompt among its words."""
    return any("{prompt}" in word for word in words)


def own_command() -> list[str]:
    """Return how this very installation's command is called, wherever the child's PATH leads."""
    script = Path(sys.executable).with_name("hopline")
    return [str(script)] if script.exists() else [sys.executable, "-m", "hopline_cli"]
