"""A YAML file, read with the line of everything in it; what is not as it has to be is noted, not raised.

Nodes are read instead of values because a loader keeps no lines, and of two equal keys the last alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from hopline_files.problems import Place, Problem

# A node of PyYAML, whose types are not exported.
Node = Any

_TAG: Final = "tag:yaml.org,2002:"
_WHAT: Final = {
    "bool": "true or false",
    "int": "a number",
    "float": "a number",
    "null": "nothing",
    "timestamp": "a date",
}


class YamlFile:
    """One file, and what was found wrong in it."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        """Read the file at `path`; or `text`, which somebody has handed over under that name."""
        self._path = path
        self.problems: list[Problem] = []
        self.root: Node | None = None
        try:
            text = path.read_text(encoding="utf-8-sig") if text is None else text
        except (OSError, UnicodeDecodeError) as error:
            self.note(1, f"the file cannot be read: {_why(error)}")
            return
        try:
            self.root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            # Only both together say what is wrong: "expected a single document", "but found another one".
            said = ", ".join(filter(None, (error.context, error.problem)))
            self.note(mark.line + 1 if mark else 1, said or "is not YAML")
        except yaml.reader.ReaderError as error:
            before = text[: error.position] if isinstance(error.position, int) else ""
            self.note(before.count("\n") + 1, f"the character {error.character!r} is not allowed in YAML")
        except (yaml.YAMLError, ValueError):
            self.note(1, "is not YAML")
        except RecursionError:
            self.note(1, "is nested too deeply")

    def note(self, line: int, text: str) -> None:
        """Note what is wrong in a line."""
        # A line each, whatever the file holds.
        self.problems.append(Problem(Place(str(self._path), line), " ".join(text.split())))

    def place(self, node: Node) -> Place:
        """Return where a node stands."""
        return Place(str(self._path), node.start_mark.line + 1)

    def wrong(self, node: Node, text: str) -> None:
        """Note what is wrong with a node."""
        self.note(self.place(node).line, text)

    def pairs(self, node: Node, what: str) -> Iterator[tuple[str, Node, Node]]:
        """Yield the keys of a mapping, each as text and as the node it is, with their values.

        A key that stands there twice, and one that is no text, are noted and passed over. Nothing at all is
        an empty mapping.
        """
        if _kind(node) == "null":
            return
        if node.id != "mapping":
            self.wrong(node, f"{what} must be a mapping (key: value), not {_shown(node)}")
            return
        first: dict[str, Place] = {}
        for key, value in node.value:
            if key.id != "scalar" or not key.value.strip() or not _is_unicode(key.value):
                self.wrong(key, f"a key of {what} must be plain text")
            elif key.tag == f"{_TAG}merge":
                self.wrong(key, "<< is not known here: write the keys out")
            elif key.value in first:
                self.wrong(
                    key, f"{key.value!r} stands in {what} twice, first in line {first[key.value].line}"
                )
            else:
                first[key.value] = self.place(key)
                yield key.value, key, value

    def text(self, node: Node, what: str, *, plain: bool = False) -> str | None:
        """Return a text; `plain` takes numbers and the like as they are written, too."""
        kind = _kind(node)
        if kind == "null" and not plain:
            self.wrong(node, f"{what} has no value: give it one, or leave the line out")
        elif node.id != "scalar":
            self.wrong(node, f"{what} must be one plain value, not {_shown(node)}")
        elif not _is_unicode(node.value):
            self.wrong(node, f"{what} is not valid Unicode (it holds half of a surrogate pair)")
        elif kind != "str" and not plain:
            self.wrong(
                node, f"{what} must be text, not {_shown(node)}: put it in quotes ({node.value[:40]!r})"
            )
        else:
            return str(node.value)
        return None

    def texts(self, node: Node, what: str) -> list[tuple[str, Node]] | None:
        """Return a list of texts, each with its node."""
        if node.id != "sequence":
            self.wrong(node, f"{what} must be a list, e.g. [a, b], not {_shown(node)}")
            return None
        found = [(self.text(each, f"each of {what}"), each) for each in node.value]
        return [(text, each) for text, each in found if text is not None]

    def flag(self, node: Node, what: str) -> bool | None:
        """Return a yes or no."""
        if _kind(node) != "bool":
            self.wrong(node, f"{what} must be true or false, not {_shown(node)}")
            return None
        return str(node.value).lower() in {"true", "yes", "on"}


def _kind(node: Node) -> str:
    return str(node.tag).removeprefix(_TAG) if node.id == "scalar" else ""


def _shown(node: Node) -> str:
    if node.id != "scalar":
        return "a list" if node.id == "sequence" else "a mapping"
    return _WHAT.get(_kind(node), f"{node.value[:40]!r}")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _why(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or "no reason given") if isinstance(error, OSError) else "it is not text in UTF-8"
