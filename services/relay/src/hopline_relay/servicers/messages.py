"""MessageService, and the same entry points for calls that come over a tunnel."""

from __future__ import annotations

import asyncio
from typing import Any

from hopline.relay.v1 import draft_pb2, escalation_pb2, tool_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline.relay.v1.message_pb2_grpc import MessageServiceServicer
from hopline_rpc import telemetry
from hopline_rpc.auth import current_principal
from hopline_rpc.principals import Principal

from hopline_relay.asks import Asks
from hopline_relay.domain.values import MAX_INBOX_PAGE, MAX_WAIT_SECONDS
from hopline_relay.drafts import Draft, Sent
from hopline_relay.inbox import Inbox
from hopline_relay.meters import CALL
from hopline_relay.neighbours import Neighbours
from hopline_relay.plugins.grants import Grants
from hopline_relay.questions import Question, Questions
from hopline_relay.sends import Sends
from hopline_relay.servicers.delegations import DelegationHandlers
from hopline_relay.servicers.fields import checked_payload
from hopline_relay.spans import REPEATED
from hopline_relay.threads import Threads
from hopline_relay.timers import Timers
from hopline_relay.to_human import ToHuman
from hopline_relay.todos import Todos
from hopline_relay.tool_offers import ToolOffers
from hopline_relay.tools import Tools
from hopline_relay.view import Views

_DEFAULT_INBOX = 50
_ENDED = frozenset({pb.TURN_STATUS_COMPLETED, pb.TURN_STATUS_FAILED, pb.TURN_STATUS_CANCELED})


Handed = pb.TurnView | escalation_pb2.Escalation | tuple[str, ...]
"""What a call may hand over that its caller can lose: an answer, or the ids of messages from the inbox."""


def handed(response: Any) -> Handed | None:
    """Return what must be delivered again if this response is lost; None where nothing is lost with it."""
    if isinstance(response, pb.TakeInboxResponse):
        return tuple(message.id for message in response.messages) or None
    if isinstance(response, pb.AskResponse | pb.CheckResponse) and response.turn.status in _ENDED:
        slim = pb.TurnView()
        slim.CopyFrom(response.turn)
        slim.ClearField("reply")
        return slim
    if isinstance(response, escalation_pb2.AskOwnerResponse | escalation_pb2.CheckEscalationResponse):
        ended = response.escalation.status != escalation_pb2.ESCALATION_STATUS_PENDING
        return escalation_pb2.Escalation(id=response.escalation.id) if ended else None
    return None


class MessageHandlers:
    """One entry point a method, for unary calls and for calls over a tunnel alike.

    `turn_id` is the running turn that a call over a tunnel is made from: then the caller's session is
    that turn's. Each raises HoplineError. Cancelling `ask`, `check` or `take_inbox` ends the wait, never
    the work; cancelling `call_tool` ends both.
    """

    def __init__(
        self,
        sends: Sends,
        asks: Asks,
        questions: Questions,
        inbox: Inbox,
        tools: Tools,
        offers: ToolOffers,
        delegation: DelegationHandlers,
        to_human: ToHuman,
        todos: Todos,
        timers: Timers,
        views: Views,
        grants: Grants,
        neighbours: Neighbours,
    ) -> None:
        self._neighbours = neighbours
        self.delegation = delegation
        self.todos = todos
        self.timers = timers
        self._sends = sends
        self._asks = asks
        self._questions = questions
        self._inbox = inbox
        self._tools = tools
        self._offers = offers
        self._to_human = to_human
        self._views = views
        self._grants = grants

    def repeated(self) -> None:
        """Count a call over a tunnel that came a second time while it was served."""
        self._sends.meters.duplicates[CALL] += 1

    async def send(
        self, principal: Principal, request: pb.SendRequest, *, turn_id: str = ""
    ) -> pb.SendResponse:
        """Send a message to 1-10 agents."""
        trace = telemetry.current_traceparent()
        sent = await self.enqueue_send(principal, request, turn_id, trace)
        if sent.repeated:
            telemetry.note(REPEATED)
        return self.send_response(principal, sent)

    def enqueue_send(
        self, principal: Principal, request: pb.SendRequest, turn_id: str, traceparent: str
    ) -> asyncio.Future[Sent]:
        """Queue a message; `send_response` says what became of it."""
        self._inbox.touch(principal)
        return self._sends.enqueue(
            Draft(
                principal=principal,
                kind="message",
                to=tuple(request.to),
                text=request.text,
                subject=request.subject,
                payload=checked_payload(request.payload_json),
                thread_id=request.thread_id,
                request_id=request.request_id.lower(),
                caller_session_id=request.caller_session_id,
                turn_id=turn_id,
                traceparent=traceparent,
            )
        )

    def send_response(self, principal: Principal, sent: Sent) -> pb.SendResponse:
        """Return what the sender of a message is told."""
        return pb.SendResponse(
            message_id=sent.message_id,
            thread_id=sent.thread_id,
            depth=sent.depth,
            deliveries=self._views.deliveries(principal, sent),
            cycle=self._views.chain(principal, sent.cycle),
        )

    async def reply(
        self, principal: Principal, request: pb.ReplyRequest, *, turn_id: str = ""
    ) -> pb.ReplyResponse:
        """Answer a message that was delivered to the caller."""
        trace = telemetry.current_traceparent()
        return self.reply_response(principal, await self.enqueue_reply(principal, request, turn_id, trace))

    def enqueue_reply(
        self, principal: Principal, request: pb.ReplyRequest, turn_id: str, traceparent: str
    ) -> asyncio.Future[Sent]:
        """Queue a reply; `reply_response` says what became of it."""
        self._inbox.touch(principal)
        return self._sends.enqueue(
            Draft(
                principal=principal,
                kind="reply",
                text=request.text,
                payload=checked_payload(request.payload_json),
                message_id=request.message_id,
                request_id=request.request_id.lower(),
                caller_session_id=request.caller_session_id,
                turn_id=turn_id,
                traceparent=traceparent,
            )
        )

    def reply_response(self, principal: Principal, sent: Sent) -> pb.ReplyResponse:
        """Return what the author of a reply is told."""
        return pb.ReplyResponse(
            message_id=sent.message_id,
            thread_id=sent.thread_id,
            depth=sent.depth,
            deliveries=self._views.deliveries(principal, sent),
        )

    async def done(
        self, principal: Principal, request: pb.DoneRequest, *, turn_id: str = ""
    ) -> pb.DoneResponse:
        """End the turn of a message without an answer."""
        self._inbox.touch(principal)
        return await self._inbox.done(principal, request.message_id)

    async def ask(self, principal: Principal, request: pb.AskRequest, *, turn_id: str = "") -> pb.AskResponse:
        """Ask an agent and wait for its answer."""
        self._inbox.touch(principal)
        draft = Draft(
            principal=principal,
            kind="ask",
            to=(request.agent,),
            text=request.text,
            session_id=request.session_id,
            request_id=request.request_id.lower(),
            caller_session_id=request.caller_session_id,
            turn_id=turn_id,
            traceparent=telemetry.current_traceparent(),
            # A plugin reaches its own agents by their endpoints alone: the session is bound to it.
            own_endpoint=request.own_endpoint or principal.kind == "plugin",
            **self._grants.counted(principal),
        )
        view = await self._asks.ask(draft, wait_of(request))
        return pb.AskResponse(turn=view, cycle=self._views.chain(principal, draft.cycle))

    async def check(
        self, principal: Principal, request: pb.CheckRequest, *, turn_id: str = ""
    ) -> pb.CheckResponse:
        """Look at a turn, or wait for it."""
        self._inbox.touch(principal)
        view = await self._asks.check(
            principal,
            turn_id=request.turn_id,
            session_id=request.session_id,
            wait_seconds=wait_of(request),
            caller_session_id=request.caller_session_id,
            from_turn_id=turn_id,
            endpoint_of=request.endpoint_of,
        )
        return pb.CheckResponse(turn=view)

    async def take_inbox(
        self, principal: Principal, request: pb.TakeInboxRequest, *, turn_id: str = ""
    ) -> pb.TakeInboxResponse:
        """Take unread messages as one turn."""
        self._inbox.touch(principal)
        return await self._inbox.take(
            principal,
            limit=min(request.limit or _DEFAULT_INBOX, MAX_INBOX_PAGE),
            wait_seconds=min(request.wait_seconds, MAX_WAIT_SECONDS),
            session_id=request.caller_session_id,
            turn_id=turn_id,
        )

    async def ask_owner(
        self, principal: Principal, request: escalation_pb2.AskOwnerRequest, *, turn_id: str = ""
    ) -> escalation_pb2.AskOwnerResponse:
        """Ask the agent's owner and wait for the answer."""
        self._inbox.touch(principal)
        question = Question(
            principal=principal,
            text=request.question,
            options=tuple(request.options),
            session_id=request.caller_session_id,
            turn_id=turn_id,
            request_id=request.request_id.lower(),
            traceparent=telemetry.current_traceparent(),
        )
        asked = await self._questions.ask(question, wait_of(request))
        return escalation_pb2.AskOwnerResponse(escalation=asked)

    async def check_escalation(
        self, principal: Principal, request: escalation_pb2.CheckEscalationRequest, *, turn_id: str = ""
    ) -> escalation_pb2.CheckEscalationResponse:
        """Look at a question to the owner, or wait for its end."""
        self._inbox.touch(principal)
        found = await self._questions.check(
            principal,
            request.escalation_id,
            wait_of(request),
            session_id=request.caller_session_id,
            turn_id=turn_id,
        )
        return escalation_pb2.CheckEscalationResponse(escalation=found)

    async def call_tool(
        self,
        principal: Principal,
        request: tool_pb2.CallToolRequest,
        *,
        turn_id: str = "",
        here: bool = False,
    ) -> tool_pb2.CallToolResponse:
        """Run a tool of another agent. `here`: at a worker of this relay, or nowhere."""
        self._inbox.touch(principal)
        if not here and (done := await self._neighbours.call_tool(principal, request, turn_id)) is not None:
            return done
        return await self._tools.call(principal, request, turn_id, self._grants.counted(principal))

    async def list_server_tools(
        self,
        principal: Principal,
        request: tool_pb2.ListServerToolsRequest,
        *,
        turn_id: str = "",
        here: bool = False,
    ) -> tool_pb2.ListServerToolsResponse:
        """List the tools of another agent. `here`: those of workers of this relay."""
        self._inbox.touch(principal)
        if not here and (found := await self._neighbours.list_tools(principal, request)) is not None:
            return found
        return self._offers.list_tools(principal, request)

    async def reply_to_human(
        self, principal: Principal, request: draft_pb2.ReplyToHumanRequest, *, turn_id: str = ""
    ) -> draft_pb2.ReplyToHumanResponse:
        """Answer the person who prompted the calling agent."""
        self._inbox.touch(principal)
        return await self._to_human.reply(principal, request, turn_id)

    def lost(self, principal: Principal, handed: Handed) -> None:
        """Deliver again what a call returned and its caller never received."""
        if isinstance(handed, pb.TurnView):
            self._asks.hand_back(principal, handed)
        elif isinstance(handed, escalation_pb2.Escalation):
            self._questions.hand_back(principal, handed)
        else:
            self._inbox.put_back(principal, handed)


class MessageServicer(MessageServiceServicer):
    """The service."""

    def __init__(self, handlers: MessageHandlers, threads: Threads) -> None:
        self._handlers = handlers
        self._threads = threads

    async def Send(self, request: pb.SendRequest, context: Any) -> pb.SendResponse:
        """Send."""
        return await self._handlers.send(current_principal(), request)

    async def Reply(self, request: pb.ReplyRequest, context: Any) -> pb.ReplyResponse:
        """Reply."""
        return await self._handlers.reply(current_principal(), request)

    async def Done(self, request: pb.DoneRequest, context: Any) -> pb.DoneResponse:
        """Finish without an answer."""
        return await self._handlers.done(current_principal(), request)

    async def Ask(self, request: pb.AskRequest, context: Any) -> pb.AskResponse:
        """Ask and wait."""
        principal = current_principal()
        response = await self._handlers.ask(principal, request)
        take_back_if_lost(self._handlers, principal, response, context)
        return response

    async def Check(self, request: pb.CheckRequest, context: Any) -> pb.CheckResponse:
        """Look, or wait."""
        principal = current_principal()
        response = await self._handlers.check(principal, request)
        take_back_if_lost(self._handlers, principal, response, context)
        return response

    async def TakeInbox(self, request: pb.TakeInboxRequest, context: Any) -> pb.TakeInboxResponse:
        """Take unread messages."""
        principal = current_principal()
        response = await self._handlers.take_inbox(principal, request)
        take_back_if_lost(self._handlers, principal, response, context)
        return response

    async def PeekInbox(self, request: pb.PeekInboxRequest, context: Any) -> pb.PeekInboxResponse:
        """Look at unread messages."""
        return await self._threads.peek(current_principal(), request)

    async def ListThreads(self, request: pb.ListThreadsRequest, context: Any) -> pb.ListThreadsResponse:
        """List threads."""
        return await self._threads.list_threads(current_principal(), request)

    async def ListMessages(self, request: pb.ListMessagesRequest, context: Any) -> pb.ListMessagesResponse:
        """List a thread's messages."""
        return await self._threads.list_messages(current_principal(), request)


def take_back_if_lost(handlers: MessageHandlers, principal: Principal, response: Any, context: Any) -> None:
    """Have what a response carried delivered again when the response could not be written."""
    given = handed(response)
    if given is None:
        return

    def finished(ended: Any) -> None:
        if ended.cancelled():
            handlers.lost(principal, given)

    context.add_done_callback(finished)


def wait_of(request: Any) -> int | None:
    """Return the wait that a request asks for; None where it leaves it open."""
    return request.wait_seconds if request.HasField("wait_seconds") else None
