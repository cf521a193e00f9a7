"""Turns that start in the very transaction that queues them, because a worker waits for one.

A place at the worker and a run slot are offered to a message's turn before it is written. In the
transaction it starts if it is the next one of its agent; else it stands in the queue like any other, and
what it was offered is given back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from hopline.quota.v1 import admission_pb2 as quota_pb
from hopline_rpc.errors import HoplineError
from hopline_rpc.faults import point

from hopline_relay.admission import Admission
from hopline_relay.claims import Claims, Started
from hopline_relay.held import ClaimedTurn, ClaimWish
from hopline_relay.signals import Signals
from hopline_relay.store.book import Book
from hopline_relay.store.outgoing import Copy, Outgoing


class Places(Protocol):
    """The workers' places of this process."""

    def take_place(self, workspace_id: str, agent_id: str) -> ClaimWish | None:
        """Keep a free place for one turn, until it is handed over."""
        ...

    def hand_over(self, places: Sequence[ClaimWish], claimed: Sequence[ClaimedTurn]) -> None:
        """Give turns to the workers whose places were kept for them; places that are left are free again."""
        ...


class AtOnce:
    """Starts what can start at once."""

    def __init__(self, claims: Claims, admission: Admission, signals: Signals, places: Places) -> None:
        self._claims = claims
        self._admission = admission
        self._signals = signals
        self._places = places

    async def offer(self, outgoing: Iterable[Outgoing]) -> None:
        """Take places and run slots for the turns of admitted messages, where there are any."""
        offered = self._places_for(outgoing)
        if not offered:
            return
        try:
            slots = await self._admission.begin(
                [self._claims.begin_item(message, copy) for message, copy, _ in offered]
            )
        except HoplineError:
            slots = [False] * len(offered)
        point("relay.offered")
        refused = []
        for (_, copy, place), slot in zip(offered, slots, strict=True):
            if slot:
                copy.offer = place
                self._claims.withheld.add(copy.turn_id)
            else:
                refused.append(place)
        self._places.hand_over(refused, [])

    def start(self, book: Book, outgoing: Iterable[Outgoing]) -> Started:
        """Start, in the transaction that has written these messages, the turns that may."""
        offered = _offered(outgoing)
        places = [copy.offer for _, copy in offered if copy.offer is not None]
        return self._claims.start_in(book, places, {copy.turn_id for _, copy in offered})

    async def started(self, written: Sequence[Outgoing], started: Started) -> None:
        """Hand over, after the commit, what has started; the others stand in their queues."""
        running = {start.row.id for _, start in started.starts}
        places = [copy.offer for _, copy in _offered(written) if copy.offer is not None]
        left = []
        for message, copy in _offered(written):
            copy.started, copy.offer = copy.turn_id in running, None
            if copy.started:
                self._claims.withheld.discard(copy.turn_id)
            else:
                left.append((message, copy))
        self._places.hand_over(places, self._claims.claimed(started))
        if left:
            ends = [_end(*each, quota_pb.END_KIND_REQUEUED) for each in left]
            with self._claims.withholding({copy.turn_id for _, copy in left}):
                await self._admission.told_ends(ends)

    def dropped(self, outgoing: Iterable[Outgoing]) -> None:
        """Give back what was offered to messages that were not written."""
        offered = _offered(outgoing)
        self._admission.post_ends([_end(*each, quota_pb.END_KIND_DROPPED) for each in offered])
        self._places.hand_over([copy.offer for _, copy in offered if copy.offer is not None], [])
        for _, copy in offered:
            self._claims.withheld.discard(copy.turn_id)
            copy.offer = None

    def _places_for(self, outgoing: Iterable[Outgoing]) -> list[tuple[Outgoing, Copy, ClaimWish]]:
        """Keep places for turns that, as far as can be seen, are the next ones of their agents."""
        found = []
        pairs = set()
        for message in outgoing:
            if self._signals.starves(message.workspace_id):
                continue  # others were refused a run slot before
            for copy in message.copies:
                pair = (message.workspace_id, message.sender.id, copy.id)
                # A second one goes into the session of the first; one that names a session may find it busy.
                if not copy.turn_id or copy.wish is None or pair in pairs:
                    continue
                pairs.add(pair)
                if self._claims.active(message.workspace_id, copy.id):
                    place = self._places.take_place(message.workspace_id, copy.id)
                    if place is not None:
                        found.append((message, copy, place))
        return found


def _offered(outgoing: Iterable[Outgoing]) -> list[tuple[Outgoing, Copy]]:
    return [(message, copy) for message in outgoing for copy in message.copies if copy.offer is not None]


def _end(message: Outgoing, copy: Copy, kind: Any) -> quota_pb.EndTurnItem:
    return quota_pb.EndTurnItem(
        turn_id=copy.turn_id, workspace_id=message.workspace_id, agent_id=copy.id, kind=kind, attempt=1
    )
