"""Processes that can be made to die at a named point."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mesh_fixtures import mark_as_e2e, started

__all__ = ["started"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_as_e2e(items, Path(__file__).parent)


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
