"""Ending in order: the first signal asks for it, a second one does not wait any longer."""

from __future__ import annotations

import asyncio
import os
import signal
import sys


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets; one more of them ends the process at once."""
    stop = asyncio.Event()

    def on_signal(number: int) -> None:
        if stop.is_set():
            print("hopline: ending without draining", file=sys.stderr)
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    return stop
