"""`python -m hopline_cli.probe [ready]`: whether the service of this container lives, or can serve.

For what watches containers. Asks `/healthz` (or `/readyz`) of the status port that HOPLINE_METRICS names, by
loopback; exit status 0 or 1.
"""

from __future__ import annotations

import os
import sys
import urllib.request
from typing import Final

from hopline_cli.tls import client_context

_SECONDS: Final = 3.0


def main(words: list[str]) -> int:
    """Look once."""
    path = "readyz" if words == ["ready"] else "healthz"
    port = os.environ.get("HOPLINE_METRICS", "").rpartition(":")[2]
    if not port.isdecimal():
        return 0  # nothing to ask: a command that runs and ends
    scheme = "https" if os.environ.get("HOPLINE_TLS_CERT") else "http"
    handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=client_context()))
    opener = urllib.request.build_opener(*handlers)
    try:
        with opener.open(f"{scheme}://127.0.0.1:{port}/{path}", timeout=_SECONDS) as answer:
            return 0 if answer.status == 200 else 1
    except OSError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
