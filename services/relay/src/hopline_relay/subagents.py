"""What agents hand to each other without waiting: children and their reports, standing conversations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hopline.relay.v1 import delegation_pb2 as pb
from hopline_directory import Directory
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.principals import Principal

from hopline_relay.callers import require_active
from hopline_relay.domain.values import PEER, REPORT, TASK, VETOED
from hopline_relay.drafts import Draft, Sent
from hopline_relay.inbox import Inbox
from hopline_relay.journal import Journal
from hopline_relay.sends import Sends
from hopline_relay.store import reporting
from hopline_relay.store.sessions import standing_of
from hopline_relay.view import Views

CLOSED = "session_closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class From:
    """Where a call comes from: its session or its turn, the request it is, and the trace it belongs to.

    `counted`: what else its draft holds where a plugin makes it in the agent's name.
    """

    session_id: str = ""
    turn_id: str = ""
    request_id: str = ""
    traceparent: str = ""
    counted: Mapping[str, Any] = field(default_factory=dict)


class Subagents:
    """Serves the half of DelegationService that starts and says things."""

    def __init__(
        self, journal: Journal, directory: Directory, sends: Sends, inbox: Inbox, views: Views
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._sends = sends
        self._inbox = inbox
        self._views = views

    async def start(
        self, principal: Principal, agent: str, task: str, *, fire_and_forget: bool, at: From
    ) -> pb.ChildStart:
        """Start a child; without an agent's name a copy of the caller."""
        to = (agent,) if agent else ()
        draft = _draft(principal, TASK, task, at, to=to, fire_and_forget=fire_and_forget)
        try:
            sent = await self._send(draft)
        except HoplineError as error:
            if error.reason == "depth_exceeded":
                return pb.ChildStart(outcome=pb.START_OUTCOME_DEPTH_EXCEEDED)
            # An agent that is not there for the caller; what else may be missing is the caller's own.
            if error.reason == "not_found" and error.details.get("agent") == agent:
                return pb.ChildStart(outcome=pb.START_OUTCOME_FORBIDDEN)
            if any(field == "agent" for field, _ in error.violations):
                # Its own name is the only one that is found and may not be used.
                raise invalid("agent", "is the caller itself; start_self_subagent starts a copy") from error
            raise
        copy = sent.copies[0]
        return pb.ChildStart(
            outcome=pb.START_OUTCOME_CREATED,
            session_id=copy.session_id,
            turn_id=copy.turn_id,
            thread_id=sent.thread_id,
            message_id=sent.message_id,
            depth=sent.depth,
            agent=self._views.party(principal, "agent", copy.id, known=True),
            cycle=self._views.chain(principal, sent.cycle),
        )

    async def report(
        self, principal: Principal, text: str, payload: str, at: From
    ) -> pb.ReportToCallerResponse:
        """Report to whoever started the calling session, or asked for what it works on."""
        require_active(self._directory, principal)
        found = await self._journal.read(
            lambda connection: reporting.find(connection, principal, at.session_id, at.turn_id)
        )
        if found.canceled and not found.closed:
            return pb.ReportToCallerResponse(cancel_reason="canceled")
        draft = _draft(
            principal, REPORT, text, at, payload=payload, message_id=found.message_id, closed=found.closed
        )
        try:
            sent = await self._send(draft)
        except HoplineError as error:
            if error.reason == CLOSED:
                return pb.ReportToCallerResponse(cancel_reason=CLOSED)
            if error.reason == "not_found" and found.message_id and "session_id" not in error.details:
                return pb.ReportToCallerResponse(cancel_reason=error.message)
            raise
        if (copy := sent.copies[0]).state == VETOED:
            return pb.ReportToCallerResponse(
                is_canceled=bool(copy.cancel_reason), cancel_reason=copy.cancel_reason
            )
        return pb.ReportToCallerResponse(
            is_delivered=True, message_id=sent.message_id, thread_id=sent.thread_id, depth=sent.depth
        )

    async def message(
        self, principal: Principal, agent: str, text: str, payload: str, at: From
    ) -> pb.MessageAgentResponse:
        """Say something in the standing conversation with an agent."""
        draft = _draft(principal, PEER, text, at, to=(agent,), payload=payload, standing=True)
        sent = await self._send(draft)
        copy = sent.copies[0]
        if copy.state == VETOED:
            return pb.MessageAgentResponse(
                is_canceled=bool(copy.cancel_reason), cancel_reason=copy.cancel_reason
            )
        own_end = await self._journal.read(
            lambda connection: standing_of(connection, principal.workspace_id, principal.id, copy.id)
        )
        return pb.MessageAgentResponse(
            session_id=copy.session_id,
            message_id=sent.message_id,
            thread_id=sent.thread_id,
            turn_id=copy.turn_id,
            depth=sent.depth,
            own_session_id=own_end,
            cycle=self._views.chain(principal, sent.cycle),
        )

    async def say(
        self, principal: Principal, session_id: str, text: str, at: From
    ) -> pb.SendMessageToSessionResponse:
        """Say something in a session that the caller may prompt in."""
        draft = _draft(principal, PEER, text, at, session_id=session_id)
        try:
            sent = await self._send(draft)
        except HoplineError as error:
            if error.reason == CLOSED:
                return pb.SendMessageToSessionResponse(cancel_reason=CLOSED)
            if error.reason == "not_found" and error.details.get("session_id") == session_id:
                return pb.SendMessageToSessionResponse()
            raise
        if (copy := sent.copies[0]).state == VETOED:
            return pb.SendMessageToSessionResponse(
                is_canceled=bool(copy.cancel_reason), cancel_reason=copy.cancel_reason
            )
        return pb.SendMessageToSessionResponse(
            is_delivered=True,
            message_id=sent.message_id,
            thread_id=sent.thread_id,
            turn_id=sent.copies[0].turn_id,
            depth=sent.depth,
        )

    async def _send(self, draft: Draft) -> Sent:
        self._inbox.touch(draft.principal)
        return await self._sends.send(draft)


def _draft(principal: Principal, kind: str, text: str, at: From, **more: Any) -> Draft:
    return Draft(
        principal=principal,
        kind=kind,
        text=text,
        caller_session_id=at.session_id,
        turn_id=at.turn_id,
        request_id=at.request_id.lower(),
        traceparent=at.traceparent,
        **at.counted,
        **more,
    )
