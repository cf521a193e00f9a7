"""What commands print: JSON for scripts, tables for people, plain columns for pipes, errors on one line."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hopline_rpc.visible import visible

if TYPE_CHECKING:
    from hopline_rpc.errors import HoplineError
    from rich.console import Console

Json = dict[str, Any]
Columns = Sequence[tuple[str, str]]

# Words that tell how something stands, and the colour in which people see them.
_STYLES = {
    "active": "green",
    "answered": "green",
    "completed": "green",
    "busy": "yellow",
    "running": "yellow",
    "queued": "yellow",
    "taken": "yellow",
    "delivered": "yellow",
    "paused": "magenta",
    "failed": "red",
    "dead": "red",
    "revoked": "red",
    "canceled": "red",
    "withdrawn": "red",
}

_FOLDING = frozenset({"NAME", "DESCRIPTION", "BODY", "PARTICIPANTS", "SUBJECT", "TITLE", "OPENED BY"})
_PIPE_WIDTH = 2000
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?Z")


class Output:
    """Where a command's results go."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._console: Console | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether a person is looking."""
        return not self.as_json and sys.stdout.isatty()

    @property
    def console(self) -> Console:
        """The terminal, for what is more than a line or a table."""
        if self._console is None:
            from rich.console import Console

            # Into a pipe nothing is cut or wrapped.
            self._console = Console(highlight=False, width=None if self.is_terminal else _PIPE_WIDTH)
        return self._console

    def json(self, value: Any) -> None:
        """Print one JSON document on one line."""
        self._print(json.dumps(value, ensure_ascii=False))

    def line(self, text: str, style: str = "") -> None:
        """Print a line for people; control characters of foreign text are made visible."""
        if not self.is_terminal:
            self._print(visible(text))
            return
        from rich.text import Text

        self.console.print(Text(visible(text), style=style))

    def result(self, value: Json, *lines: str) -> None:
        """Print a result: the JSON document, or the lines that say the same to a person."""
        if self.as_json:
            self.json(value)
            return
        for text in lines:
            self.line(text)

    def rows(
        self,
        kind: str,
        items: Sequence[Json],
        columns: Columns,
        cursor: str | None = None,
        more: Json | None = None,
    ) -> None:
        """Print a list: `{kind: [...], "next_cursor"}`, or a table with the columns (title, path of keys).

        `more`: what a JSON document says besides.
        """
        if self.as_json:
            self.json({kind: list(items), **(more or {}), "next_cursor": cursor or None})
            return
        cells = [[_cell(item, path) for _, path in columns] for item in items]
        if self.is_terminal:
            self._table(kind, [title for title, _ in columns], cells, cursor)
            return
        self._print("\t".join(title for title, _ in columns))
        for row in cells:
            self._print("\t".join(visible(cell).replace("\t", " ").replace("\n", " ") for cell in row))

    def _table(self, kind: str, titles: list[str], cells: list[list[str]], cursor: str | None) -> None:
        from rich.table import Table
        from rich.text import Text

        if not cells:
            self.line(f"no {kind}", "dim")
            return
        table = Table(box=None, pad_edge=False, header_style="bold dim", padding=(0, 2, 0, 0))
        for title in titles:
            # An id or a number that is cut is useless; words may fold.
            table.add_column(title, overflow="fold", no_wrap=title not in _FOLDING)
        for row in cells:
            table.add_row(*(Text(moment(visible(cell)), style=_STYLES.get(cell, "")) for cell in row))
        self.console.print(table)
        if cursor:
            self.line(f"there are more: --cursor {cursor}", "dim")

    def fields(self, value: Json, shown: Json | None = None) -> None:
        """Print one thing: the JSON document, or a line for each field."""
        if self.as_json:
            self.json(value)
            return
        pairs = [
            (key, _text(item)) for key, item in (shown or value).items() if item not in (None, "", [], {})
        ]
        width = max((len(key) for key, _ in pairs), default=0)
        for key, text in pairs:
            indented = visible(text).replace("\n", "\n" + " " * (width + 2))
            if not self.is_terminal:
                self._print(f"{key}: {indented}" if "\n" not in text else f"{key}:\n{visible(text)}")
                continue
            from rich.text import Text

            self.console.print(Text.assemble((f"{key:<{width}}  ", "dim"), (indented, _STYLES.get(text, ""))))

    def flush(self) -> None:
        """Let what was printed be seen now."""
        sys.stdout.flush()

    def _print(self, text: str) -> None:
        sys.stdout.write(text.encode("utf-8", "replace").decode() + "\n")


def report(error: HoplineError | Mapping[str, Any], *, as_json: bool) -> None:
    """Print why a command failed, on one line of standard error."""
    shown = dict(error) if isinstance(error, Mapping) else error.to_dict()
    if as_json:
        text = json.dumps({"error": shown}, ensure_ascii=False)
    else:
        # One line, but for what was found wrong in a file: a line each.
        each = (
            str(shown["message"]).split("\n")
            if "problems" in (shown.get("details") or {})
            else [str(shown["message"])]
        )
        text = "\n".join(_coloured(f"error: {' '.join(visible(line).split())}", 31) for line in each)
    print(text, file=sys.stderr)


def warn(text: str) -> None:
    """Say on standard error what a person should know, though the command goes on."""
    print(_coloured(f"warning: {' '.join(visible(text).split())}", 33), file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Say on standard error how it goes, to a person who waits."""
    print(_coloured(" ".join(visible(text).split()), 36), file=sys.stderr, flush=True)


def _coloured(text: str, colour: int) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if sys.stderr.isatty() else text


def moment(text: str) -> str:
    """Return a time as people read it, in UTC to the second; any other text as it is."""
    found = _TIME.fullmatch(text)
    return f"{found[1]} {found[2]}" if found else text


def _cell(item: Any, path: str) -> str:
    for key in path.split("."):
        item = item.get(key) if isinstance(item, dict) else None
    return _text(item)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    if isinstance(value, dict):
        if "name" in value:
            return str(value.get("display") or value["name"])
        # Commas stand between the things of a list: `agent=a used=1, agent=b used=2`.
        return " ".join(f"{key}={text}" for key, item in value.items() if (text := _text(item)))
    return str(value)
