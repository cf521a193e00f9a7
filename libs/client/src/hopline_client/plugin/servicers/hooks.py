"""Serves HookService: asks the plugin's functions, and says what they said."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import grpc.aio
from hopline.hooks.v1 import extension_pb2
from hopline.hooks.v1 import hook_pb2 as pb
from hopline.hooks.v1.hook_pb2_grpc import HookServiceServicer
from hopline_rpc.clock import from_timestamp

from hopline_client.plugin.chat import Chat
from hopline_client.plugin.hooks import Acting, Hooked, HookHandler, HookKind, Rewrite, Said, Veto

log = logging.getLogger("hopline.plugin")

Handed = Callable[[extension_pb2.HandedSession | None, str], Chat]
"""Returns the session that was handed over, and the turn it comes from."""


class Hooks(HookServiceServicer):
    """The service."""

    def __init__(self, handlers: Mapping[HookKind, HookHandler], handed: Handed) -> None:
        self._handlers = handlers
        self._handed = handed

    async def InterAgentMessage(
        self, request: pb.InterAgentMessageRequest, context: Any
    ) -> pb.InterAgentMessageResponse:
        """Say what becomes of a message."""
        sender = getattr(request, "from")  # a word of Python's
        said = await self._ask(
            "inter_agent_message",
            request,
            context,
            agent=sender,
            recipient=_acting(request.to),
            message_kind=request.kind,
            subject=request.subject,
            payload=json.loads(request.payload_json) if request.payload_json else None,
            is_subagent_report=request.is_subagent_report,
            reply_expected=request.reply_expected,
            thread_id=request.thread_id,
            in_reply_to=request.in_reply_to,
        )
        if isinstance(said, Veto):
            return pb.InterAgentMessageResponse(veto=pb.HookVeto(reason=said.reason))
        if said is None:
            return pb.InterAgentMessageResponse()
        found = Rewrite(said) if isinstance(said, str) else said
        rewrite = pb.HookRewrite(text=found.text, subject=found.subject, payload_json=found.payload_json)
        return pb.InterAgentMessageResponse(rewrite=rewrite)

    async def TodoAdded(self, request: pb.TodoAddedRequest, context: Any) -> pb.TodoAddedResponse:
        """Say what becomes of a todo."""
        said = await self._ask("todo_added", request, context, agent=request.agent)
        return pb.TodoAddedResponse(**_verdict(said))

    async def NotifyScheduled(
        self, request: pb.NotifyScheduledRequest, context: Any
    ) -> pb.NotifyScheduledResponse:
        """Say what becomes of a timer that is being set."""
        at = from_timestamp(request.fire_at)
        said = await self._ask("notify_scheduled", request, context, agent=request.agent, fire_at=at)
        return pb.NotifyScheduledResponse(**_verdict(said))

    async def NotifyDelivered(
        self, request: pb.NotifyDeliveredRequest, context: Any
    ) -> pb.NotifyDeliveredResponse:
        """Say what becomes of a timer that is due."""
        timer = request.timer_id
        said = await self._ask("notify_delivered", request, context, agent=request.agent, timer_id=timer)
        return pb.NotifyDeliveredResponse(**_verdict(said))

    async def SystemPrompt(self, request: pb.SystemPromptRequest, context: Any) -> pb.SystemPromptResponse:
        """Say what a turn's system prompt is."""
        said = await self._ask(
            "system_prompt",
            request,
            context,
            agent=request.agent,
            channel=request.channel,
            cause=request.cause,
        )
        text = _verdict(said).get("text")
        return pb.SystemPromptResponse(text=text)

    async def _ask(
        self, kind: HookKind, request: Any, context: Any, *, agent: pb.HookAgent, **more: Any
    ) -> Said:
        """Ask the plugin's function; what it raises is its failure, and what it was asked stays as it was."""
        handler = self._handlers.get(kind)
        if handler is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"this plugin has no hook {kind}")
            raise AssertionError("an aborted call goes no further")
        where = request.context
        session = where.session if where.HasField("session") else None
        hooked = Hooked(
            kind=kind,
            event_id=where.event_id,
            text=request.text,
            agent=_acting(agent),
            chat=self._handed(session, agent.turn_id),
            generation=where.generation,
            depth=where.depth,
            **more,
        )
        try:
            said = handler(hooked)
            found: Said = await said if inspect.isawaitable(said) else said
        except Exception as error:
            log.exception("the hook %s failed", kind)
            await context.abort(grpc.StatusCode.INTERNAL, type(error).__name__)
            raise
        return found


def _acting(agent: pb.HookAgent) -> Acting:
    return Acting(agent.id, agent.slug, agent.name, agent.key or None, agent.session_id, agent.turn_id)


def _verdict(said: Said) -> dict[str, Any]:
    """Return what is said of what has a text alone."""
    if said is None:
        return {}
    if isinstance(said, Veto):
        return {"veto": pb.HookVeto(reason=said.reason)}
    return {"text": said if isinstance(said, str) else said.text}
