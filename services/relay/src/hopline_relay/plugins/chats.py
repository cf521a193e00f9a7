"""What plugins do in sessions that they were handed: start subagents, send, look, read, post.

Each does what the session's agent could do itself, by the same features and rails; what the rules do not
allow is data here. None of it is an answer of the session's.
"""

from __future__ import annotations

from hopline.relay.v1 import delegation_pb2, session_pb2
from hopline.relay.v1 import plugin_session_pb2 as pb
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal

from hopline_relay.domain.values import POST
from hopline_relay.drafts import Draft
from hopline_relay.plugins.acting import Act, Acting, own_words
from hopline_relay.plugins.grants import SESSION
from hopline_relay.sends import Sends
from hopline_relay.sessions import Sessions
from hopline_relay.subagents import From, Subagents

_OUTCOMES = {
    delegation_pb2.START_OUTCOME_CREATED: pb.SPAWN_OUTCOME_CREATED,
    delegation_pb2.START_OUTCOME_FORBIDDEN: pb.SPAWN_OUTCOME_FORBIDDEN,
    delegation_pb2.START_OUTCOME_DEPTH_EXCEEDED: pb.SPAWN_OUTCOME_DEPTH_EXCEEDED,
}
_REASONS = {
    pb.SPAWN_OUTCOME_FORBIDDEN: "the session's agent may start nothing on such an agent, or there is none",
    pb.SPAWN_OUTCOME_DEPTH_EXCEEDED: "too many agents in a row, or a subagent's subagent",
}


class Chats:
    """Serves PluginSessionService, but for todos and timers."""

    def __init__(self, acting: Acting, subagents: Subagents, sessions: Sessions, sends: Sends) -> None:
        self._acting = acting
        self._subagents = subagents
        self._sessions = sessions
        self._sends = sends

    async def spawn(self, principal: Principal, request: pb.SpawnSubagentRequest) -> pb.SpawnSubagentResponse:
        """Start an agent on a task; without one a copy of the session's."""
        act = await self._acting.begin(principal, request.session_id, SESSION)
        if act.withheld is not None:
            reason = act.withheld.message
            return pb.SpawnSubagentResponse(outcome=pb.SPAWN_OUTCOME_FORBIDDEN, reason=reason)
        try:
            started = await self._subagents.start(
                act.as_agent,
                request.agent,
                request.task,
                fire_and_forget=request.is_fire_and_forget,
                at=_from(act, request.request_id),
            )
        except HoplineError as error:
            raise own_words(error, act, request.request_id) from None
        outcome = _OUTCOMES[started.outcome]
        return pb.SpawnSubagentResponse(
            outcome=outcome, child_session_id=started.session_id, reason=_REASONS.get(outcome, "")
        )

    async def send(self, principal: Principal, request: pb.SendPeerRequest) -> pb.SendPeerResponse:
        """Send into another session that the session's agent may say something in."""
        act = await self._acting.begin(principal, request.session_id, SESSION)
        if act.withheld is not None:
            return pb.SendPeerResponse(is_canceled=True, cancel_reason=act.withheld.message)
        try:
            said = await self._subagents.say(
                act.as_agent, request.to_session_id, request.text, _from(act, request.request_id)
            )
        except HoplineError as error:
            raise own_words(error, act, request.request_id) from None
        return pb.SendPeerResponse(
            is_delivered=said.is_delivered,
            is_canceled=said.is_canceled,
            cancel_reason=said.cancel_reason,
            message_id=said.message_id,
        )

    async def peer(self, principal: Principal, request: pb.GetPeerRequest) -> pb.GetPeerResponse:
        """Return another session that the session's agent may see."""
        act = await self._acting.allowed(principal, request.session_id, SESSION)
        found = await self._sessions.get(act.as_agent, request.peer_session_id)
        return pb.GetPeerResponse(id=found.id, agent=found.agent, state=found.state)

    async def read(
        self, principal: Principal, request: pb.ReadConversationRequest
    ) -> pb.ReadConversationResponse:
        """Return a page of a transcript; takes nothing."""
        act = await self._acting.allowed(principal, request.session_id, SESSION)
        asked = session_pb2.ReadSessionRequest(
            session_id=request.of_session_id or request.session_id,
            page_size=request.page_size,
            page_token=request.page_token,
        )
        page = await self._sessions.read(act.as_agent, asked, takes=False)
        return pb.ReadConversationResponse(entries=page.entries, next_page_token=page.next_page_token)

    async def post(self, principal: Principal, request: pb.PostMessageRequest) -> pb.PostMessageResponse:
        """Put a message of the plugin's into the session, which wakes its agent."""
        act = await self._acting.allowed(principal, request.session_id, SESSION)
        draft = Draft(
            principal=principal,
            kind=POST,
            text=request.text,
            session_id=request.session_id,
            request_id=request.request_id.lower(),
            traceparent=act.traceparent,
            **act.counted,
        )
        sent = await self._sends.send(draft)
        return pb.PostMessageResponse(message_id=sent.message_id)


def _from(act: Act, request_id: str) -> From:
    return From(
        session_id=act.session.id,
        request_id=act.request_id(request_id),
        traceparent=act.traceparent,
        counted=act.counted,
    )
