"""Put the results of the last `make bench` into the README: `python -m tests.bench.readme_table`."""

from __future__ import annotations

import sys
from typing import Final

from tests.bench.processes import ROOT, BenchError
from tests.bench.rows import load
from tests.bench.table import markdown

README: Final = ROOT / "README.md"
BEGIN: Final = "<!-- bench -->"
END: Final = "<!-- /bench -->"


def with_table(text: str, table: str) -> str:
    """Return the text with the table between its two marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchError(f"{README} has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main() -> int:
    """Rewrite the table; return the exit status."""
    try:
        README.write_text(with_table(README.read_text(encoding="utf-8"), markdown(load())), encoding="utf-8")
    except BenchError as failed:
        print(failed, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
