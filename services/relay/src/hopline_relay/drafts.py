"""What a caller wants to say, and what becomes of it on its way: drafted, ready, sent."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hopline.quota.v1 import admission_pb2 as quota_pb
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal

from hopline_relay.domain.handing import Standing
from hopline_relay.domain.holds import Reasons
from hopline_relay.domain.sources import Firing, Source
from hopline_relay.domain.values import REPORT, Fault
from hopline_relay.hooks.items import Shaped
from hopline_relay.store.discharging import Discharge
from hopline_relay.store.holds import Seat
from hopline_relay.store.outgoing import Outgoing
from hopline_relay.store.sql import Record
from hopline_relay.waits import Waiter


@dataclass(slots=True, kw_only=True)
class Draft:
    """A message as its caller gave it.

    `kind`: `message`, `ask`, `prompt`, `reply`, `tool`, `task`, `peer` or `report`. `to` are names or ids
    (none: a task for a copy of the caller); `session_id` a session of the recipient; `message_id` what a
    reply or a report answers. The call of a tool has its name as `subject` and its arguments as `text`.
    """

    principal: Principal
    kind: str
    text: str
    to: tuple[str, ...] = ()
    subject: str = ""
    payload: str = ""
    thread_id: str = ""
    session_id: str = ""
    message_id: str = ""
    caller_session_id: str = ""
    turn_id: str = ""
    request_id: str = ""
    traceparent: str = ""
    waiter: Waiter | None = None
    # It came through the recipient's own endpoint.
    own_endpoint: bool = False
    # The call of a tool: how long it may run.
    run_seconds: float = 0.0
    # A task of which nobody wants to hear again.
    fire_and_forget: bool = False
    # It goes into the standing conversation with its recipient, and not into a session that is named.
    standing: bool = False
    # A report of which one end was closed.
    closed: bool = False
    # Who speaks where it is not the principal but something that the principal has set up.
    source: Source | None = None
    # A person's command to the agent of a plugin: its name, and what was said to whom.
    command: str = ""
    as_given: tuple[str, str] = ("", "")
    # The plugin that says it in the name of an agent in whose session it acts; and at what whatever a plugin
    # says counts, by itself or in an agent's name.
    plugin: Principal | None = None
    handed: Standing | None = None
    # How many reactions of plugins it is away from what began it, where more than its turn is.
    hook_generation: int = 0
    # The time of a schedule that is taken with it.
    firing: Firing | None = None
    # A reply of a lead to the person who prompted it, which is kept as a draft where it may not go out yet.
    to_human: bool = False
    # Filled in where there are hooks: what they have made of it for each recipient, by id.
    shaped: Mapping[str, Shaped] | None = None
    # Filled in by an ask: the chain in which its recipient took part already.
    cycle: str = ""
    _digest: bytes = b""

    @property
    def speaker(self) -> Principal:
        """Who says it, as far as counting and remembering go: not who set up what says it."""
        return self.principal if self.source is None else replace(self.principal, id=self.source.id)

    @property
    def blamed(self) -> Principal:
        """Whose refusals are counted and noted."""
        return self.speaker if self.plugin is None else self.plugin

    @property
    def digest(self) -> bytes:
        """What tells the same content from another; where the call comes from is not part of it."""
        if not self._digest:
            # None of the parts holds a NUL.
            to, text = ((self.as_given[0],), self.as_given[1]) if self.command else (self.to, self.text)
            content = "\0".join(
                (
                    self.kind,
                    str(len(to)),
                    *to,
                    text,
                    self.subject if not self.command else "",
                    self.payload,
                    self.thread_id,
                    self.session_id,
                    # What a report answers is found by the mesh, and may be something else the second time.
                    self.message_id if self.kind != REPORT else "",
                    *(
                        name
                        for name in ("own_endpoint", "fire_and_forget", "standing")
                        if getattr(self, name)
                    ),
                )
            )
            self._digest = hashlib.blake2b(content.encode(), digest_size=16).digest()
        return self._digest


@dataclass(slots=True)
class Kept:
    """A message that hooks have kept from everybody: what is left to write of it.

    `notice`: what whoever was owed it is told, where no call waits for that. `fault`: why its debt ends.
    """

    fault: Fault | None = None
    notice: Outgoing | None = None


@dataclass(slots=True)
class Ready:
    """A draft that may be sent as far as visibility and the record go; admission decides next."""

    draft: Draft
    item: quota_pb.AdmitItem
    outgoing: Outgoing
    discharge: Discharge | None = None
    # Who waits for the answer that this is, if anyone: (turn that owes, creditor).
    awaited: tuple[str, str] | None = None
    # Where its author works, if it answers a person: what is open there holds it.
    seat: Seat | None = None
    # Of a reply: what it answers, and the open debt for it.
    asked: Record = None
    debt: Record = None
    # Set where hooks let none of its recipients have it: it is no message.
    kept: Kept | None = None


@dataclass(frozen=True, slots=True)
class SentCopy:
    """What went to one recipient."""

    kind: str
    id: str
    session_id: str
    turn_id: str
    state: str
    # Where hooks have kept it back: why, or empty where nothing of it was left.
    cancel_reason: str = ""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that is on disk."""

    message_id: str
    thread_id: str
    depth: int
    copies: Sequence[SentCopy] = field(default_factory=tuple)
    repeated: bool = False
    # The chain of agents, as ids, in which a recipient took part already.
    cycle: str = ""


def sent_of(outgoing: Outgoing, *, kept: bool = False) -> Sent:
    """Return what was sent; `kept`: hooks let nobody have it."""
    copies = tuple(
        SentCopy(
            copy.kind,
            copy.id,
            copy.session_id,
            copy.turn_id,
            copy.state,
            copy.shaped.canceled if copy.shaped is not None else "",
        )
        for copy in outgoing.copies
    )
    if kept:
        return Sent("", "" if outgoing.opens_thread else outgoing.thread_id, 0, copies)
    return Sent(outgoing.id, outgoing.thread_id, outgoing.depth, copies, cycle=outgoing.cycle)


class HeldError(HoplineError):
    """What answers a person may not go out yet: `why`. A lead's draft is kept instead."""

    def __init__(self, why: Reasons, ready: Ready) -> None:
        super().__init__(
            "failed_precondition",
            f"{_counted(why)}: answer the person with reply_to_human, which keeps your draft until then, or "
            "end your turn with it",
            details={"waiting_on": len(why.waited), "open_todos": why.open_todos},
        )
        self.why = why
        self.ready = ready
        # It is no refusal where the draft is kept.
        self.noted = ready.draft.to_human


def _counted(why: Reasons) -> str:
    """Say in words what an answer is held for."""
    count, parts = len(why.waited), []
    if count:
        parts.append("a report of one subagent is" if count == 1 else f"reports of {count} subagents are")
        parts[-1] += " still to come"
    if count := why.open_todos:
        parts.append("one todo is open" if count == 1 else f"{count} todos are open")
    return " and ".join(parts)
