"""Reports that claim to be done without saying what shows it are marked for their reader."""

from __future__ import annotations

import pytest
from hopline_relay.domain.evidence import UNVERIFIED, lacks_evidence, marked

LACKING = [
    "Done.",
    "All done, everything is in place",
    "The task is completed",
    "I have fixed it and implemented the rest",
    "Finished!\n\nLet me know.",
    "The bug is resolved; this is unverified",
    "done, but not verified",
    "Done. I ran out of time for the tests",
]
SHOWN = [
    "Done. Evidence: the log below",
    "Done; all 14 tests pass",
    "It is fixed. Tests: green",
    "Fixed, 12 passed in 3.4s",
    "Implemented and verified by hand on the staging mesh",
    "Done, see https://example.org/build/7",
    "Fixed in src/app.py:42",
    "Finished:\n```\n$ make test\nok\n```",
    "Completed with exit status 0",
    "Fixed by commit 9a1fa84",
]
NO_CLAIM = [
    "Not done yet: two files are left",
    "It isn't done",
    "I could not reproduce the failure",
    "This has never been done",
    "What is to be done: first, the plan",
    "Here are three options for the cache",
    "",
]


@pytest.mark.parametrize("text", LACKING)
def test_a_claim_alone_lacks_evidence(text: str) -> None:
    assert lacks_evidence(text, "")
    assert not lacks_evidence(text, '{"log": "ok"}')
    assert marked(text) == f"{text}\n\n{UNVERIFIED}"


@pytest.mark.parametrize("text", SHOWN)
def test_a_claim_that_says_what_shows_it_does_not(text: str) -> None:
    assert not lacks_evidence(text, "")


@pytest.mark.parametrize("text", NO_CLAIM)
def test_what_claims_nothing_needs_none(text: str) -> None:
    assert not lacks_evidence(text, "")


def test_a_marked_report_is_not_marked_again() -> None:
    assert not lacks_evidence(marked("Done."), "")
