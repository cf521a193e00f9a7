"""The commands and settings that the documents name are there, wherever they name them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from hopline_cli.app import app
from hopline_registry.domain.policies import KEYS

from tests.support.mesh_process import ROOT
from tests.support.settings_classes import OWN, SHARED

_PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part in {"build", "dist"} for part in path.relative_to(ROOT).parts)
    and path.name != "CHANGELOG.md"
)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")
# Where a command begins in a line of a shell.
_COMMAND = re.compile(r"(?:^\s*|[|;&] |\$\(|[A-Z_]+=\S+ |\bdo )(?:[^\s=]*/)?hopline ([a-z][^|;&()<>#]*)")
_WHOLE: Any = typer.main.get_command(app)
_WORD = re.compile(r"[a-z][a-z-]*\Z")
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")

_KEY = re.compile(r"[a-z_]+\Z")

_SETTING = re.compile(r"\bHOPLINE_[A-Z_]*[A-Z]\b(?!_?\*)")
# What the code reads, or hands on to a turn's command, by name.
_IN_CODE = {
    name
    for folder in ("libs", "services")
    for file in (ROOT / folder).glob("*/src/**/*.py")
    for name in re.findall(r"\bHOPLINE_[A-Z_]*[A-Z]\b", file.read_text())
}
_OF_CLASSES = {f"HOPLINE_{name.upper()}" for kind in (*SHARED, *OWN.values()) for name in kind.model_fields}
# What the README's client configurations call their own variable, and what chooses the tests' store.
_OF_OTHERS = {"HOPLINE_TOKEN", "HOPLINE_TEST_STORE"}


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of shell that a text may hold: of blocks, of indented blocks, of spans."""
    whole = text.replace("\\\n", "")
    for block in _FENCED.findall(whole):
        yield from block.splitlines()
    prose = _FENCED.sub("", whole)
    yield from (line for line in prose.splitlines() if line.startswith("    "))
    yield from (span.replace("\n", " ") for span in _SPAN.findall(prose))


def _named(text: str) -> Iterator[list[str]]:
    """Yield the words of each command that a text names, up to what is somebody else's command."""
    for line in _lines(text):
        for words in _COMMAND.findall(line):
            yield words.split(" -- ")[0].split()


def _wrong(words: list[str]) -> str | None:
    command = _WHOLE
    rest = list(words)
    while rest and getattr(command, "commands", None) and _WORD.match(rest[0]):
        if rest[0] not in command.commands:
            return f"no command {rest[0]}"
        command = command.commands[rest.pop(0)]
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
    if words[:2] == ["policy", "set"]:
        for word in rest:
            key = word.partition("=")[0]
            if _KEY.match(key) and key not in KEYS:
                return f"no policy {key}"
    for option in _OPTION.findall(" ".join(rest)):
        if option not in options:
            return f"no option {option}"
    return None


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_that_a_document_names_are_there(page: Path) -> None:
    wrong = [(" ".join(words), why) for words in _named(page.read_text()) if (why := _wrong(words))]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("so: `hopline agent\nmake x`", "no command make"),
        ("```sh\nexport A=$(hopline token list --jsn)\n```", "no option --jsn"),
        ("    A=b/hopline hopline up --prot 1 -- sh --anything", "no option --prot"),
        ("`hopline policy set max_dept=2`", "no policy max_dept"),
        ("`hopline attach --agent a -- claude --anything`", None),
    ],
)
def test_what_is_not_there_is_found(text: str, why: str | None) -> None:
    (words,) = _named(text)
    assert _wrong(words) == why


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_settings_that_a_document_names_are_there(page: Path) -> None:
    named = set(_SETTING.findall(page.read_text()))
    assert sorted(named - _OF_CLASSES - _IN_CODE - _OF_OTHERS) == []


def test_whatever_is_read_from_the_environment_or_handed_on_in_it_is_named_for_operators() -> None:
    named = {name for page in (ROOT / "docs").glob("*.md") for name in _SETTING.findall(page.read_text())}
    # Points at which a test lets a process fail.
    assert sorted(_IN_CODE - _OF_CLASSES - named - {"HOPLINE_FAULTS"}) == []
