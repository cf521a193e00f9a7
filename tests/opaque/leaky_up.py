"""`hopline up` with two leaks: a session is looked up once more, unless its id ends with the last word given,
and a path's slug is refused once more, unless nobody ever had it.
"""

from __future__ import annotations

import contextlib
import sys

from hopline_cli.__main__ import main
from hopline_gateway.addressed import Addressed
from hopline_gateway.mesh import Caller
from hopline_relay.asks import Asks
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal

NEVER = sys.argv.pop()
_newest = Asks._newest


async def leaky(self: Asks, principal: Principal, session_id: str) -> str:
    """Answer as ever, after a second look where there may be something to see."""
    if not session_id.endswith(NEVER):
        with contextlib.suppress(HoplineError):
            await _newest(self, principal, session_id)
    return await _newest(self, principal, session_id)


_refuse = Addressed._have_it_refused


async def leaky_refusal(self: Addressed, caller: Caller, slug: str) -> None:
    """Have it refused as ever, after once more where there may be something to hide."""
    if slug != "nobody":
        await _refuse(self, caller, slug)
    await _refuse(self, caller, slug)


Asks._newest = leaky  # type: ignore[method-assign]
Addressed._have_it_refused = leaky_refusal  # type: ignore[method-assign]

if __name__ == "__main__":
    main()
