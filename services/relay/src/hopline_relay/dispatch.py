"""Which worker gets which turn: the attachments of this process, and one claim for everything ready.

Whoever makes a turn claimable says so (`wake`), and so does room that comes free. All that was said since
the last claim goes into the next one, which is in flight alone; what is said meanwhile starts another. So
nothing waits on a timer, nothing is claimed twice, and no wake-up is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from hopline.relay.v1.message_pb2 import Message
from hopline.runtime.v1.tunnel_pb2 import CancelTurn, RelayItem, StartTurn
from hopline_directory.directory import Directory
from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock, from_timestamp, to_timestamp
from hopline_rpc.errors import HoplineError
from hopline_rpc.faults import point
from hopline_rpc.principals import Principal

from hopline_relay.domain.prompt import Inbound, prompt
from hopline_relay.domain.sources import SOURCES
from hopline_relay.domain.writing import Writing
from hopline_relay.held import Known, ToolRun
from hopline_relay.hooks.prompts import PromptHooks
from hopline_relay.tool_schemas import Tool
from hopline_relay.turns import ClaimedTurn, ClaimWish, Held, Turns

log = logging.getLogger("hopline.relay.dispatch")

# Turns asked for in one claim, and of one agent in it: a busy agent waits for its neighbours' turn.
MAX_CLAIM: Final = 256
MAX_CLAIM_AGENT: Final = 32
_RETRY_SECONDS: Final = 0.25
NOT_ISOLATED: Final = (
    "the workspace requires isolation: attach with --user, so that the command cannot read "
    "the agent's credential"
)
NOT_YOURS: Final = "the turn is no longer this worker's"


class Sink(Protocol):
    """The stream an attachment lives on."""

    def ready(self) -> bool:
        """Whether it takes more turns now; after a no it wakes the dispatcher when it does again."""
        ...

    def send(self, item: RelayItem) -> None:
        """Queue an item for the worker; never waits, never fails."""
        ...

    def end(self, attachment: Attachment, code: str, message: str) -> None:
        """Tell the worker that the attachment has ended, and take it off the dispatcher."""
        ...


@dataclass(slots=True)
class Holding:
    """A turn in a worker's hands. `ours` is False once it was cancelled, lost or moved elsewhere.

    `starting`: its worker has not been sent it yet, because hooks look at its system prompt.
    """

    attempt: int
    known: Known | None = None
    ours: bool = True
    accepted: bool = False
    ending: bool = False
    starting: bool = False
    # What an agent in reply mode `all` has written in it.
    writing: Writing | None = None


@dataclass(slots=True, eq=False)
class Attachment:
    """One agent on one stream."""

    number: int
    principal: Principal
    epoch: int
    max_turns: int
    isolation: str
    sink: Sink
    held: dict[str, Holding] = field(default_factory=dict)
    # Places kept for turns that are on their way; whether more was to be had when all were taken.
    promised: int = 0
    wanted: bool = False
    # What others may call here; the turns of such calls, kept places included, and those that run by number.
    tools: Mapping[str, Tool] = field(default_factory=dict)
    tool_turns: set[str] = field(default_factory=set)
    tool_calls: dict[int, ToolRun] = field(default_factory=dict)
    tool_count: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """Workspace and agent."""
        return self.principal.workspace_id, self.principal.id

    @property
    def room(self) -> int:
        """How many turns more than it holds it takes."""
        return self.max_turns - len(self.held)

    @property
    def free(self) -> int:
        """How many places are neither taken nor promised."""
        return self.room - self.promised

    def runs(self, turn_id: str) -> bool:
        """Tell whether this worker runs a turn, a call of a tool included."""
        return turn_id in self.held or turn_id in self.tool_turns

    def still_held(self) -> list[Held]:
        """The turns that are this worker's."""
        return [Held(turn_id, holding.attempt) for turn_id, holding in self.held.items() if holding.ours]


class Dispatcher:
    """Hands turns to the attachments of this process; one for each relay."""

    def __init__(self, turns: Turns, directory: Directory, clock: Clock) -> None:
        self._turns = turns
        self._directory = directory
        self._clock = clock
        self._agents: dict[tuple[str, str], list[Attachment]] = {}
        # Agents whose queue may hold something, by workspace, in the order in which they were named.
        self._marked: dict[str, dict[str, None]] = {}
        self._news = asyncio.Event()
        self.draining = False
        # What hooks make of system prompts; set by whoever has hooks.
        self.prompts: PromptHooks | None = None
        # Ends the call of a tool at its worker; False for any other turn.
        self.stop_tool: Callable[[str], bool] = lambda turn_id: False
        self._handing = 0
        self._early_cancels: set[Held] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._loop_task: asyncio.Task[None] | None = None
        # Called with (workspace_id, agent_id) whose worker has come.
        self._on_attached: list[Callable[[str, str], None]] = []
        turns.on_claimable = self.wake
        turns.on_cancel = self.cancel
        turns.on_agent_gone = self.end_agent
        turns.on_policy = self.require_isolation
        turns.presence_source = self.presence
        turns.isolation_source = self.isolation
        turns.places_source = self.places

    def start(self) -> None:
        """Begin to hand out turns."""
        self._loop_task = detach(self._run(), name="relay dispatch")

    def is_alive(self) -> bool:
        """Tell whether turns are still handed out."""
        return self._loop_task is not None and not self._loop_task.done()

    def drain(self) -> None:
        """Hand out nothing more."""
        self.draining = True

    async def close(self) -> None:
        """Stop; returns when everything that was under way in the store is done."""
        self.drain()
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.wait({self._loop_task})
        while self._background:
            await asyncio.wait(set(self._background))

    def spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Do something in the store that must not end with the stream that caused it."""
        task = detach(_logged(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    # -- attachments -------------------------------------------------------------------------------

    def attachments(self, workspace_id: str, agent_id: str) -> Sequence[Attachment]:
        """Return the attachments of an agent, the newest last."""
        return self._agents.get((workspace_id, agent_id), ())

    def on_attached(self, listener: Callable[[str, str], None]) -> None:
        """Have `listener` called with the workspace and the id of each agent whose worker comes."""
        self._on_attached.append(listener)

    def add(self, attachment: Attachment) -> None:
        """Take an attachment; an older one that held the same turns is a stream its worker has left."""
        for older in list(self._agents.get(attachment.key, ())):
            shared = older.held.keys() & attachment.held.keys()
            for turn_id in shared:
                del older.held[turn_id]
            if shared:
                older.sink.end(older, "unavailable", "replaced by a newer attachment of the same worker")
        self._agents.setdefault(attachment.key, []).append(attachment)
        for listener in self._on_attached:
            listener(*attachment.key)
        self.wake({attachment.key})

    def remove(self, attachment: Attachment) -> None:
        """Forget an attachment; what it still holds waits for its worker to come back."""
        others = self._agents.get(attachment.key, [])
        if attachment not in others:
            return
        others.remove(attachment)
        if not others:
            del self._agents[attachment.key]
        unsent = [Held(key, each.attempt) for key, each in attachment.held.items() if each.starting]
        if unsent:
            self.give_back(attachment, unsent)
        held = attachment.still_held()
        attachment.held.clear()
        if held:
            self.spawn(self._turns.tunnel_lost(*attachment.key, held, attachment.epoch))

    def ended(self, attachment: Attachment, turn_id: str) -> None:
        """Give the room of an ended turn to the next one."""
        if attachment.held.pop(turn_id, None) is not None and attachment.wanted:
            self.wake({attachment.key})

    def give_back(self, attachment: Attachment, held: list[Held]) -> None:
        """Queue turns again that never reached the worker."""
        for one in held:
            attachment.held.pop(one.turn_id, None)
        self.spawn(self._turns.give_back(*attachment.key, held, attachment.epoch))

    async def renew(self, attachment: Attachment) -> None:
        """Renew the leases of all that the worker holds, and tell it what is not its any more."""
        held = attachment.still_held()
        if not held:
            return
        for lost in await self._turns.renew(*attachment.key, held, attachment.epoch):
            self._stop(attachment, lost, NOT_YOURS)

    # -- what the turns tell -----------------------------------------------------------------------

    def wake(self, keys: Iterable[tuple[str, str]]) -> None:
        """Look at these agents' queues."""
        for key in keys:
            attachments = self._agents.get(key, ())
            roomy = any(attachment.room > 0 for attachment in attachments)
            for attachment in attachments:
                attachment.wanted = not roomy
            if roomy:
                workspace_id, agent_id = key
                self._marked.setdefault(workspace_id, {})[agent_id] = None
                self._news.set()

    def cancel(self, stopped: Iterable[tuple[str, str, Held, str]]) -> None:
        """Tell the workers of these turns to stop."""
        for workspace_id, agent_id, held, reason in stopped:
            for attachment in self._agents.get((workspace_id, agent_id), ()):
                if held.turn_id in attachment.held:
                    self._stop(attachment, held, reason)
                    break
            else:
                if not self.stop_tool(held.turn_id) and self._handing:
                    self._early_cancels.add(held)

    def end_agent(self, workspace_id: str, agent_id: str, token_id: str, code: str, message: str) -> None:
        """End the attachments of an agent, or those of one of its tokens."""
        for attachment in list(self._agents.get((workspace_id, agent_id), ())):
            if not token_id or attachment.principal.token_id == token_id:
                attachment.sink.end(attachment, code, message)

    def require_isolation(self, workspace_id: str) -> None:
        """End the attachments that the workspace's policy does not allow any more."""
        if not self._directory.policy(workspace_id).require_isolation:
            return
        for key in [key for key in self._agents if key[0] == workspace_id]:
            for attachment in list(self._agents.get(key, ())):
                if attachment.isolation != "user":
                    attachment.sink.end(attachment, "failed_precondition", NOT_ISOLATED)

    @contextmanager
    def handing_over(self) -> Iterator[set[Held]]:
        """Remember, between a commit and the moment its turns are held here, which were cancelled."""
        self._handing += 1
        try:
            yield self._early_cancels
        finally:
            self._handed(1)

    def presence(self, workspace_id: str, agent_id: str) -> str | None:
        """Return `busy` or `idle` where a tunnel of the agent is open here."""
        held = self.held(workspace_id, agent_id)
        return None if held is None else "busy" if held else "idle"

    def held(self, workspace_id: str, agent_id: str) -> int | None:
        """Return how many turns are in the hands of the agent's tunnels; None without a tunnel."""
        attachments = self._agents.get((workspace_id, agent_id))
        return sum(len(each.held) for each in attachments) if attachments else None

    def wanting(self) -> list[tuple[str, str]]:
        """Return the agents whose tunnels here have room."""
        return [
            key for key, found in self._agents.items() if any(attachment.free > 0 for attachment in found)
        ]

    def everything_held(self) -> list[tuple[Attachment, Held]]:
        """Return the turns that are in workers' hands here, and whose they are."""
        return [
            (attachment, held)
            for found in self._agents.values()
            for attachment in found
            for held in (
                *attachment.still_held(),
                *(Held(run.turn_id, 1) for run in attachment.tool_calls.values() if not run.stopped),
            )
        ]

    def whereabouts(self) -> dict[tuple[str, str], tuple[int, int, str]]:
        """Return places, whether turns are held, and isolation of each agent that has tunnels here."""
        return {
            key: (self.places(*key), min(1, self.held(*key) or 0), self.isolation(*key))
            for key in self._agents
        }

    def end_all(self, message: str) -> None:
        """End every attachment: their workers come back, here or elsewhere."""
        for found in list(self._agents.values()):
            for attachment in list(found):
                attachment.sink.end(attachment, "unavailable", message)

    def open_tunnels(self) -> tuple[int, int]:
        """Return how many attachments there are here, and how many turns they hold."""
        found = [each for attachments in self._agents.values() for each in attachments]
        return len(found), sum(len(each.held) for each in found)

    def isolation(self, workspace_id: str, agent_id: str) -> str:
        """Return the weakest isolation among the agent's tunnels; empty without any."""
        found = {attachment.isolation for attachment in self._agents.get((workspace_id, agent_id), ())}
        return "" if not found else "user" if found == {"user"} else "none"

    def places(self, workspace_id: str, agent_id: str) -> int:
        """Return how many turns at once the agent's tunnels take."""
        return sum(attachment.max_turns for attachment in self._agents.get((workspace_id, agent_id), ()))

    # -- turns that start at once ------------------------------------------------------------------

    def take_place(self, workspace_id: str, agent_id: str) -> ClaimWish | None:
        """Keep a free place for one turn of the agent, until `hand_over`."""
        if self.draining:
            return None
        for attachment in self._agents.get((workspace_id, agent_id), ()):
            if attachment.free > 0 and attachment.sink.ready():
                attachment.promised += 1
                self._handing += 1
                return ClaimWish(workspace_id, agent_id, 1, attachment.epoch, attachment)
        return None

    def hand_over(self, places: Sequence[ClaimWish], claimed: Sequence[ClaimedTurn]) -> None:
        """Hand turns to the workers whose places were kept for them; the other places are free again."""
        for place in places:
            place.attachment.promised -= 1
        self._hand_out([], claimed, self._early_cancels)
        self._handed(len(places))
        if len(claimed) < len(places):
            self.wake({place.attachment.key for place in places})

    def _handed(self, count: int) -> None:
        self._handing -= count
        if not self._handing:
            self._early_cancels.clear()

    # -- claiming ----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            wishes = self._wishes()
            if not wishes:
                continue
            try:
                with self.handing_over() as canceled:
                    claimed = await self._claim(wishes)
                    self._hand_out(wishes, claimed, canceled)
            except Exception as error:
                # A store or a neighbour that is away says so itself; where we were then says nothing.
                known = isinstance(error, HoplineError)
                log.warning("turns cannot be claimed just now: %s", error, exc_info=not known)
                await self._clock.sleep(_RETRY_SECONDS)
                self.wake({(wish.workspace_id, wish.agent_id) for wish in wishes})

    async def _claim(self, wishes: list[ClaimWish]) -> list[ClaimedTurn]:
        try:
            return await self._turns.claim(wishes)
        finally:
            for wish in wishes:
                wish.attachment.promised -= wish.capacity

    def _wishes(self) -> list[ClaimWish]:
        """Collect the room of what is marked, one agent of each workspace in turn; it is promised."""
        wishes: list[ClaimWish] = []
        left = 0 if self.draining else MAX_CLAIM
        while self._marked and left > 0:
            workspace_id = next(iter(self._marked))
            agents = self._marked.pop(workspace_id)
            agent_id = next(iter(agents))
            del agents[agent_id]
            if agents:
                self._marked[workspace_id] = agents  # behind the other workspaces
            for attachment in self._agents.get((workspace_id, agent_id), ()):
                capacity = min(attachment.free, MAX_CLAIM_AGENT, left)
                if capacity > 0 and attachment.sink.ready():
                    attachment.promised += capacity
                    wishes.append(ClaimWish(workspace_id, agent_id, capacity, attachment.epoch, attachment))
                    left -= capacity
        if self._marked and not self.draining:
            self._news.set()
        return wishes

    def _hand_out(
        self, wishes: Sequence[ClaimWish], claimed: Sequence[ClaimedTurn], canceled: set[Held]
    ) -> None:
        taken: dict[Attachment, int] = {}
        unreachable: dict[Attachment, list[Held]] = {}
        now = self._clock.now()
        for turn in claimed:
            attachment: Attachment = turn.attachment
            taken[attachment] = taken.get(attachment, 0) + 1
            if attachment not in self._agents.get(attachment.key, ()):
                unreachable.setdefault(attachment, []).append(turn.held)
            elif turn.held not in canceled:
                holding = attachment.held[turn.turn_id] = Holding(turn.attempt, turn.known)
                start = self._start_turn(turn, attachment, now)
                if self.prompts is not None and self.prompts.concern(turn.workspace_id):
                    holding.starting = True
                    self.spawn(self._start_shaped(self.prompts, turn, attachment, start))
                else:
                    attachment.sink.send(RelayItem(start=start))
        point("relay.dispatched")
        for attachment, held in unreachable.items():
            self.give_back(attachment, held)
        # Who got all it asked for may have more waiting; who got less has nothing to claim now.
        self.wake({wish.attachment.key for wish in wishes if taken.get(wish.attachment, 0) >= wish.capacity})

    async def _start_shaped(
        self, prompts: PromptHooks, turn: ClaimedTurn, attachment: Attachment, start: StartTurn
    ) -> None:
        """Start a turn once hooks have seen its system prompt, unless it is its worker's no more by then."""
        holding = attachment.held[turn.turn_id]
        start.system_prompt = await prompts.shape(turn)
        if attachment.held.get(turn.turn_id) is holding and holding.starting:
            holding.starting = False
            attachment.sink.send(RelayItem(start=start))

    def _start_turn(self, turn: ClaimedTurn, attachment: Attachment, now: float) -> StartTurn:
        agent = self._directory.agent(turn.workspace_id, turn.agent_id)
        fields: dict[str, Any] = {"from": turn.sender_display}  # a word of Python's own
        if agent is not None:
            fields |= {
                "soul": agent.soul,
                "instructions": agent.instructions,
                "model_id": self._directory.model_of(agent),
                "thinking_level": agent.thinking_level,
                "reply_mode": agent.reply_mode,
            }
        return StartTurn(
            attachment=attachment.number,
            turn_id=turn.turn_id,
            attempt=turn.attempt,
            session_id=turn.session_id,
            session_title=turn.session_title,
            channel=turn.channel,
            root_id=turn.root_id,
            depth=turn.depth,
            cause=turn.cause,
            messages=turn.messages,
            prompt=prompt([_inbound(message) for message in turn.messages], now),
            continued=turn.continued,
            traceparent=turn.traceparent,
            deadline=to_timestamp(turn.deadline),
            **fields,
        )

    def _stop(self, attachment: Attachment, held: Held, reason: str) -> None:
        holding = attachment.held.get(held.turn_id)
        if holding is None or holding.attempt != held.attempt or holding.ending or not holding.ours:
            return
        if holding.starting:
            # Its worker has never heard of it.
            holding.ours = holding.starting = False
            self.ended(attachment, held.turn_id)
            return
        # Its room stays taken until the worker says that it has stopped.
        holding.ours = False
        attachment.sink.send(
            RelayItem(
                cancel=CancelTurn(
                    attachment=attachment.number, turn_id=held.turn_id, attempt=held.attempt, reason=reason
                )
            )
        )


def _inbound(message: Message) -> Inbound:
    sender = getattr(message, "from")
    return Inbound(
        kind=sender.kind,
        # The kind stands beside it already.
        display=sender.name if sender.kind in SOURCES else sender.display or sender.name,
        body=message.body,
        payload=message.payload_json,
        message_id=message.id,
        thread_id=message.thread_id,
        depth=message.depth,
        written_at=from_timestamp(message.created_at),
        reply_expected=message.reply_expected,
        newer=message.newer_from_sender,
        escalation_id=message.escalation_id,
        note=message.note,
    )


async def _logged(work: Awaitable[None]) -> None:
    """Await what nobody waits for; the sweep mends what a failure leaves behind."""
    try:
        await work
    except HoplineError as error:
        log.warning("a tunnel's state could not be recorded: %s", error.message)
    except Exception:
        log.warning("a tunnel's state could not be recorded", exc_info=True)
