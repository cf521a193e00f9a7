"""The hooks that are the mesh's own, each switched on by a key of the workspace's policy. They come first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from hopline_directory import Policy

from hopline_relay.domain import evidence
from hopline_relay.domain.redaction import redact, redact_json
from hopline_relay.hooks.items import MESSAGE, Item, Verdict, Words


class BuiltIn(NamedTuple):
    """A hook without a plugin."""

    name: str
    is_on: Callable[[Policy], bool]
    decide: Callable[[Item, Words], Verdict]


def _redact(item: Item, words: Words) -> Verdict:
    return Verdict(Words(redact(words.text), redact(words.subject), redact_json(words.payload)))


def _ask_for_evidence(item: Item, words: Words) -> Verdict:
    """Mark a report, rather than keep it from whoever waits for it."""
    if item.is_report and evidence.lacks_evidence(words.text, words.payload):
        return Verdict(Words(evidence.marked(words.text), words.subject, words.payload))
    return Verdict()


_BUILT_IN: Final = (
    BuiltIn("redact_credentials", lambda policy: policy.redact_credentials, _redact),
    BuiltIn("evidence_required", lambda policy: policy.evidence_required, _ask_for_evidence),
)


def built_in(policy: Policy, kind: str) -> Iterator[BuiltIn]:
    """Yield those that are on for a kind."""
    if kind == MESSAGE:
        yield from (each for each in _BUILT_IN if each.is_on(policy))
