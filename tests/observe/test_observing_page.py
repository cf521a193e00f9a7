"""What the page on observing tells people to type does what it says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.observe.scrapes import series
from tests.support.mesh_process import ROOT, MeshProcess, clean_environment, processes

PAGE = ROOT / "docs" / "observing.md"


class Page:
    """The page, for somebody whose mesh runs at `~/.hopline`."""

    def __init__(self, mesh: MeshProcess) -> None:
        self.mesh = mesh
        text = PAGE.read_text().replace("http://127.0.0.1:7490", mesh.endpoints["metrics"])
        self.blocks = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    def block(self, words: str) -> str:
        """Return the one block of commands that contains the words."""
        (found,) = (block for block in self.blocks if words in block)
        return str(found)

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        home = self.mesh.processes.folder
        words = ("bash", "-e", "-c", script)
        return self.mesh.processes.run(*words, cwd=home, env={"PATH": clean_environment(home)["PATH"]})

    def shell(self, script: str) -> str:
        """Run a script that has to succeed, and return what it prints."""
        done = self.run(script)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with processes(tmp_path_factory.mktemp("home")) as started:
        mesh = MeshProcess(started, ".hopline")
        mesh.start()
        yield Page(mesh)
        assert mesh.complaints() == []


def test_the_status_port_answers_what_is_asked_there(page: Page) -> None:
    said = page.shell(page.block("/metrics"))
    assert "hopline_ready{" in said
    assert said.endswith("ready\nok\n")


def test_the_page_names_every_metric_that_there_is(page: Page) -> None:
    found = series(page.shell(page.block("/metrics").splitlines()[0]))
    names = {re.sub(r"_(bucket|count|sum)$", "", name) for name in found}
    text = PAGE.read_text()
    assert [name for name in names if name not in text and not name.startswith("process_")] == []


def test_the_doctor_finds_nothing_wrong_with_the_mesh_of_the_page(page: Page) -> None:
    said = page.shell(page.block("hopline doctor"))
    assert "nothing is wrong" in said
    assert '{"healthy": true, "findings": []}' in said
