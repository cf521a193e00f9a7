"""Keeps what agents in reply mode `all` write, a moment later and many at once, for whoever looks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock, Handle

from hopline_relay.domain.writing import Writing
from hopline_relay.journal import Journal
from hopline_relay.store import outputs
from hopline_relay.store.outputs import Key

log = logging.getLogger("hopline.relay.outputs")

# How long what was written may be unseen.
_FLUSH_SECONDS: Final = 0.25


class Outputs:
    """Writes down what is being written."""

    def __init__(self, journal: Journal, clock: Clock, goes_through_hooks: Callable[[str], bool]) -> None:
        self._journal = journal
        self._clock = clock
        # Whether answers in a workspace are shaped by hooks: then nobody sees one before they have.
        self._goes_through_hooks = goes_through_hooks
        self._changed: dict[Key, tuple[int, Writing]] = {}
        self._alarm: Handle | None = None
        self._writing = False

    def changed(self, key: Key, attempt: int, writing: Writing) -> None:
        """Note that a turn has written more."""
        if self._goes_through_hooks(key[0]):
            return
        self._changed[key] = (attempt, writing)
        if self._alarm is None and not self._writing:
            self._alarm = self._clock.call_later(_FLUSH_SECONDS, self._begin)

    def ended(self, key: Key) -> None:
        """Keep no more of a turn that has ended."""
        self._changed.pop(key, None)

    async def load(self, keys: Sequence[Key]) -> dict[Key, tuple[int, Writing]]:
        """Return what turns had written that go on here, by attempt."""
        rows = await self._journal.read(lambda connection: outputs.of_turns(connection, keys))
        return {key: (row.attempt, Writing(row.body)) for key, row in rows.items()}

    async def flush(self) -> None:
        """Write down all that was noted."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        changed, self._changed = self._changed, {}
        if not changed:
            return
        texts = {key: (attempt, writing.text) for key, (attempt, writing) in changed.items()}
        self._writing = True
        try:
            within = [workspace_id for workspace_id, _ in texts]
            await self._journal.write(lambda book: outputs.write(book, texts), within=within)
        except Exception:
            # What comes next is written whole; the answer itself does not go this way.
            log.warning("what is being written cannot be kept just now", exc_info=True)
        finally:
            self._writing = False
        if self._changed:
            self._alarm = self._clock.call_later(_FLUSH_SECONDS, self._begin)

    def _begin(self) -> None:
        self._alarm = None
        detach(self.flush(), name="relay outputs")
