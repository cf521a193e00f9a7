"""A bar for work that takes its time, on standard error: for a person who waits, and nobody else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Tell = Callable[[str, int, int], None]
"""Gets what is worked on, how much of it is done, and how much there is (0: not known)."""


@contextmanager
def bar(doing: str, *, shown: bool = True) -> Iterator[Tell]:
    """Give what is told how far the work has come; what it shows is gone at the end."""
    if not shown or not sys.stderr.isatty():
        yield _nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(doing, total=None)

        def tell(what: str, done: int, of: int) -> None:
            progress.update(task, description=f"{doing} {what}", completed=done, total=of or None)

        yield tell


def _nothing(_what: str, _done: int, _of: int) -> None:
    pass
