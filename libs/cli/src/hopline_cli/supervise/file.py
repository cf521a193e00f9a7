"""The file of `hopline supervise`: which agents, and what runs their turns.

agents:
  reviewer:
    command: [claude, -p, --mcp-config, "{mcp_config}"]
    user: sandbox            # run the command as this user (needs root)
    max_turns: 4             # at once (8)
    idle_seconds: 300        # without work, until the worker is ended (300)
    prompt: fenced           # or raw (fenced)
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hopline_files.problems import raise_all
from hopline_files.yaml_file import Node, YamlFile
from hopline_rpc.errors import HoplineError

from hopline_cli.attach.isolation import account

MAX_AGENTS: Final = 200
_MAX_TURNS: Final = 1000
_MAX_IDLE: Final = 7 * 86400
_MAX_NAME: Final = 200


@dataclass(frozen=True)
class Supervised:
    """One agent, and what its worker is started with."""

    agent: str
    command: tuple[str, ...]
    user: str = ""
    max_turns: int = 8
    idle_seconds: float = 300.0
    prompt: str = "fenced"


def read_file(path: Path) -> list[Supervised]:
    """Read the file; all that is wrong with it is said at once, each with its line."""
    file = YamlFile(path)
    found: list[Supervised] = []
    if file.root is not None:
        found = _Reader(file).agents(file.root)
    elif not file.problems:
        file.note(1, "there are no agents: name at least one under `agents:`")
    raise_all(file.problems)
    return found


class _Reader:
    """Reads what the file says, noting what is wrong with it."""

    def __init__(self, file: YamlFile) -> None:
        self._file = file

    def agents(self, root: Node) -> list[Supervised]:
        """Return the agents of the file."""
        found: list[Supervised] = []
        for section, at, node in self._file.pairs(root, "the file"):
            if section != "agents":
                self._file.wrong(at, f"{section!r} is not known here; there is: agents")
                continue
            named = list(self._file.pairs(node, "agents"))
            if len(named) > MAX_AGENTS:
                self._file.wrong(node, f"{len(named)} agents: one supervisor starts at most {MAX_AGENTS}")
            found = [each for name, key, value in named if (each := self._agent(name, key, value))]
        if not found and not self._file.problems:
            self._file.wrong(root, "there are no agents: name at least one under `agents:`")
        return found

    def _agent(self, name: str, key: Node, node: Node) -> Supervised | None:
        if len(name) > _MAX_NAME:
            self._file.wrong(key, f"an agent's name has at most {_MAX_NAME} characters")
        values: dict[str, Any] = {}
        for field, at, value in self._file.pairs(node, f"the agent {name[:80]}"):
            read = self._FIELDS.get(field)
            if read is None:
                there = ", ".join(self._FIELDS)
                self._file.wrong(at, f"an agent has no field {field!r} here; there are: {there}")
            else:
                values[field] = read(self, field, value)
        if "command" not in values and node.id in {"mapping", "scalar"}:
            self._file.wrong(key, f"{name[:80]} needs a command: what runs its turns")
        given = {field: value for field, value in values.items() if value is not None}
        return Supervised(name, **given) if given.get("command") else None

    # --- fields: None where something is wrong ----------------------------------------------------

    def _command(self, field: str, node: Node) -> tuple[str, ...] | None:
        """Read a list of words, or one text as a shell would split it."""
        if node.id == "sequence":
            found = [self._file.text(each, "each word of the command", plain=True) for each in node.value]
            if None in found:
                return None
            words = tuple(word for word in found if word is not None)
        else:
            try:
                words = tuple(shlex.split(self._file.text(node, field) or ""))
            except ValueError as error:
                self._file.wrong(node, f"the command cannot be split into words: {error}")
                return None
        if not words:
            self._file.wrong(node, "the command is empty")
        elif any("\0" in word for word in words):
            self._file.wrong(node, "the command contains the NUL character")
        return words

    def _user(self, field: str, node: Node) -> str | None:
        name = self._file.text(node, field)
        if name is None:
            return None
        try:
            return account(name).name
        except HoplineError as error:
            self._file.wrong(node, error.message.removeprefix("--"))
            return None

    def _count(self, field: str, node: Node) -> int | None:
        number = self._number(field, node, _MAX_TURNS, whole=True)
        return None if number is None else int(number)

    def _seconds(self, field: str, node: Node) -> float | None:
        return self._number(field, node, _MAX_IDLE, whole=False)

    def _number(self, field: str, node: Node, most: int, *, whole: bool) -> float | None:
        text = self._file.text(node, field, plain=True)
        if text is None:
            return None
        try:
            number = int(text) if whole else float(text)
        except ValueError:
            number = 0
        if not 1 <= number <= most:
            kind = "a whole number" if whole else "a number"
            self._file.wrong(node, f"{field} must be {kind} from 1 to {most}, not {text[:40]!r}")
            return None
        return number

    def _prompt(self, field: str, node: Node) -> str | None:
        text = self._file.text(node, field)
        if text not in {None, "fenced", "raw"}:
            self._file.wrong(node, f"{field} must be fenced or raw, not {str(text)[:40]!r}")
            return None
        return text

    _FIELDS: Final[Mapping[str, Callable[[_Reader, str, Node], Any]]] = {
        "command": _command,
        "user": _user,
        "max_turns": _count,
        "idle_seconds": _seconds,
        "prompt": _prompt,
    }
