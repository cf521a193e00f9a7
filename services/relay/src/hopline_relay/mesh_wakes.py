"""How the mesh itself wakes a session: a note of its own, and the turn that serves it.

For whatever an agent has left to itself and the mesh brings back when its time has come: open todos, timers,
a draft that was held. The note is a message of the mesh, at the depth and root of what it goes back to; it
is written in the transaction of what causes it (`Wake.take`), so that it happens once and is never lost.

It is admitted as a wake: its root's turns, the backlog and credits hold it, depth never does. What is
refused is its caller's to treat: `root_exhausted` ends what would go on for ever (the owner is told of the
root), whatever is in `PASSING` is tried again later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hopline.quota.v1 import admission_pb2 as quota_pb
from hopline_directory import Directory
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.faults import point
from hopline_rpc.ids import IdMaker
from hopline_rpc.principals import Principal

from hopline_relay.admission import Admission, refused
from hopline_relay.batching import Batcher
from hopline_relay.callers import no_session
from hopline_relay.domain.values import MESH, WAKES, sibling
from hopline_relay.journal import FencedError, Journal
from hopline_relay.signals import Signals
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.discharging import RacedError
from hopline_relay.store.outgoing import Copy, Outgoing
from hopline_relay.store.schema import sessions
from hopline_relay.store.writing import write

__all__ = ["PASSING", "MeshWakes", "RacedError", "Wake", "Woken"]

# Refusals that pass by themselves, or when a person pays in or resumes the agent: the wake is still due.
PASSING: Final = frozenset(
    {
        "unavailable",
        "internal",
        "overloaded",
        "deadline_exceeded",
        "inbox_full",
        "credits_exhausted",
        "agent_paused",
        "failed_precondition",
    }
)
_TRIES: Final = 4


def _nothing(book: Book, message: Outgoing) -> None:
    """Nothing is written beside the note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """A note for a session of an agent, and what is written with it.

    `kind`: one of `WAKES`. `depth` and `root_id`: where what it goes back to ran; `cause_turn_id`: that turn,
    whose chain goes on. `take` is called in the transaction once the note is written, and raises RacedError
    where what it is for is no longer so: then nothing is written. It may run twice.
    """

    workspace_id: str
    agent_id: str
    session_id: str
    kind: str
    text: str
    depth: int
    root_id: str
    cause_turn_id: str = ""
    subject: str = ""
    payload: str = ""
    traceparent: str = ""
    # How many reactions of plugins what it goes back to is away from what began it.
    hook_generation: int = 0
    take: Callable[[Book, Outgoing], None] = _nothing


@dataclass(frozen=True, slots=True)
class Woken:
    """The note that was written, and the turn that serves it."""

    message_id: str
    turn_id: str


@dataclass(frozen=True, slots=True)
class _Going:
    """A wake that may be written as far as the agent goes; `place` is its own in the batch."""

    place: int
    wake: Wake
    outgoing: Outgoing
    item: quota_pb.AdmitItem


Result = Woken | BaseException


class MeshWakes:
    """Wakes sessions; whatever is due at the same time in one batch."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        admission: Admission,
        signals: Signals,
        ids: IdMaker,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._admission = admission
        self._signals = signals
        self._ids = ids
        self._clock = clock
        # Called with the agent and the root, where that has no turns left.
        self.on_exhausted: Callable[[Principal, str], None] = lambda principal, root_id: None
        self._batches: Batcher[Wake, Woken] = Batcher("wakes of the mesh", self._treat)

    async def wake(self, wake: Wake) -> Woken:
        """Write the note and queue its turn.

        HoplineError says why not, and RacedError that `take` did: nothing is written then, nor charged.
        """
        if wake.kind not in WAKES:
            raise ValueError(f"{wake.kind!r} is no kind of wake")
        return await self._batches.submit(wake)

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        await self._batches.drained()

    async def _treat(self, wakes: list[Wake]) -> Sequence[Result]:
        changing = HoplineError("unavailable", "the counters keep changing; it is tried again")
        results: list[Result] = [changing] * len(wakes)
        left = list(range(len(wakes)))
        for _ in range(_TRIES):
            going = []
            for place in left:
                prepared = self._prepare(place, wakes[place])
                if isinstance(prepared, HoplineError):
                    results[place] = prepared
                else:
                    going.append(prepared)
            going, epoch = await self._admit(going, results)
            if not going:
                break
            try:
                await self._write(going, results, epoch)
                if any(not isinstance(results[each.place], Woken) for each in going):
                    await self._admission.flush()  # what cost nothing is not counted from here on
                break
            except FencedError:
                await self._admission.refresh_epoch()
                left = [each.place for each in going]
        self._signals.claimable(
            (wake.workspace_id, wake.agent_id)
            for wake, result in zip(wakes, results, strict=True)
            if isinstance(result, Woken)
        )
        return results

    def _prepare(self, place: int, wake: Wake) -> _Going | HoplineError:
        agent = self._directory.agent(wake.workspace_id, wake.agent_id)
        if agent is None:
            return HoplineError("unavailable", "the agent is not known here yet")
        if agent.deleted:
            return no_session(wake.session_id)
        if agent.state != "active":
            code = "agent_paused" if agent.state == "paused" else "failed_precondition"
            return HoplineError(code, f"{agent.name} is {agent.state}")
        outgoing = self._outgoing(wake)
        return _Going(place, wake, outgoing, self._item(outgoing))

    def _outgoing(self, wake: Wake) -> Outgoing:
        message_id = self._ids.new_id("msg")
        turn_id = sibling("trn", message_id)
        return Outgoing(
            workspace_id=wake.workspace_id,
            id=message_id,
            kind=wake.kind,
            sender=MESH,
            turn_id=wake.cause_turn_id,
            chain_turn_id=wake.cause_turn_id,
            subject=wake.subject,
            body=wake.text,
            payload=wake.payload,
            thread_id=sibling("thr", message_id),
            opens_thread=True,
            depth=wake.depth,
            from_depth=wake.depth,
            root_id=wake.root_id,
            admitted_as="wake",
            day="",  # nobody's quota
            traceparent=wake.traceparent,
            hook_generation=wake.hook_generation,
            copies=[Copy(kind="agent", id=wake.agent_id, session_id=wake.session_id, turn_id=turn_id)],
            queue_seconds=self._directory.policy(wake.workspace_id).queue_seconds,
            price=self._admission.limits(wake.workspace_id).turn_price,
        )

    def _item(self, outgoing: Outgoing) -> quota_pb.AdmitItem:
        (copy,) = outgoing.copies
        return quota_pb.AdmitItem(
            key=f"{outgoing.workspace_id}/{MESH.id}/{outgoing.id}",
            workspace_id=outgoing.workspace_id,
            kind=quota_pb.ADMIT_KIND_WAKE,
            sender_id=MESH.id,
            recipients=[quota_pb.AdmitRecipient(agent_id=copy.id, turn_id=copy.turn_id)],
            cause_turn_id=outgoing.turn_id,
            answer_depth=outgoing.depth,
            answer_root_id=outgoing.root_id,
            limits=self._admission.limits(outgoing.workspace_id),
        )

    async def _admit(self, going: list[_Going], results: list[Result]) -> tuple[list[_Going], int]:
        """Return what was admitted, and in which epoch."""
        if not going:
            return [], 0
        try:
            epoch, decisions = await self._admission.admit([each.item for each in going])
        except HoplineError as error:
            for each in going:
                results[each.place] = error
            return [], 0
        point("mesh.wake_admitted")
        admitted = []
        for each, decision in zip(going, decisions, strict=True):
            if decision.HasField("admitted"):
                admitted.append(each)
            else:
                results[each.place] = self._refused(each, decision.refusal)
        return admitted, epoch

    def _refused(self, each: _Going, refusal: quota_pb.Refusal) -> HoplineError:
        wake = each.wake
        error = refused(refusal, each.item.limits, self._clock.now(), lambda agent_id: agent_id)
        if error.reason == "root_exhausted":
            principal = Principal(kind="agent", id=wake.agent_id, workspace_id=wake.workspace_id)
            self.on_exhausted(principal, wake.root_id)
        return error

    async def _write(self, going: Sequence[_Going], results: list[Result], epoch: int) -> None:
        """Write what was admitted, and settle every charge; what cannot be written fails alone."""
        try:
            outcome = await self._journal.write(
                lambda book: [_write_one(book, each) for each in going],
                epoch=epoch,
                within=[each.wake.workspace_id for each in going],
            )
        except FencedError:
            self._give_back(going)
            raise
        except Exception as error:
            if len(going) > 1 and not isinstance(error, HoplineError):
                for each in going:
                    await self._write([each], results, epoch)
                return
            self._give_back(going)
            for each in going:
                results[each.place] = error
            return
        point("mesh.woken")
        for each, why in zip(going, outcome, strict=True):
            self._admission.settle(each.item.key, committed=why is None)
            (copy,) = each.outgoing.copies
            results[each.place] = why or Woken(each.outgoing.id, copy.turn_id)

    def _give_back(self, going: Sequence[_Going]) -> None:
        for each in going:
            self._admission.settle(each.item.key, committed=False)


def _write_one(book: Book, each: _Going) -> HoplineError | None:
    """Write one note with what causes it; returns why it was not written, if so."""
    wake = each.wake
    key = (wake.workspace_id, wake.session_id)
    session = by_id(book.connection, sessions, {key}, lock=True).get(key)
    if session is None or session.agent_id != wake.agent_id:
        return no_session(wake.session_id)
    if session.closed:
        return HoplineError("session_closed", "this session is closed")
    (error,) = write(book, [each.outgoing])
    if error is None:
        wake.take(book, each.outgoing)
    return error
