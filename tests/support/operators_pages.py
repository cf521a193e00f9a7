"""The operators' documents, run as they stand.

A block of code marked `sh` is run, one after the other of a page in one shell, in a folder of its own with an
empty home. A block marked `text` right behind it is what it shows: each of its lines comes somewhere in the
output, `…` standing for anything. `<!-- run by FILE::TEST -->` before a block says which test runs it in
another way. Ports are the usual ones: each page has a network of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.support.mesh_process import ROOT, clean_environment

# A page takes some twenty; a machine that is busy with much else needs several times that.
SECONDS: Final = 300.0
_BLOCK: Final = re.compile(
    r"(?:^<!-- run by (?P<elsewhere>\S+) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_NEXT: Final = "---- block {} ----"
# A network of one's own has its loopback down.
_BEGIN: Final = """
python3 - <<'END'
import fcntl, socket, struct
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))
END
set -e
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
"""


@dataclass
class Block:
    """A block of commands, and what it is to show."""

    page: str
    text: str
    elsewhere: str = ""
    shows: list[str] = field(default_factory=list)


def blocks(page: str) -> list[Block]:
    """Return the blocks of commands of a page."""
    text = (ROOT / "docs" / page).read_text()
    found: list[Block] = []
    end = 0
    for match in _BLOCK.finditer(text):
        if match["kind"] == "sh":
            found.append(Block(page, match["text"], match["elsewhere"] or ""))
        elif match["kind"] == "text" and found and not text[end : match.start()].strip():
            found[-1].shows = match["text"].splitlines()
        end = match.end()
    return found


def run(
    pages: Iterable[str],
    folder: Path,
    before: str = "",
    instead: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run pages' commands after some others; raises where one fails or shows something else.

    `instead`: what stands for an address that a page has as an example.
    """
    found = [block for page in pages for block in blocks(page) if not block.elsewhere]
    script = (
        _BEGIN
        + before
        + "".join(
            f"echo '{_NEXT.format(number)}'\n{_real(block.text, instead)}"
            for number, block in enumerate(found)
        )
    )
    words = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    done = subprocess.run(
        [*words, "bash", "-c", script],
        cwd=folder,
        env={**clean_environment(folder), "HOPLINE_LOG_LEVEL": "warning"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    said = re.split(r"---- block \d+ ----\n", done.stdout)[1:]
    if done.returncode or len(said) != len(found):
        last = found[max(len(said) - 1, 0)]
        raise AssertionError(f"{last.page} ends with {done.returncode} in\n{last.text}\n{done.stdout}")
    for block, output in zip(found, said, strict=True):
        for line in block.shows:
            pattern = ".*".join(re.escape(part) for part in line.split("…"))
            assert re.search(f"^{pattern}$", output, re.MULTILINE), (
                f"{block.page}: {line!r} is not in\n{output}"
            )


def _real(text: str, instead: Mapping[str, str]) -> str:
    for example, real in instead.items():
        text = text.replace(example, real)
    return text
