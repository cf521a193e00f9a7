"""When signing keys begin and end."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise


def outlived(keys: Iterable[tuple[str, float]], now: float, grace: float) -> list[str]:
    """Return the ids of keys that no assertion in use can be signed with any more.

    `keys` are (id, signs from). A key signs until the next one begins; `grace` is the life of an
    assertion with room for clocks that differ.
    """
    ordered = sorted(keys, key=lambda key: key[1])
    return [kid for (kid, _), (_, next_begins) in pairwise(ordered) if next_begins + grace <= now]
