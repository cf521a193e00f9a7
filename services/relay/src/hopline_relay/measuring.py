"""What there is to measure of the relay: what it counted, what it holds, what the record says."""

from __future__ import annotations

from collections.abc import Sequence

from hopline_rpc.clock import Clock
from hopline_rpc.metrics import Family, Kept, counter, gauge, histogram, total

from hopline_relay.dispatch import Dispatcher
from hopline_relay.journal import Journal
from hopline_relay.store import measured
from hopline_relay.waits import Waits


class Measuring:
    """Answers scrapes."""

    def __init__(self, journal: Journal, dispatcher: Dispatcher, waits: Waits, clock: Clock) -> None:
        self._journal = journal
        self._dispatcher = dispatcher
        self._waits = waits
        self._clock = clock
        self._kept = Kept(self._read, clock)

    async def families(self) -> list[Family]:
        """Return everything; of the record what was read lately."""
        store = self._journal.database.measure("relay")
        return [*self._counted(), *self._held(), *store, *await self._kept.get()]

    def _counted(self) -> list[Family]:
        meters = self._journal.meters
        runs = [
            (
                {
                    "messaging.system": "hopline",
                    "messaging.operation.name": "process",
                    "hopline.outcome": how,
                },
                each,
            )
            for how, each in sorted(meters.runs.items())
        ]
        return [
            histogram("messaging.process.duration", "s", "How long turns ran, by how they ended.", runs),
            histogram(
                "hopline.message.depth",
                "{hop}",
                "The delegation depth of messages let through.",
                [({}, meters.depths)],
            ),
            histogram(
                "hopline.run_queue.wait",
                "s",
                "How long turns stood in a queue before they ran.",
                [({}, meters.queue_waits)],
            ),
            counter(
                "hopline.refusals", "{message}", "What was refused, by reason.", meters.refusals, "error.type"
            ),
            counter(
                "hopline.duplicates",
                "{message}",
                "What came twice and was dropped.",
                meters.duplicates,
                "hopline.duplicate",
            ),
            total(
                "hopline.answers.late",
                "{answer}",
                "Answers that no call waited for any more; they went as messages.",
                meters.late_answers,
            ),
        ]

    def _held(self) -> list[Family]:
        tunnels, running = self._dispatcher.open_tunnels()
        return [
            gauge(
                "hopline.asks.waiting", "{call}", "Calls that wait for an answer here.", self._waits.count()
            ),
            gauge("hopline.tunnels", "{tunnel}", "Workers that are attached here.", tunnels),
            gauge("hopline.turns.held", "{turn}", "Turns in the hands of those workers.", running),
        ]

    async def _read(self) -> Sequence[Family]:
        found, now = await self._journal.read(measured.standing), self._clock.now()
        return [
            gauge(
                "hopline.inbox.depth",
                "{message}",
                "Messages that no agent has taken up yet.",
                found.inbox_depth,
            ),
            gauge(
                "hopline.inbox.deepest", "{message}", "Messages in the fullest inbox.", found.deepest_inbox
            ),
            gauge(
                "hopline.inbox.oldest.age",
                "s",
                "Since when the oldest message waits for its agent to take it up; 0 without one.",
                _age(found.oldest_unread, now),
            ),
            gauge("hopline.dead_letters", "{message}", "Dead letters that lie here.", found.dead_letters),
            gauge(
                "hopline.escalations.pending",
                "{question}",
                "Questions that no owner has answered.",
                found.escalations,
            ),
            gauge(
                "hopline.escalations.oldest.age",
                "s",
                "Since when the oldest of them waits; 0 without one.",
                _age(found.oldest_escalation, now),
            ),
            gauge(
                "hopline.roots.exhausted",
                "{root}",
                "Roots that have started all they may.",
                found.exhausted_roots,
            ),
            gauge("hopline.wakes.failed", "{agent}", "Agents that could not be woken.", found.failed_wakes),
        ]


def _age(since: float | None, now: float) -> float:
    return 0.0 if since is None else max(0.0, now - since)
