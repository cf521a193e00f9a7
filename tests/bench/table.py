"""Results for people: the table a run prints, and the one in the README."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.rows import KINDS


def show(console: Console, rows: Sequence[dict[str, Any]], failed: Sequence[str]) -> None:
    """Print the results, and the rows that could not be measured."""
    table = Table(title="Hopline beside its floors")
    table.add_column("name")
    for title in ("value", "unit", "floor", "ratio", "target", "ok"):
        table.add_column(title, justify="right" if title in {"value", "floor", "ratio"} else "left")
    marks = {True: "[green]yes[/]", False: "[bold red]missed[/]", None: ""}
    for each in rows:
        figures = [figure(each[key]) for key in ("value", "floor", "ratio")]
        value, floor, ratio = figures
        table.add_row(
            each["name"], value, each["unit"], floor, ratio, each["target"] or "", marks[each["ok"]]
        )
    for name in failed:
        table.add_row(name, "", "", "", "", "", "[bold red]not measured[/]")
    console.print(table)


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return the results as a table in Markdown."""
    lines = ["| row | what | value | floor | ratio | target |", "| --- | --- | --- | --- | --- | --- |"]
    for each in rows:
        value = f"{figure(each['value'])} {each['unit']}".replace(" /s", "/s")
        floor, ratio = figure(each["floor"]), figure(each["ratio"])
        target = f"{each['target']}{'' if each['ok'] else ' (missed)'}" if each["target"] else ""
        what = KINDS[each["name"]].what
        lines.append(f"| `{each['name']}` | {what} | {value} | {floor} | {ratio} | {target} |")
    return "\n".join(lines)


def figure(number: float | None) -> str:
    """Write a number with as many digits as say something."""
    if number is None:
        return ""
    return f"{number:.0f}" if abs(number) >= 100 else f"{number:.3g}"
