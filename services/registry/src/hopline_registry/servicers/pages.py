"""Pages of agents that are in memory, in order of slug."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from hopline_directory import AgentRecord
from hopline_rpc.paging import Pager, page_size


def page_of(
    agents: Sequence[AgentRecord], pager: Pager, query: Sequence[str], size: int, token: str
) -> tuple[Sequence[AgentRecord], str]:
    """Return a page, and the token of the next one; empty when there is none."""
    count = page_size(size)
    (after,) = pager.position(query, token) or [""]
    start = bisect_right(agents, str(after), key=lambda agent: agent.slug)
    page = agents[start : start + count]
    more = start + count < len(agents)
    return page, pager.token(query, [page[-1].slug]) if more else ""
