"""The other relays on the same record: each says that it lives, and takes over what a dead one has left.

Rows are the truth, and a look at them twice a second is all that is needed: turns that another relay has
queued for tunnels that are here, ends that it has written of what calls here wait for, cancellations of what
workers here have in hand, and whose tunnels are where. Only with PostgreSQL, and only where services run as
processes of their own; a relay that has its record alone has no siblings and looks at nothing.

Whoever was not seen for a while, by the database's clock, is declared dead, after which it can commit no
more. Should it live after all, it drops its tunnels and its waits, and begins anew under another name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock
from hopline_rpc.ids import IdMaker

from hopline_relay.dispatch import NOT_YOURS, Dispatcher
from hopline_relay.inbox import Inbox
from hopline_relay.journal import Journal
from hopline_relay.signals import Signals
from hopline_relay.store import replicas
from hopline_relay.store.replicas import Agent, Whereabouts
from hopline_relay.turns import Turns
from hopline_relay.waits import Waits

log = logging.getLogger("hopline.relay.siblings")

BEAT_SECONDS: Final = 0.5
# After so much silence a relay is declared dead.
SILENT_SECONDS: Final = 6.0
# Every so many beats is told which agents are busy; where they are is told at once.
_BUSY_BEATS: Final = 4
_HELD_DEAD: Final = "the relay was held for dead and begins anew; attach again"


@dataclass(slots=True)
class _Look:
    """What is asked of the record in one beat, and what it says."""

    instance_id: str
    changed: dict[Agent, Whereabouts | None]
    tunnels: int
    wanting: list[Agent]
    waited_for: list[tuple[str, str]]
    held: list[tuple[str, str, int, int]]
    known: dict[str, tuple[int, str]]
    address: str
    lives: bool = True
    fenced: list[str] = field(default_factory=list)
    others: dict[str, tuple[int, str]] = field(default_factory=dict)
    told: dict[str, dict[Agent, Whereabouts]] = field(default_factory=dict)
    with_work: set[Agent] = field(default_factory=set)
    ended: set[tuple[str, str]] = field(default_factory=set)
    lost: list[replicas.Lost] = field(default_factory=list)


class Siblings:
    """Keeps up with them."""

    def __init__(
        self,
        journal: Journal,
        dispatcher: Dispatcher,
        turns: Turns,
        waits: Waits,
        inbox: Inbox,
        signals: Signals,
        ids: IdMaker,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._dispatcher = dispatcher
        self._turns = turns
        self._waits = waits
        self._inbox = inbox
        self._signals = signals
        self._ids = ids
        self._clock = clock
        # Called once relays are no more, with whether they died: what they have left is to be taken over.
        self.on_gone: Callable[[bool], Awaitable[None]] = _leave
        # Called with each beat, for what is kept in memory and written by others.
        self.on_beat: Callable[[], Awaitable[None]] = _nothing
        # Says where the others reach this one; empty before it listens.
        self.address_source: Callable[[], str] = lambda: ""
        self._beats = 0
        # What was told of the agents here, and how often that changed.
        self._said: dict[Agent, Whereabouts] = {}
        self._tunnels = 0
        # What others say of theirs, and how often that had changed.
        self._known: dict[str, tuple[int, str]] = {}
        self._told: dict[str, dict[Agent, Whereabouts]] = {}
        self._elsewhere: dict[Agent, Whereabouts] = {}
        self._taking_over: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        if journal.shared:
            self._look_beyond()

    # --- whose tunnels are where ------------------------------------------------------------------

    def _look_beyond(self) -> None:
        """Have presence, isolation and places count what is attached to other relays, too."""
        here = self._dispatcher

        def presence(workspace_id: str, agent_id: str) -> str | None:
            own, there = here.presence(workspace_id, agent_id), self.there(workspace_id, agent_id)
            if there is None or own == "busy":
                return own
            return "busy" if there.held else "idle"

        def isolation(workspace_id: str, agent_id: str) -> str:
            own, there = here.isolation(workspace_id, agent_id), self.there(workspace_id, agent_id)
            if there is None or not own:
                return own if there is None else there.isolation
            return own if own == there.isolation else "none"

        def places(workspace_id: str, agent_id: str) -> int:
            there = self.there(workspace_id, agent_id)
            return here.places(workspace_id, agent_id) + (there.places if there is not None else 0)

        self._turns.presence_source = presence
        self._turns.isolation_source = isolation
        self._turns.places_source = places
        self._inbox.pulls_elsewhere = lambda *agent: agent in self._elsewhere

    def there(self, workspace_id: str, agent_id: str) -> Whereabouts | None:
        """Return what other relays have of an agent's tunnels."""
        found = self._elsewhere.get((workspace_id, agent_id))
        return found if found is not None and found.places else None

    @property
    def have_any(self) -> bool:
        """Whether another relay lives on this record."""
        return bool(self._known)

    def addresses(self, workspace_id: str, agent_id: str) -> list[str]:
        """Return the addresses of the other relays at which workers of an agent are attached."""
        key = (workspace_id, agent_id)
        return [
            self._known[each][1]
            for each, told in self._told.items()
            if key in told and told[key].places and self._known[each][1]
        ]

    # --- living -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to say that this relay lives; it is written down already."""
        if self._journal.shared:
            self._task = detach(self._run(), name="relay siblings")

    async def close(self) -> None:
        """Stop."""
        tasks = {task for task in (self._task, *self._taking_over) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self) -> None:
        while True:
            try:
                await self.beat()
            except Exception as error:
                log.warning("what other relays do cannot be looked at: %s", type(error).__name__)
                log.debug("it failed", exc_info=True)
            await self._clock.sleep(BEAT_SECONDS)

    async def beat(self) -> None:
        """Say that this relay lives, and do what others have made necessary."""
        look = self._ask()
        await asyncio.to_thread(self._look, look)
        if not look.lives:
            await self._begin_anew(look.instance_id)
            return
        self._said = {key: each for key, each in {**self._said, **look.changed}.items() if each is not None}
        self._tunnels = look.tunnels
        self._take(look)
        await self.on_beat()

    def _ask(self) -> _Look:
        self._beats += 1
        changed = self._changed()
        held = [
            (attachment.key[0], each.turn_id, each.attempt, attachment.epoch)
            for attachment, each in self._dispatcher.everything_held()
        ]
        return _Look(
            instance_id=self._journal.instance_id,
            changed=changed,
            tunnels=self._tunnels + bool(changed),
            wanting=list({*self._dispatcher.wanting(), *self._signals.waiting()}),
            waited_for=self._waits.keys(),
            held=held,
            known=dict(self._known),
            address=self.address_source(),
        )

    def _changed(self) -> dict[Agent, Whereabouts | None]:
        """Return what is to be told of the agents here."""
        now = {key: Whereabouts(0, 0, "") for key in self._inbox.pullers()}
        for key, each in self._dispatcher.whereabouts().items():
            now[key] = Whereabouts(*each)
            said = self._said.get(key)
            if said is not None and self._beats % _BUSY_BEATS:
                now[key] = now[key]._replace(held=said.held)
        changed: dict[Agent, Whereabouts | None] = {
            key: each for key, each in now.items() if self._said.get(key) != each
        }
        return changed | dict.fromkeys(self._said.keys() - now.keys())

    def _look(self, look: _Look) -> None:
        """Ask all of it at once; on a thread."""
        engine = self._journal.database.engine
        with engine.begin() as connection:
            look.lives = replicas.beat(connection, look.instance_id, look.tunnels, look.address)
            if look.lives and look.changed:
                replicas.tell(connection, look.instance_id, look.changed)
        if not look.lives:
            return
        with engine.begin() as connection:
            look.fenced = replicas.fence(connection, SILENT_SECONDS)
            look.others = replicas.others(connection, look.instance_id)
            news = [each for each, count in look.others.items() if look.known.get(each) != count]
            if news:
                look.told = replicas.told(connection, news)
            look.with_work = replicas.with_work(connection, look.wanting)
            look.ended = replicas.ended(connection, look.waited_for)
            look.lost = replicas.lost(connection, look.held)

    def _take(self, look: _Look) -> None:
        if look.told or look.others.keys() != self._known.keys():
            told = {**self._told, **look.told}
            self._told = {each: told[each] for each in look.others}
            self._elsewhere = _together(self._told.values())
        gone = self._known.keys() - look.others.keys()
        self._known = look.others
        self._signals.claimable(look.with_work)
        self._waits.ended_elsewhere(look.ended)
        self._stop(look.lost)
        if look.fenced:
            log.warning("relays that were not heard of any more count as dead: %s", ", ".join(look.fenced))
        if look.fenced or gone:
            task = detach(self._take_over(died=bool(look.fenced)), name="relay take-over")
            self._taking_over.add(task)
            task.add_done_callback(self._taking_over.discard)

    def _stop(self, lost: list[replicas.Lost]) -> None:
        """Tell workers of turns that were ended elsewhere, or moved there with another tunnel."""
        gone = {(each.turn_id, each.attempt, each.epoch): each.reason for each in lost}
        if not gone:
            return
        self._dispatcher.cancel(
            (*attachment.key, held, gone[held.turn_id, held.attempt, attachment.epoch] or NOT_YOURS)
            for attachment, held in self._dispatcher.everything_held()
            if (held.turn_id, held.attempt, attachment.epoch) in gone
        )

    # --- dying ------------------------------------------------------------------------------------

    async def _take_over(self, *, died: bool) -> None:
        """Take over what relays have left that are no more, however often it takes."""
        while True:
            try:
                await self.on_gone(died)
            except Exception as error:
                log.warning("what a dead relay has left is taken over later: %s", error)
            else:
                return
            await self._clock.sleep(BEAT_SECONDS)

    async def _begin_anew(self, dead: str) -> None:
        """Go on under another name: what this relay had in hand is in others' by now."""
        log.warning("this relay counted as dead for the others, and begins anew")
        fresh = self._ids.new_id("ins")

        def begin() -> None:
            with self._journal.database.engine.begin() as connection:
                replicas.begin(connection, fresh, self._clock.now())

        await asyncio.to_thread(begin)
        self._journal.instance_id = fresh
        self._said, self._tunnels = {}, 0
        self._dispatcher.end_all(_HELD_DEAD)
        self._waits.lose_all()
        log.info("%s goes on as %s", dead, fresh)


def _together(found: Iterable[Mapping[Agent, Whereabouts]]) -> dict[Agent, Whereabouts]:
    """Return what all of them say of each agent."""
    together: dict[Agent, Whereabouts] = {}
    for each in found:
        for key, there in each.items():
            known = together.get(key)
            if known is None or not known.places:
                together[key] = there
            elif there.places:
                isolation = known.isolation if known.isolation == there.isolation else "none"
                together[key] = Whereabouts(
                    known.places + there.places, max(known.held, there.held), isolation
                )
    return together


def reachable(address: str) -> str:
    """Return where others reach what listens on an address; empty where that does not say."""
    host = address.rpartition(":")[0].strip("[]")
    return "" if host in {"0.0.0.0", "::", "*"} else address  # noqa: S104 - it is looked for, not bound to


async def _leave(died: bool) -> None:
    """Stand in for whoever takes over."""


async def _nothing() -> None:
    """Stand in where there is nothing to be done."""
