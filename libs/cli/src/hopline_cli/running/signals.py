"""Ending in order: the first signal asks for it, a second one does not wait any longer."""

from __future__ import annotations

import asyncio
import os
import signal
import sys


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM, SIGINT or SIGHUP sets; one more of them ends the process at once.

    SIGHUP is the terminal that was closed; under `nohup` it changes nothing.
    """
    stop = asyncio.Event()

    def on_signal(number: int) -> None:
        if stop.is_set():
            print("hopline: ending without draining", file=sys.stderr)
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
            continue
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    return stop
