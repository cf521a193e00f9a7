"""Whether a report that claims to be done says what shows it. Standard library only."""

from __future__ import annotations

import re
from typing import Final

UNVERIFIED: Final = (
    "[unverified: this report claims to be done and names no evidence; ask for it before you rely on it]"
)
_CLAIM: Final = re.compile(
    r"(?<!not )(?<!not yet )(?<!n't )(?<!never )(?<!half )(?<!to be )(?<!be )(?<!get )"
    r"(?<!not been )(?<!n't been )(?<!never been )"
    r"\b(?:done|completed?|finished|fixed|implemented|resolved|solved|all set|works now|is working)\b",
    re.IGNORECASE,
)
# A word that says so, what was run and came out, or where it can be looked at.
_EVIDENCE: Final = re.compile(
    r"(?<!not )(?<!n't )(?<!no )(?<!without )"
    r"\b(?:evidence|verified|verification|proof|proven|reproduced|confirmed by|measured)\b"
    r"|\btests?\b[^.\n]{0,40}\b(?:pass|passes|passed|passing|green|ok)\b"
    r"|\b\d+ (?:tests? )?passed\b"
    r"|\bexit (?:code|status) ?:? ?0\b"
    r"|\bcommit [0-9a-f]{7,40}\b"
    r"|https?://"
    r"|(?<=\w)\.[a-z]{1,5}:\d+"
    r"|```",
    re.IGNORECASE,
)


def lacks_evidence(text: str, payload: str) -> bool:
    """Tell whether a report claims to be done without naming what shows it; a payload shows something."""
    if payload or UNVERIFIED in text:
        return False
    return bool(_CLAIM.search(text)) and not _EVIDENCE.search(text)


def marked(text: str) -> str:
    """Return the report with a word to its reader."""
    return f"{text}\n\n{UNVERIFIED}"
