"""Getting an explicit reply ready: what it answers, whether it is the first answer, what it discharges."""

from __future__ import annotations

from collections.abc import Callable

from hopline.quota.v1 import admission_pb2 as quota_pb
from hopline_directory import Directory
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import IdMaker

from hopline_relay.callers import Inboxes, actor_of, no_message, require_active, stand
from hopline_relay.domain.batches import held_by_worker
from hopline_relay.domain.escalations import KIND_QUESTION
from hopline_relay.domain.sources import SOURCES
from hopline_relay.domain.values import REPORT, TOOL, Actor, sibling
from hopline_relay.drafts import Draft, Ready
from hopline_relay.starts import assertion_of
from hopline_relay.store.discharging import Discharge
from hopline_relay.store.facts import Facts
from hopline_relay.store.holds import seat_of
from hopline_relay.store.outgoing import Copy, Outgoing
from hopline_relay.store.sql import Record
from hopline_relay.store.turns import Ended
from hopline_relay.waits import Waits


class Replies:
    """Prepares replies."""

    def __init__(
        self, directory: Directory, waits: Waits, inboxes: Inboxes, ids: IdMaker, instance: Callable[[], str]
    ) -> None:
        self._directory = directory
        self._waits = waits
        self._inboxes = inboxes
        self._ids = ids
        self._instance = instance

    def prepare(self, draft: Draft, facts: Facts, limits: quota_pb.Limits, now: float) -> Ready:
        """Check everything but admission; raises HoplineError."""
        principal, workspace_id = draft.principal, draft.principal.workspace_id
        require_active(self._directory, principal)
        if draft.kind == REPORT and not draft.message_id:
            raise nobody_to_report_to()
        if draft.closed:
            raise HoplineError("session_closed", "this session, or the one that started it, is closed")
        asked = facts.messages.get((workspace_id, draft.message_id))
        delivery = facts.delivery(workspace_id, draft.message_id, principal.id)
        if asked is None or delivery is None:
            raise no_message(draft.message_id)
        turn = facts.turns.get((workspace_id, delivery.turn_id))
        debt = facts.debts.get((workspace_id, delivery.turn_id))
        owed = debt is not None and debt.state == "open"
        first = delivery.state in ("queued", "delivered", "taken")
        live = turn is not None and turn.state in ("queued", "running")
        travels = owed or (first and live)
        self._check_sender(draft, asked, first=delivery.state != "answered")
        standing = stand(principal, draft.turn_id, draft.caller_session_id, facts, self._inboxes)
        serving = standing.turn if standing.turn is not None else turn
        policy = self._directory.policy(workspace_id)
        # That of what it answers, unless a person has sent that again.
        root_id = turn.root_id if turn is not None else asked.root_id
        outgoing = Outgoing(
            workspace_id=workspace_id,
            id=self._ids.new_id("msg"),
            kind=draft.kind,
            sender=actor_of(self._directory, principal),
            session_id=delivery.session_id or standing.session_id,
            inbox=None if delivery.session_id else standing.inbox,
            turn_id=serving.id if serving is not None else "",
            chain_turn_id=asked.from_turn_id if travels else "",
            body=draft.text,
            payload=draft.payload,
            thread_id=asked.thread_id,
            opens_thread=False,
            cap=0 if owed else policy.messages_per_thread,
            takes_place=bool(delivery.place) and delivery.state != "answered",
            in_reply_to=asked.id,
            depth=asked.from_depth,
            from_depth=turn.depth if turn is not None else asked.depth,
            root_id=root_id,
            admitted_as="answer" if travels else "person" if principal.kind == "user" else "start",
            day="",
            traceparent=draft.traceparent,
            instance_id=self._instance(),
            queue_seconds=policy.queue_seconds,
            request_id=draft.request_id,
            digest=draft.digest if draft.request_id else b"",
            # It is no fresh event: it is as far from one as what it comes from.
            hook_generation=max(
                draft.hook_generation,
                serving.hook_generation if serving is not None else asked.hook_generation,
            ),
        )
        awaited = None
        if owed and self._waits.someone(workspace_id, delivery.turn_id, asked.from_id):
            awaited = (delivery.turn_id, asked.from_id)
        outgoing.copies = [self._copy(asked, awaited=awaited is not None)]
        discharge = None
        if delivery.state != "answered":
            discharge = Discharge(
                workspace_id,
                asked.id,
                principal.id,
                delivery.state,
                outgoing.id,
                delivery.turn_id,
                owed,
                _ending(turn, outgoing.sender),
            )
        item = self._item(draft, outgoing, asked, travels=travels, limits=limits, now=now)
        seat = None
        if owed and turn is not None and asked.from_kind != "agent" and principal.kind == "agent":
            # What was asked by a person is answered from where that is worked on. Once it has been, or is
            # cancelled, what is said beside it is held for nothing.
            seat = seat_of(turn)
        owing = debt if owed else None
        return Ready(draft, item, outgoing, discharge, awaited, seat, asked, owing)

    def _check_sender(self, draft: Draft, asked: Record, *, first: bool) -> None:
        """A first reply needs only a sender that still exists; a further one starts something on it."""
        principal = draft.principal
        if asked.kind == KIND_QUESTION:
            raise HoplineError(
                "failed_precondition",
                "this is a question to an agent's owner: answer it with "
                f"`hopline answer {sibling('esc', asked.id)} TEXT`",
            )
        if asked.kind == TOOL:
            raise HoplineError(
                "failed_precondition", "this is the call of a tool: what the tool returns is its answer"
            )
        if asked.from_kind == "mesh":
            raise HoplineError(
                "failed_precondition", "this is a notice of the mesh itself; there is nobody to answer"
            )
        if asked.from_kind in SOURCES or asked.from_kind == "plugin":
            return  # it is for the record, and for a call that waits
        if asked.from_kind == "user":
            if self._directory.user(principal.workspace_id, asked.from_id) is None:
                raise _sender_gone()
            return
        sender = self._directory.agent(principal.workspace_id, asked.from_id)
        if sender is None or sender.deleted:
            raise _sender_gone()
        if first:
            return
        own = self._directory.agent(principal.workspace_id, principal.id)
        if own is not None and own.kind == "receive_only":
            raise HoplineError(
                "receive_only", "this agent only receives: it has answered this message already"
            )
        if not self._directory.may_start_on(principal, asked.from_id):
            raise HoplineError(
                "not_found",
                "you have answered this message already and may not start anything on its sender",
            )

    def _copy(self, asked: Record, *, awaited: bool) -> Copy:
        if asked.from_kind != "agent":
            return Copy(kind=asked.from_kind, id=asked.from_id, state="taken" if awaited else "delivered")
        if awaited:
            return Copy(kind="agent", id=asked.from_id, state="taken", session_id=asked.from_session_id)
        return Copy(
            kind="agent",
            id=asked.from_id,
            session_id=asked.from_session_id,
            turn_id=self._ids.new_id("trn"),
        )

    @staticmethod
    def _item(
        draft: Draft,
        outgoing: Outgoing,
        asked: Record,
        *,
        travels: bool,
        limits: quota_pb.Limits,
        now: float,
    ) -> quota_pb.AdmitItem:
        principal = draft.principal
        kinds = {
            "answer": quota_pb.ADMIT_KIND_ANSWER,
            "person": quota_pb.ADMIT_KIND_PERSON,
            "start": quota_pb.ADMIT_KIND_START,
        }
        return quota_pb.AdmitItem(
            key=f"{outgoing.workspace_id}/{principal.id}/{draft.request_id or outgoing.id}",
            workspace_id=outgoing.workspace_id,
            kind=kinds[outgoing.admitted_as],
            sender_id=principal.id,
            subject_assertion=assertion_of(principal, now),
            recipients=[
                quota_pb.AdmitRecipient(agent_id=copy.id, turn_id=copy.turn_id) for copy in outgoing.copies
            ],
            cause_turn_id=outgoing.turn_id,
            new_root_id=sibling("rot", outgoing.id),
            answer_depth=asked.from_depth if travels else 0,
            answer_root_id=outgoing.root_id if travels else "",
            limits=limits,
        )


def _ending(turn: Record | None, actor: Actor) -> Ended | None:
    """A turn that was pulled, rides along or never ran ends with its answer; a worker ends its own."""
    if turn is None or not (turn.state == "queued" or (turn.state == "running" and not held_by_worker(turn))):
        return None
    return Ended(
        turn.workspace_id,
        turn.id,
        (turn.state,),
        "completed",
        "answered",
        attempt=turn.attempt,
        actor=actor,
    )


def nobody_to_report_to() -> HoplineError:
    """Return the refusal of a report that answers nothing."""
    return HoplineError(
        "failed_precondition",
        "nobody waits for a report here: this session was not started by another agent, and what it works on "
        "was not asked by one; use send_message, or reply to a message by its id",
    )


def _sender_gone() -> HoplineError:
    return HoplineError("not_found", "whoever sent this message is no longer there")
