"""Stands in for harnesses that cannot be installed here: `claude` and `codex`.

Each takes the words that the real one takes, starts the MCP server that it was told of with the environment
that the real one would give it, and uses it: asks the agent that the prompt names (`ask NAME: …`).
Run as `stand_ins.py claude|codex WORDS…`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client

# What of its own environment Codex passes on to every server.
_CODEX_PASSES = ("HOME", "LOGNAME", "PATH", "SHELL", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ")


async def use(command: str, args: Sequence[str], env: Mapping[str, str], prompt: str) -> str:
    """Ask the agent that a prompt names, through a server; without a name, say who one is."""
    server = StdioServerParameters(command=command, args=list(args), env=dict(env))
    wanted = re.search(r"ask (\w+): (.*)", prompt)
    async with Client(stdio_client(server), mode="legacy") as mesh:
        if wanted is None:
            told = await mesh.call_tool("whoami", {})
            return f"I am {(told.structured_content or {})['agent']['name']}"
        told = await mesh.call_tool("ask", {"agent": wanted[1], "text": wanted[2]})
        facts: dict[str, Any] = told.structured_content or {}
        return str(facts.get("reply") or facts)


def claude(words: list[str]) -> str:
    """`claude mcp add NAME -- COMMAND…`, and `claude -p` with a prompt on standard input."""
    if words[:2] == ["mcp", "add"]:
        return added(words[2:])
    parser = argparse.ArgumentParser("claude", allow_abbrev=False)
    parser.add_argument("-p", "--print", action="store_true", required=True)
    parser.add_argument("--mcp-config", required=True)
    parser.add_argument("--strict-mcp-config", action="store_true")
    parser.add_argument("--allowedTools", nargs="+", default=[])
    parser.add_argument("--append-system-prompt", default="")
    given = parser.parse_args(words)
    # In this mode nobody is asked: a tool that is not listed is not used.
    assert "mcp__hopline__*" in given.allowedTools, given.allowedTools
    [(name, server)] = json.loads(Path(given.mcp_config).read_text())["mcpServers"].items()
    assert (name, server["type"]) == ("hopline", "stdio")
    env = {**os.environ, **server["env"]}
    told = asyncio.run(use(server["command"], server["args"], env, sys.stdin.read()))
    return " ".join(filter(None, [given.append_system_prompt, told]))


def codex(words: list[str]) -> str:
    """`codex mcp add NAME -- COMMAND…`, and `codex exec … -` with a prompt on standard input."""
    if words[:2] == ["mcp", "add"]:
        return added(words[2:])
    assert words[0] == "exec"
    assert words[-1] == "-"
    parser = argparse.ArgumentParser("codex exec", allow_abbrev=False)
    parser.add_argument("--skip-git-repo-check", action="store_true")
    parser.add_argument("-c", action="append", default=[])
    given = parser.parse_args(words[1:-1])
    server = tomllib.loads("\n".join(given.c))["mcp_servers"]["hopline"]
    if server.get("default_tools_approval_mode") != "approve":
        return "user cancelled MCP tool call"
    passed = {*_CODEX_PASSES, *server.get("env_vars", [])}
    env = {name: value for name, value in os.environ.items() if name in passed} | server.get("env", {})
    prompt = sys.stdin.read()
    return (
        f"{prompt.splitlines()[0]} {asyncio.run(use(server['command'], server['args'], env, prompt))}".strip()
    )


def added(words: list[str]) -> str:
    """Use a server as soon as it is added, with the environment that it would be started in."""
    name, dashes, command, *args = words
    assert (name, dashes) == ("hopline", "--")
    assert Path(command).is_absolute()
    return asyncio.run(use(command, args, os.environ, os.environ["STAND_IN_PROMPT"]))


if __name__ == "__main__":
    print({"claude": claude, "codex": codex}[sys.argv[1]](sys.argv[2:]))
