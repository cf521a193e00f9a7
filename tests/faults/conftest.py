"""Processes that can be made to die at a named point."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mesh_process import Processes, processes

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)


class Faults:
    """The file by which a process is told where to die."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.env = {"HOPLINE_FAULTS": str(file)}

    def die_at(self, point: str) -> None:
        """Have whoever passes the point next die there."""
        draft = self._file.with_suffix(".new")
        draft.write_text(point)
        draft.replace(self._file)

    def no_more(self) -> None:
        """Let everybody pass."""
        self._file.unlink(missing_ok=True)


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path / "die-at")


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path) as found:
        yield found
