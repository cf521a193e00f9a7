"""OpenCode as somebody has set it up: with a model of its own, and nothing of Hopline's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.support import node

PROVIDER = "scripted"


def opencode_home(folder: Path, model_url: str, models: Sequence[str]) -> dict[str, str]:
    """Write OpenCode's own configuration into a folder, and return the environment that points there."""
    for name in ("config", "data", "cache", "state"):
        (folder / name).mkdir(parents=True)
    limits = {"context": 32000, "output": 4000}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": model_url, "apiKey": "none"},
        "models": {name: {"name": name, "tool_call": True, "limit": limits} for name in models},
    }
    config = folder / "config" / "opencode"
    config.mkdir()
    settings = {"provider": {PROVIDER: provider}, "model": f"{PROVIDER}/{models[0]}", "snapshot": False}
    (config / "opencode.json").write_text(json.dumps(settings))
    found = {f"XDG_{name.upper()}_HOME": str(folder / name) for name in ("config", "data", "cache", "state")}
    off = ("MODELS_FETCH", "AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD")  # all that would want the network
    return {**found, **{f"OPENCODE_DISABLE_{name}": "1" for name in off}}


def running_opencodes(home: dict[str, str]) -> list[int]:
    """Return the processes of OpenCode, and what they started, that use this configuration."""
    found = []
    for process in psutil.process_iter():
        try:
            words, env = process.cmdline(), process.environ()
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
        of_ours = env.get("XDG_CONFIG_HOME") == home["XDG_CONFIG_HOME"]
        if of_ours and "attach" not in words and "hopline_cli.attach.watchdog" not in words:
            found.append(process.pid)
    return found


def opencode_run(model: str) -> list[str]:
    """Return the command that runs one prompt, as it stands behind `hopline attach … --`."""
    return [node.opencode(), "run", "--model", f"{PROVIDER}/{model}", "{prompt}"]
