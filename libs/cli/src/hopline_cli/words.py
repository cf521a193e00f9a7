"""Words of people for values of the contract: `receive-only`, `webhook` addresses."""

from __future__ import annotations

from typing import Any

from hopline.registry.v1 import agent_pb2 as pb


def words_of(kind: Any) -> dict[str, int]:
    """Return the words for an enum's values, as people write them: `receive-only`."""
    prefix = kind.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {
        each.name.removeprefix(prefix).lower().replace("_", "-"): each.number
        for each in kind.values
        if each.number
    }


def number_of(kind: Any, word: str) -> int | None:
    """Return an enum's value for a word, in either way of writing it; None for one that there is not."""
    return words_of(kind).get(word.lower().replace("_", "-"))


def wake_of(word: str) -> pb.Wake | None:
    """Return how an agent is woken: `none`, `exec` or the URL of a webhook; None for anything else."""
    if word.startswith(("http://", "https://")):
        return pb.Wake(kind=pb.WAKE_KIND_WEBHOOK, webhook_url=word)
    kinds = {"none": pb.WAKE_KIND_NONE, "exec": pb.WAKE_KIND_EXEC}
    return pb.Wake(kind=kinds[word]) if word in kinds else None
