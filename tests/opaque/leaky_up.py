"""`hopline up` with a leak: a session is looked up once more, unless its id ends with the last word given."""

from __future__ import annotations

import contextlib
import sys

from hopline_cli.__main__ import main
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


Asks._newest = leaky  # type: ignore[method-assign]

if __name__ == "__main__":
    main()
