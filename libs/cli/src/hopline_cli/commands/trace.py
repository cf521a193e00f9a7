"""`hopline trace ID`: a chain of delegations as one tree, from the mesh's own span store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from hopline_rpc.visible import visible

from hopline_cli.output import Json, Output
from hopline_cli.verbs import REFUSED, AsJson, Data

if TYPE_CHECKING:
    from rich.text import Text

app = typer.Typer()

# What of a span's attributes tells a person something, in the order shown, and how it is introduced.
_TOLD = (
    ("gen_ai.agent.name", ""),
    ("hopline.agent.name", ""),
    ("gen_ai.tool.name", ""),
    ("hopline.depth", "depth "),
    ("hopline.turn.id", ""),
    ("hopline.turn.status", ""),
    ("error.type", ""),
)


@app.command("trace")
def trace(
    identifier: Annotated[
        str, typer.Argument(metavar="ID", help="Of a turn, message, thread, session or trace.")
    ],
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Draw the trace that a turn, message, thread or session belongs to."""
    from hopline_rpc.spans import read_trace

    from hopline_cli.output import report

    folder = data or Path(os.environ.get("HOPLINE_DATA") or Path.home() / ".hopline")
    spans = read_trace(folder / "spans.db", identifier)
    if not spans:
        text = f"no trace of {identifier} in {folder / 'spans.db'}; traces are kept where the mesh runs"
        error = {"code": "not_found", "message": text, "retryable": False, "details": {}}
        report(error, as_json=as_json)
        raise typer.Exit(REFUSED)
    out = Output(as_json=as_json)
    if as_json:
        out.json({"trace_ids": sorted({span["trace_id"] for span in spans}), "spans": spans})
        return
    for trace_id, tree in trees(spans):
        _draw(out, trace_id, tree)


def trees(spans: list[Json]) -> Iterator[tuple[str, list[Json]]]:
    """Yield each trace with its top spans; every span gets the list of its `children`, in order of start."""
    by_id = {(span["trace_id"], span["span_id"]): {**span, "children": []} for span in spans}
    tops: dict[str, list[Json]] = {}
    for (trace_id, _), span in by_id.items():
        parent = by_id.get((trace_id, span["parent_id"]))
        if parent is None or parent is span:
            tops.setdefault(trace_id, []).append(span)  # its parent was never kept, or is elsewhere
        else:
            parent["children"].append(span)
    yield from tops.items()


def _draw(out: Output, trace_id: str, tops: list[Json]) -> None:
    from rich.text import Text
    from rich.tree import Tree

    start = min(span["start_ns"] for span in tops)
    root = Tree(Text(f"trace {trace_id}", style="bold"), guide_style="dim")
    # Not by recursion: a chain may be deeper than Python's stack.
    waiting: list[tuple[Tree, Json]] = [(root, span) for span in reversed(tops)]
    while waiting:
        above, span = waiting.pop()
        branch = above.add(_label(span, start))
        waiting += [(branch, child) for child in reversed(span["children"])]
    out.console.print(root)


def _label(span: Json, start: int) -> Text:
    from rich.text import Text

    attributes = span["attributes"]
    name = visible(span["name"].removeprefix("hopline."))
    told = [f"{words}{visible(str(attributes[key]))}" for key, words in _TOLD if key in attributes]
    facts = dict.fromkeys(each for each in told if each not in name)  # each once
    after = (span["start_ns"] - start) / 1e6
    took = max(span["end_ns"] - span["start_ns"], 0) / 1e6
    failed = span["status"] == "error" or "error.type" in attributes
    return Text.assemble(
        (name, "bold red" if failed else "bold"),
        (f"  {'  '.join(facts)}" if facts else "", "cyan"),
        (f"  {span['service']}  +{after:.0f} ms, {took:.1f} ms", "dim"),
    )
