"""What the operators' documents tell people to type does what they say."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.mesh_process import ROOT
from tests.support.operators_pages import blocks, run
from tests.support.settings_classes import OWN, SHARED

DOCS = ROOT / "docs"
# A mesh that was installed before: what a page takes for given.
_RUNNING = """
export HOPLINE_DATA=$PWD/mesh
hopline up &
until hopline doctor --quiet >/dev/null 2>&1; do sleep 0.2; done
"""
# A PostgreSQL in the page's own network; it ends with whoever holds the file `users`.
_POSTGRESQL = f"""
export PG=$(mktemp -d /tmp/hopline-postgres-XXXXXX)
touch $PG/users; exec 9<$PG/users; flock -s 9
{sys.executable} {ROOT}/tests/support/postgres_server.py $PG 9<&- &
disown
until test -e $PG/url; do sleep 0.1; done
"""
_ADDRESS = {"postgresql://hopline:secret@127.0.0.1:5432/hopline": "$(cat $PG/url)"}
_PAGES_ELSEWHERE = ("README.md", "CONTRIBUTING.md", "deploy/README.md")
# The pages that are run whole, some of them after one another in one mesh, and what is there before.
PAGES = {
    ("installing.md",): _POSTGRESQL,
    ("securing.md",): "",
    ("upgrading.md",): _RUNNING,
    ("observing.md", "why.md", "audit.md", "signing-in.md", "tuning.md"): _RUNNING,
    ("backing-up.md",): _RUNNING + _POSTGRESQL,
}
_PAGE = [page for pages in PAGES for page in pages]


@pytest.mark.parametrize("pages", PAGES, ids=" ".join)
def test_the_commands_of_a_page_do_what_it_says(pages: tuple[str, ...], tmp_path: Path) -> None:
    run(pages, tmp_path, PAGES[pages], _ADDRESS)


def test_every_page_for_operators_that_has_commands_is_run() -> None:
    named = set(re.findall(r"\((\w[\w-]*\.md)", (DOCS / "operating.md").read_text()))
    assert {page for page in named if blocks(page)} == set(_PAGE)


def test_what_is_run_elsewhere_is_run_there() -> None:
    for page in _PAGE:
        for block in blocks(page):
            if block.elsewhere:
                file, _, name = block.elsewhere.partition("::")
                assert f"def {name}(" in (ROOT / file).read_text()


def test_every_link_of_the_documents_leads_somewhere() -> None:
    for page in (*DOCS.glob("*.md"), *(ROOT / name for name in _PAGES_ELSEWHERE)):
        for target, anchor in re.findall(r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)", page.read_text()):
            file = (page.parent / target) if target else page
            assert file.exists(), f"{page.name} leads to {target}"
            if anchor:
                titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
                names = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
                assert anchor in names, f"{page.name} leads to {target}#{anchor}"


def test_every_setting_is_explained() -> None:
    everywhere = (DOCS / "tuning.md").read_text()
    for kind in SHARED:
        for name in kind.model_fields:
            assert f"`HOPLINE_{name.upper()}`" in everywhere
    for folder, own in OWN.items():
        text = (ROOT / "services" / folder / "README.md").read_text()
        for name in own.model_fields:
            # Those of one service that begin alike say so once: `HOPLINE_OIDC_ISSUER`, `_CLIENT_ID`.
            parts = name.upper().split("_")
            short = [f"`_{'_'.join(parts[count:])}`" for count in range(1, len(parts))]
            said = any(each in text for each in (f"HOPLINE_{name.upper()}`", f"`{name.upper()}`", *short))
            assert said or f"`HOPLINE_{name.upper()}`" in everywhere, f"{folder} says nothing of {name}"
