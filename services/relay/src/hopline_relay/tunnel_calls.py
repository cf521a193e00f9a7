"""Calls that a worker makes over its tunnel: the same entry points as the unary methods, without the hop.

A send or a reply joins the batch that is written next and is answered when that is on disk; a frame full of
them starts no task. Whatever waits, or is refused before it is queued, is served by a task of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from google.protobuf import json_format
from hopline.relay.v1 import (
    delegation_pb2,
    draft_pb2,
    escalation_pb2,
    message_pb2,
    timer_pb2,
    todo_pb2,
    tool_pb2,
)
from hopline.runtime.v1.tunnel_pb2 import Call, CallError, CallResult, RelayItem
from hopline_rpc.calls import CallInfo, detach, set_current_call
from hopline_rpc.deadlines import Deadlines
from hopline_rpc.errors import HoplineError, internal, invalid, too_late
from hopline_rpc.ids import IdMaker
from hopline_rpc.interceptors import Refused
from hopline_rpc.principals import Principal
from hopline_rpc.rules import rules_of_service
from hopline_rpc.telemetry import RpcSpans, end_rpc_span
from hopline_rpc.validation import check

from hopline_relay.dispatch import Attachment
from hopline_relay.drafts import Sent
from hopline_relay.servicers.messages import Handed, MessageHandlers, handed

_MESSAGES: Final = message_pb2.DESCRIPTOR.services_by_name["MessageService"].full_name
_ESCALATIONS: Final = escalation_pb2.DESCRIPTOR.services_by_name["EscalationService"].full_name
_DELEGATION: Final = delegation_pb2.DESCRIPTOR.services_by_name["DelegationService"].full_name
_DRAFTS: Final = draft_pb2.DESCRIPTOR.services_by_name["DraftService"].full_name
_TODOS: Final = todo_pb2.DESCRIPTOR.services_by_name["TodoService"].full_name
_TIMERS: Final = timer_pb2.DESCRIPTOR.services_by_name["TimerService"].full_name
_TOOLS: Final = tool_pb2.DESCRIPTOR.services_by_name["ToolService"].full_name
# The service and the method that each stands for.
_METHODS: Final = {
    "send": (_MESSAGES, "Send"),
    "reply": (_MESSAGES, "Reply"),
    "ask": (_MESSAGES, "Ask"),
    "check": (_MESSAGES, "Check"),
    "done": (_MESSAGES, "Done"),
    "take_inbox": (_MESSAGES, "TakeInbox"),
    "ask_owner": (_ESCALATIONS, "AskOwner"),
    "check_escalation": (_ESCALATIONS, "CheckEscalation"),
    "call_tool": (_TOOLS, "CallTool"),
    "list_server_tools": (_TOOLS, "ListServerTools"),
    "start_subagent": (_DELEGATION, "StartSubagent"),
    "start_self_subagent": (_DELEGATION, "StartSelfSubagent"),
    "report_to_caller": (_DELEGATION, "ReportToCaller"),
    "message_agent": (_DELEGATION, "MessageAgent"),
    "send_message_to_session": (_DELEGATION, "SendMessageToSession"),
    "close_subagent": (_DELEGATION, "CloseSubagent"),
    "reply_to_human": (_DRAFTS, "ReplyToHuman"),
    "add_todos": (_TODOS, "AddTodos"),
    "list_todos": (_TODOS, "ListTodos"),
    "update_todo": (_TODOS, "UpdateTodo"),
    "complete_todo": (_TODOS, "CompleteTodo"),
    "remove_todo": (_TODOS, "RemoveTodo"),
    "snooze_todo": (_TODOS, "SnoozeTodo"),
    "set_timer": (_TIMERS, "SetTimer"),
    "list_timers": (_TIMERS, "ListTimers"),
    "cancel_timer": (_TIMERS, "CancelTimer"),
}
_RULES: Final = {method: rules_of_service(service)[name] for method, (service, name) in _METHODS.items()}
# Those that need nothing but their batch.
_QUEUED: Final = frozenset({"send", "reply"})
# Those that may wait: cancelling them ends the wait. The others are short and run to their end.
_WAITS: Final = frozenset({"ask", "check", "take_inbox", "ask_owner", "check_escalation", "call_tool"})
# Results that a worker may still call off because they crossed its CallCanceled.
_REMEMBERED: Final = 64
# Outstanding calls of one attachment: enough for each turn to ask two peers, and some.
_CALLS: Final = 256


class _Queued:
    """A send or a reply on its way to the disk; its work goes on when its time is over."""

    __slots__ = ("_end", "deadline")

    def __init__(self, deadline: float, end: Callable[[BaseException], None]) -> None:
        self.deadline: float | None = deadline
        self._end = end

    def expire(self) -> None:
        """Answer without knowing what becomes of it."""
        self._end(too_late())


class TunnelCalls:
    """The outstanding calls of one attachment.

    `caller` returns the agent with an assertion that still holds for a while; `at_hand` the same, or None
    where somebody has to be asked for it.
    """

    def __init__(
        self,
        attachment: Attachment,
        caller: Callable[[], Awaitable[Principal]],
        at_hand: Callable[[], Principal | None],
        handlers: MessageHandlers,
        ids: IdMaker,
        spans: RpcSpans,
        refused: Refused,
    ) -> None:
        self._attachment = attachment
        self._caller = caller
        self._at_hand = at_hand
        self._handlers = handlers
        self._ids = ids
        self._spans = spans
        self._refused = refused
        self._deadlines: Deadlines[CallInfo | _Queued] = Deadlines()
        self._limit = _CALLS + 2 * attachment.max_turns
        self._running: dict[int, tuple[str, asyncio.Future[None]]] = {}
        self._writes: dict[str, set[asyncio.Future[None]]] = {}
        self._handed: OrderedDict[int, Handed] = OrderedDict()
        # Tasks whose first step is still to come.
        self._beginning = 0

    def start(self, call: Call) -> None:
        """Serve a call; its result goes out with the next frame."""
        if call.call_id in self._running:
            self._handlers.repeated()  # of a call that is being served
            return
        if len(self._running) >= self._limit:
            self._answer(call.call_id, HoplineError("overloaded", "too many calls at once on this tunnel"))
            return
        method = call.WhichOneof("method") or ""
        # Behind a task that has not begun it would overtake: what is said first begins first.
        work = self._queue(method, call) if method in _QUEUED and not self._beginning else None
        if work is None:
            work = detach(self._serve(method, call))
            self._beginning += 1
            asyncio.get_running_loop().call_soon(self._begun)
            # Not in the task itself: one that is cancelled before its first step never runs at all.
            work.add_done_callback(lambda done: self._over(method, call, done))
        self._running[call.call_id] = (method, work)
        if method not in _WAITS:
            self._writes.setdefault(call.turn_id, set()).add(work)

    def cancel(self, call_id: int) -> None:
        """End the wait of a call; what it started goes on, and an answer that crossed is delivered again.

        The call of a tool ends altogether.
        """
        method, task = self._running.get(call_id, ("", None))
        if task is not None and method in _WAITS:
            task.cancel()
        self.not_received(call_id)

    def not_received(self, call_id: int) -> None:
        """Undo the handing over of an answer, or of messages, that the worker has not received."""
        given = self._handed.pop(call_id, None)
        if given is not None:
            self._handlers.lost(self._attachment.principal, given)

    def writes_of(self, turn_id: str) -> set[asyncio.Future[None]]:
        """The sends and replies of a turn that have not been answered yet: its end comes after them."""
        return self._writes.get(turn_id, set())

    def end(self) -> None:
        """End every wait, because the attachment has ended."""
        for method, task in list(self._running.values()):
            if method in _WAITS:
                task.cancel()

    def _begun(self) -> None:
        self._beginning -= 1

    def _over(self, method: str, call: Call, work: asyncio.Future[None]) -> None:
        del self._running[call.call_id]
        if method not in _WAITS:
            writes = self._writes[call.turn_id]
            writes.discard(work)
            if not writes:
                del self._writes[call.turn_id]

    def _queue(self, method: str, call: Call) -> asyncio.Future[None] | None:
        """Queue a send or a reply, and return the future of its answer; None: a task has to look at it."""
        principal = self._at_hand()
        if principal is None or (call.turn_id and not self._attachment.runs(call.turn_id)):
            return None
        request: Any = getattr(call, method)
        trace, span = self._spans.begin(_path(method), call.traceparent, edge=True)
        enqueue = self._handlers.enqueue_send if method == "send" else self._handlers.enqueue_reply
        try:
            check(request)
            work = enqueue(principal, request, call.turn_id, trace)
        except Exception:
            return None  # the task says what is wrong with it, and notes it
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[None] = loop.create_future()

        def end(outcome: Sent | BaseException) -> None:
            if answered.done():
                return  # its time was over before
            self._deadlines.discard(queued)
            self._over(method, call, answered)
            answered.set_result(None)
            said = self._said(method, principal, outcome)
            if span is not None:
                failed = isinstance(said, HoplineError)
                end_rpc_span(span, said.code.name if failed else "OK", said.reason if failed else None)
            self._answer(call.call_id, said, method)

        queued = _Queued(loop.time() + _RULES[method].deadline, end)
        self._deadlines.add(queued)
        work.add_done_callback(
            lambda done: None if done.cancelled() else end(done.exception() or done.result())
        )
        return answered

    def _said(self, method: str, principal: Principal, outcome: Sent | BaseException) -> Any:
        """Return the response, or the refusal, that an outcome comes to."""
        if isinstance(outcome, HoplineError):
            return outcome
        if not isinstance(outcome, Sent):
            return internal(outcome)
        respond = self._handlers.send_response if method == "send" else self._handlers.reply_response
        return respond(principal, outcome)

    async def _serve(self, method: str, call: Call) -> None:
        path = _path(method)
        span = self._spans.start(path, call.traceparent, edge=True)
        code, reason = "OK", None
        try:
            outcome: Any = await self._run(method, path, call)
        except HoplineError as error:
            outcome, code, reason = error, error.code.name, error.reason
        except asyncio.CancelledError:
            code, reason, outcome = "CANCELLED", "cancelled", None
            raise
        except Exception as unexpected:
            outcome, code, reason = internal(unexpected), "INTERNAL", "internal"
        finally:
            if span is not None:
                end_rpc_span(span, code, reason)
        self._answer(call.call_id, outcome, method)

    async def _run(self, method: str, path: str, call: Call) -> Any:
        """Do what the interceptor does around a unary call, then the call."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a call runs in a task")
        info = CallInfo(path, "", self._ids, task)
        set_current_call(info)
        try:
            return await self._call(method, info, call)
        except HoplineError as error:
            self._refused(info, error)
            raise

    async def _call(self, method: str, info: CallInfo, call: Call) -> Any:
        if method not in _METHODS:
            raise invalid("method", "names what to call")
        info.principal = await self._caller()
        if call.turn_id and not self._attachment.runs(call.turn_id):
            raise HoplineError("failed_precondition", "the turn this call is made from is not running here")
        request = getattr(call, method)
        check(request)
        seconds = _RULES[method].deadline
        info.deadline = asyncio.get_running_loop().time() + seconds
        self._deadlines.add(info)
        try:
            return await self._handler(method)(info.principal, request, turn_id=call.turn_id)
        except asyncio.CancelledError:
            late = info.ended()
            if late is None:
                raise
            raise late from None
        finally:
            self._deadlines.discard(info)

    def _handler(self, method: str) -> Callable[..., Awaitable[Any]]:
        parts: dict[str, Any] = {
            _DELEGATION: self._handlers.delegation,
            _TODOS: self._handlers.todos,
            _TIMERS: self._handlers.timers,
        }
        part = parts.get(_METHODS[method][0], self._handlers)
        handler: Callable[..., Awaitable[Any]] = getattr(part, method)
        return handler

    def _answer(self, call_id: int, outcome: Any, method: str = "") -> None:
        result = CallResult(attachment=self._attachment.number, call_id=call_id)
        if isinstance(outcome, HoplineError):
            result.error.CopyFrom(_error(outcome))
        else:
            getattr(result, method).CopyFrom(outcome)
            self._remember(call_id, handed(outcome))
        self._attachment.sink.send(RelayItem(call_result=result))

    def _remember(self, call_id: int, given: Handed | None) -> None:
        if given is None:
            return
        self._handed[call_id] = given
        if len(self._handed) > _REMEMBERED:
            self._handed.popitem(last=False)


def _path(method: str) -> str:
    service, name = _METHODS.get(method, (_MESSAGES, "Unknown"))
    return f"/{service}/{name}"


def _error(error: HoplineError) -> CallError:
    shown = error.to_dict()
    written = CallError(code=shown["code"], message=shown["message"], retryable=shown["retryable"])
    json_format.ParseDict(json.loads(json.dumps(shown["details"])), written.details)
    return written
