"""The file of `hopline up --config`: settings of the services, where they listen, and the mesh's agents.

settings: {log_level: warning, public_url: https://mesh.example.org}
listen: {gateway: "127.0.0.1:8400"}
agents: {concierge: {connections: {weather: {agent: weather-agent}}}, weather-agent: {}}
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopline_files.problems import Problem
from hopline_rpc.service import ORDER
from hopline_rpc.settings import public_url_problem

if TYPE_CHECKING:
    from hopline_files.yaml_file import Node, YamlFile

    from hopline_cli.running.mesh_file import FileAgent

_KEYS: Final = ("settings", "listen", "agents")


@dataclass(frozen=True)
class UpConfig:
    """What the file says. Settings are named as in the environment, without `HOPLINE_`, in lower case."""

    settings: Mapping[str, str] = field(default_factory=dict)
    listen: Mapping[str, str] = field(default_factory=dict)
    agents: tuple[FileAgent, ...] = ()
    # What is wrong with the file by itself.
    problems: tuple[Problem, ...] = ()


def read_config(path: Path | None, known: Collection[str] | None = None) -> UpConfig:
    """Read the file; what is wrong with it is in `problems`, each with file and line.

    `known`: the settings that there are, where that is known.
    """
    if path is None:
        return UpConfig()
    from hopline_files.yaml_file import YamlFile

    from hopline_cli.running.mesh_file import read_agents  # a mesh without such a file starts without it

    file = YamlFile(path)
    sections: dict[str, Node] = {}
    if file.root is not None:
        for key, node, value in file.pairs(file.root, "the file"):
            if key in _KEYS:
                sections[key] = value
            else:
                file.wrong(node, f"{key!r} is not known here; there are: {', '.join(_KEYS)}")
    settings = _settings(file, sections.get("settings"), known)
    listen = _listen(file, sections.get("listen"))
    agents = read_agents(file, sections["agents"]) if "agents" in sections else ()
    return UpConfig(settings, listen, agents, tuple(file.problems))


def _settings(file: YamlFile, node: Node | None, known: Collection[str] | None) -> dict[str, str]:
    found = {}
    for key, key_node, value in file.pairs(node, "settings") if node is not None else ():
        if key == "bind":
            file.wrong(key_node, "bind is not set here: where each service listens stands under `listen`")
            continue
        if known is not None and key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            meant = f"did you mean {near[0]!r}?" if near else "it is named as in HOPLINE_…, in lower case"
            file.wrong(key_node, f"there is no setting {key!r}; {meant}")
            continue
        text = file.text(value, key, plain=True)
        if text is None:
            continue
        if key == "public_url" and text and (problem := public_url_problem(text)):
            file.wrong(value, f"public_url {problem}")
            continue
        found[key] = text
    return found


def _listen(file: YamlFile, node: Node | None) -> dict[str, str]:
    found = {}
    for key, key_node, value in file.pairs(node, "listen") if node is not None else ():
        text = file.text(value, key, plain=True)
        if key not in ORDER:
            file.wrong(key_node, f"there is no service {key!r}; there are: {', '.join(ORDER)}")
        elif text is not None:
            found[key] = text
    return found
