"""Turns that start in the very transaction that queues them, because somebody waits for one.

A place is offered to a message's turn before it is written: one at a worker, with a run slot, or that of a
call that waits for its agent's inbox. In the transaction the turn starts if it is the next one of its
agent; else it stands in the queue like any other, and what it was offered is given back. The call of a tool
starts so or not at all: its turn is never queued.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hopline.quota.v1 import admission_pb2 as quota_pb
from hopline_directory import Directory
from hopline_rpc import telemetry
from hopline_rpc.errors import HoplineError
from hopline_rpc.faults import point

from hopline_relay.admission import Admission
from hopline_relay.claims import Claims
from hopline_relay.dispatch import Dispatcher
from hopline_relay.domain.sources import SOURCES
from hopline_relay.domain.values import LEASE_SECONDS, PULL_LEASE_SECONDS, TOOL
from hopline_relay.held import ClaimWish, Offer, Pull, ToolRun
from hopline_relay.inbox import Inbox
from hopline_relay.signals import Signals
from hopline_relay.store.outgoing import Copy, Outgoing
from hopline_relay.tool_queue import NoPlaceError
from hopline_relay.tool_runs import ToolRuns

_Offered = tuple[Outgoing, Copy, Offer]


class AtOnce:
    """Starts what can start at once."""

    def __init__(
        self,
        claims: Claims,
        directory: Directory,
        admission: Admission,
        signals: Signals,
        dispatcher: Dispatcher,
        inbox: Inbox,
        tools: ToolRuns,
        instance: Callable[[], str],
    ) -> None:
        self._claims = claims
        self._directory = directory
        self._admission = admission
        self._signals = signals
        self._dispatcher = dispatcher
        self._inbox = inbox
        self._tools = tools
        self._instance = instance

    async def offer(self, outgoing: Iterable[Outgoing]) -> dict[str, NoPlaceError]:
        """Take places, and run slots where they are needed, for the turns of admitted messages.

        Returns, by message, why a call of a tool cannot start now.
        """
        left: dict[str, NoPlaceError] = {}
        offered = self._places_for(outgoing, left)
        if not offered:
            return left
        freed = {message.workspace_id: self._signals.freed(message.workspace_id) for message, _, _ in offered}
        try:
            begun = await self._admission.begin([self._begin(*each) for each in offered])
        except HoplineError:
            begun = [False] * len(offered)
        point("relay.offered")
        refused = []
        for (message, copy, offer), runs in zip(offered, begun, strict=True):
            if runs:
                copy.offer = offer
                self._claims.withhold({copy.turn_id})
                continue
            refused.append(offer)
            if message.kind == TOOL:
                left[message.id] = NoPlaceError(copy.id, slot=True)
                self._signals.no_slot((message.workspace_id, copy.id), freed[message.workspace_id])
        self._free(refused)
        return left

    async def started(self, written: Sequence[Outgoing]) -> None:
        """Hand over, after the commit, what has started; the others stand in their queues."""
        offered = _offered(written)
        left = [each for each in offered if each[1].start is None]
        self._hand_over([each for each in offered if each[1].start is not None], written)
        for _, copy, _ in offered:
            copy.offer = None
        try:
            await self._admission.told_ends([_end(*each, quota_pb.END_KIND_REQUEUED) for each in left])
        finally:
            self._claims.release({copy.turn_id for _, copy, _ in offered})
            self._free([offer for _, _, offer in left])

    def dropped(self, outgoing: Iterable[Outgoing]) -> None:
        """Give back what was offered to messages that were not written."""
        offered = _offered(outgoing)
        self._admission.post_ends([_end(*each, quota_pb.END_KIND_DROPPED) for each in offered])
        self._free([offer for _, _, offer in offered])
        self._claims.release({copy.turn_id for _, copy, _ in offered})
        for _, copy, _ in offered:
            copy.offer = None

    def _places_for(self, outgoing: Iterable[Outgoing], left: dict[str, NoPlaceError]) -> list[_Offered]:
        """Keep places for turns that, as far as can be seen, are the next ones of their agents."""
        found: list[_Offered] = []
        pairs = set()
        for message in outgoing:
            if message.kind == TOOL:
                self._place_for_tool(message, found, left)
                continue
            for copy in message.copies:
                pair = (message.workspace_id, message.sender.id, copy.id)
                # A second one goes into the session of the first; one that names a session may find it busy,
                # and so may one of a source, or of a standing conversation, which has but one.
                if not copy.turn_id or copy.wish is None or pair in pairs:
                    continue
                if copy.wish.channel in SOURCES or copy.wish.standing:
                    continue
                pairs.add(pair)
                if not self._claims.active(message.workspace_id, copy.id):
                    continue
                place = self._place(message.workspace_id, copy.id)
                if place is not None:
                    found.append((message, copy, self._offer(message, place)))
        return found

    def _place_for_tool(
        self, message: Outgoing, found: list[_Offered], left: dict[str, NoPlaceError]
    ) -> None:
        copy, workspace_id = message.copies[0], message.workspace_id
        if self._signals.starves(workspace_id):
            left[message.id] = NoPlaceError(copy.id, slot=True)
        elif run := self._tools.take_place(workspace_id, copy.id, message.subject, copy.turn_id):
            found.append((message, copy, self._offer(message, run)))
        else:
            left[message.id] = NoPlaceError(copy.id, slot=False)

    def _place(self, workspace_id: str, agent_id: str) -> ClaimWish | Pull | None:
        # Where others were refused a run slot before, they come first.
        if not self._signals.starves(workspace_id):
            place = self._dispatcher.take_place(workspace_id, agent_id)
            if place is not None:
                return place
        return self._inbox.take_place(workspace_id, agent_id)

    def _offer(self, message: Outgoing, place: ClaimWish | Pull | ToolRun) -> Offer:
        lease = PULL_LEASE_SECONDS if isinstance(place, Pull) else LEASE_SECONDS
        turn: float = self._directory.policy(message.workspace_id).turn_seconds
        if isinstance(place, ToolRun):
            lease = turn = message.run_seconds  # no heartbeat renews it
        return Offer(place, self._instance(), telemetry.reserve(message.traceparent), lease, turn)

    def _begin(self, message: Outgoing, copy: Copy, offer: Offer) -> quota_pb.BeginTurnItem:
        return quota_pb.BeginTurnItem(
            turn_id=copy.turn_id,
            workspace_id=message.workspace_id,
            agent_id=copy.id,
            depth=message.depth,
            root_id=message.root_id,
            attempt=1,
            needs_slot=not isinstance(offer.place, Pull),
            concurrent_runs=self._directory.policy(message.workspace_id).concurrent_runs,
        )

    def _hand_over(self, begun: Sequence[_Offered], written: Sequence[Outgoing]) -> None:
        places, turns = [], []
        unread = _unread(written) if begun else Counter()
        for message, copy, offer in begun:
            if isinstance(offer.place, ToolRun):
                self._tools.start(offer.place, message, copy)
                continue
            newer = unread[message.workspace_id, copy.id, message.sender.id]
            if not isinstance(offer.place, Pull):
                places.append(offer.place)
                turns.append(self._claims.started(offer.place, message, copy, newer))
                continue
            remaining = unread[message.workspace_id, copy.id, ""]
            self._inbox.hand_over(offer.place, message, copy, remaining, newer)
        self._dispatcher.hand_over(places, turns)

    def _free(self, offers: Iterable[Offer]) -> None:
        """Give places back for which there is no turn."""
        places = []
        for offer in offers:
            if isinstance(offer.place, ToolRun):
                self._tools.free(offer.place)
            elif isinstance(offer.place, Pull):
                self._inbox.free_place(offer.place)
            else:
                places.append(offer.place)
        self._dispatcher.hand_over(places, [])


def _offered(outgoing: Iterable[Outgoing]) -> list[_Offered]:
    return [
        (message, copy, copy.offer)
        for message in outgoing
        for copy in message.copies
        if copy.offer is not None
    ]


def _unread(written: Iterable[Outgoing]) -> Counter[tuple[str, str, str]]:
    """Count what was written with a message and stands in the queue, by agent and by sender (empty: all)."""
    return Counter(
        (message.workspace_id, copy.id, sender)
        for message in written
        for copy in message.copies
        if copy.turn_id and copy.start is None
        for sender in ("", message.sender.id)
    )


def _end(message: Outgoing, copy: Copy, offer: Offer, kind: Any) -> quota_pb.EndTurnItem:
    return quota_pb.EndTurnItem(
        turn_id=copy.turn_id, workspace_id=message.workspace_id, agent_id=copy.id, kind=kind, attempt=1
    )
