"""What the page on schedules and webhooks tells people to type does what it says."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mesh_process import ROOT, MeshProcess, clean_environment, processes


class Page:
    """The page, for somebody whose mesh runs at `~/.hopline`."""

    def __init__(self, mesh: MeshProcess) -> None:
        self.mesh = mesh
        gateway = mesh.endpoints["gateway"].removeprefix("http://")
        text = (ROOT / "docs" / "schedules.md").read_text().replace("127.0.0.1:7400", gateway)
        self.blocks = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    def block(self, words: str) -> str:
        """Return the one block of code that contains the words."""
        (found,) = (block for block in self.blocks if words in block)
        return str(found)

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        env = clean_environment(self.mesh.processes.folder)
        words = ("bash", "-e", "-c", script)
        return self.mesh.processes.run(*words, cwd=self.mesh.processes.folder, env={"PATH": env["PATH"]})

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
        page = Page(mesh)
        page.shell("hopline agent create reviewer")
        yield page
        assert mesh.complaints() == []


def test_every_command_for_schedules_works_as_it_is_written(page: Page) -> None:
    said = page.shell(page.block("schedule add"))
    identifier = re.findall(r"sch_\w+", said)[0]
    page.shell(re.sub(r"\bID\b", identifier, page.block("schedule pause")))
    assert "sch_" not in page.shell("hopline schedule list --json")


def test_a_body_signed_with_openssl_becomes_a_turn_once(page: Page) -> None:
    page.shell(page.block("webhook add"))
    secret = page.mesh.processes.folder / "orders.secret"
    assert secret.stat().st_mode & 0o077 == 0
    post = page.block("openssl")
    answer = json.loads(page.shell(post))
    assert answer["status"] == "queued"
    assert json.loads(page.shell(f"hopline session {answer['sessionId']} --json"))["channel"] == "webhook"
    twice = post + post[post.index("curl") :]
    first, second = page.shell(twice).replace("}{", "}\n{").splitlines()
    assert json.loads(first) == json.loads(second)
    turned = page.shell(post.replace('"order": 7', '"order": 8'))
    assert json.loads(turned)["turnId"] != answer["turnId"]


def test_a_signature_that_is_not_right_is_refused(page: Page) -> None:
    page.run("hopline webhook add reviewer orders --secret-file orders.secret")
    wrong = page.block("openssl").replace("$(cat orders.secret)", "whs_other")
    assert json.loads(page.shell(wrong))["error"]["code"] == "unauthenticated"


def test_every_command_for_webhooks_works_as_it_is_written(page: Page) -> None:
    page.run("hopline webhook add reviewer orders --secret-file orders.secret")
    page.shell(page.block("webhook list"))
    assert json.loads(page.shell("hopline webhook list --json"))["webhooks"] == []


@pytest.mark.parametrize(
    ("options", "base", "path"),
    [
        (
            ("--public-url", "https://mesh.example.org"),
            "https://mesh.example.org",
            "/reviewer/v1/webhooks/orders",
        ),
        (("--single", "reviewer"), "", "/v1/webhooks/orders"),
    ],
)
def test_the_address_of_a_webhook_is_the_one_that_senders_reach_it_by(
    tmp_path: Path, options: tuple[str, ...], base: str, path: str
) -> None:
    with processes(tmp_path) as started:
        mesh = MeshProcess(started, ".hopline", options=options)
        mesh.start()
        page = Page(mesh)
        page.shell("hopline agent create reviewer")
        address = (base or mesh.endpoints["gateway"]) + path
        assert f"POST to {address}\n" in page.shell("hopline webhook add reviewer orders")
        (listed,) = json.loads(page.shell("hopline webhook list --json"))["webhooks"]
        assert listed["url"] == address
