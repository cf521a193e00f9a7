"""Going on with what happens: events as they are committed, over restarts of the relay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hopline_cli.mesh import Mesh

_RECONNECT_SECONDS: Final = (0.2, 1.0, 2.0, 5.0, 5.0, 5.0)


async def follow(mesh: Mesh, request: Any, show: Callable[[Any], Awaitable[None]]) -> None:
    """Call `show` with each event; a relay that goes away is given some time to come back."""
    from hopline_rpc.errors import HoplineError

    failures = 0
    while True:
        try:
            async for page in mesh.events.WatchEvents(request):
                failures = 0
                for event in page.events:
                    await show(event)
                    request.after_seq = event.seq
        except HoplineError as error:
            if error.reason != "unavailable" or failures == len(_RECONNECT_SECONDS):
                raise
        await asyncio.sleep(_RECONNECT_SECONDS[min(failures, len(_RECONNECT_SECONDS) - 1)])
        failures += 1


async def newest_seq(mesh: Mesh) -> int:
    """Return the number of the newest event that the caller may see; 0 for none."""
    from hopline.relay.v1 import audit_pb2 as pb

    found = await mesh.events.ListEvents(pb.ListEventsRequest(page_size=1, descending=True))
    return found.events[0].seq if found.events else 0
