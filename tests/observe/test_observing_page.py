"""The page on observing knows every metric; its commands are run by `tests/docs`."""

from __future__ import annotations

import re
from pathlib import Path

from tests.observe.scrapes import get, series
from tests.support.mesh_process import ROOT, MeshProcess, processes


def test_the_page_names_every_metric_that_there_is(tmp_path: Path) -> None:
    with processes(tmp_path) as started:
        mesh = MeshProcess(started)
        mesh.start()
        found = series(get(f"{mesh.endpoints['metrics']}/metrics")[1])
    names = {re.sub(r"_(bucket|count|sum)$", "", name) for name in found}
    text = (ROOT / "docs" / "observing.md").read_text()
    assert names
    assert [name for name in names if name not in text and not name.startswith("process_")] == []
