"""What an agent may do to others, independent of the way the calls travel."""

from __future__ import annotations

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from hopline.relay.v1 import draft_pb2, escalation_pb2, tool_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline_rpc.errors import HoplineError, invalid

from hopline_client import models
from hopline_client.models import Answer, Escalation, Inbox, Sent, ToHuman, ToolInfo, ToolResult

MAX_WAIT: Final = 50
Method = Literal[
    "send",
    "reply",
    "ask",
    "check",
    "done",
    "take_inbox",
    "ask_owner",
    "check_escalation",
    "call_tool",
    "list_server_tools",
    "start_subagent",
    "start_self_subagent",
    "report_to_caller",
    "message_agent",
    "send_message_to_session",
    "close_subagent",
    "reply_to_human",
    "add_todos",
    "list_todos",
    "update_todo",
    "complete_todo",
    "remove_todo",
    "snooze_todo",
    "set_timer",
    "list_timers",
    "cancel_timer",
]


class Actions(ABC):
    """Sends, asks, replies. A refusal is a HoplineError: `reason`, `message`, `retryable`, `details`."""

    @abstractmethod
    async def _call(self, method: Method, request: Any) -> Any:
        """Make one call and return its response."""

    async def send(
        self,
        to: str | Sequence[str],
        text: str,
        *,
        subject: str = "",
        payload: Any = None,
        thread_id: str = "",
        request_id: str = "",
    ) -> Sent:
        """Send a message to one agent or to as many as ten, by id, slug or name; all or nothing."""
        recipients = [to] if isinstance(to, str) else list(to)
        request = make_request(
            pb.SendRequest,
            to=recipients,
            text=text,
            subject=subject,
            payload_json=_payload(payload),
            thread_id=thread_id,
            request_id=request_id or str(uuid.uuid4()),
        )
        return models.sent(await self._call("send", request))

    async def reply(self, message_id: str, text: str, *, payload: Any = None, request_id: str = "") -> Sent:
        """Answer a message that was delivered to this agent."""
        request = make_request(
            pb.ReplyRequest,
            message_id=message_id,
            text=text,
            payload_json=_payload(payload),
            request_id=request_id or str(uuid.uuid4()),
        )
        return models.sent(await self._call("reply", request))

    async def ask(
        self,
        agent: str,
        text: str,
        *,
        session_id: str = "",
        wait_seconds: int = MAX_WAIT,
        request_id: str = "",
    ) -> Answer:
        """Ask an agent and wait up to `wait_seconds` (at most 50) for its answer.

        An answer that is not there by then comes by `check` or `wait`, or later as a message.
        """
        request = make_request(
            pb.AskRequest,
            agent=agent,
            text=text,
            session_id=session_id,
            wait_seconds=clamped(wait_seconds),
            request_id=request_id or str(uuid.uuid4()),
        )
        return models.answer((await self._call("ask", request)).turn)

    async def check(self, *, turn_id: str = "", session_id: str = "", wait_seconds: int = MAX_WAIT) -> Answer:
        """Wait for a turn that was asked for, or look at it (`wait_seconds` 0)."""
        if bool(turn_id) == bool(session_id):
            raise invalid("turn_id", "name either a turn or a session")
        which = {"turn_id": turn_id} if turn_id else {"session_id": session_id}
        request = make_request(pb.CheckRequest, **which, wait_seconds=clamped(wait_seconds))
        return models.answer((await self._call("check", request)).turn)

    async def wait(self, asked: Answer, seconds: float = 600.0) -> Answer:
        """Check again and again until a turn has ended or `seconds` are over."""
        ends = time.monotonic() + seconds
        while asked.pending and (left := ends - time.monotonic()) > 0:
            asked = await self.check(turn_id=asked.turn_id, wait_seconds=min(MAX_WAIT, int(left) + 1))
        return asked

    async def ask_owner(
        self,
        question: str,
        *,
        options: Sequence[str] = (),
        wait_seconds: int = MAX_WAIT,
        request_id: str = "",
    ) -> Escalation:
        """Ask the person who owns this agent, and wait up to `wait_seconds` (at most 50).

        With `options` the answer is one of them. One that is not there by then comes by `check_escalation`,
        or as a message into the session that asked; the same question again goes on waiting for it.
        """
        request = make_request(
            escalation_pb2.AskOwnerRequest,
            question=question,
            options=list(options),
            wait_seconds=clamped(wait_seconds),
            request_id=request_id or str(uuid.uuid4()),
        )
        return models.escalation((await self._call("ask_owner", request)).escalation)

    async def check_escalation(self, escalation_id: str, *, wait_seconds: int = MAX_WAIT) -> Escalation:
        """Wait for the answer to a question that this agent asked its owner, or look (`wait_seconds` 0)."""
        request = make_request(
            escalation_pb2.CheckEscalationRequest,
            escalation_id=escalation_id,
            wait_seconds=clamped(wait_seconds),
        )
        return models.escalation((await self._call("check_escalation", request)).escalation)

    async def reply_to_human(self, text: str, *, request_id: str = "") -> ToHuman:
        """Answer the person who prompted this agent, as the final message of a turn does.

        While subagents of its session owe reports, or todos of it are open, the answer is held as the newest
        draft: the agent is woken when nothing holds it any more.
        """
        request = make_request(
            draft_pb2.ReplyToHumanRequest, text=text, request_id=request_id or str(uuid.uuid4())
        )
        return models.to_human(await self._call("reply_to_human", request))

    async def call_tool(
        self,
        agent: str,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_seconds: int = MAX_WAIT,
        request_id: str = "",
    ) -> ToolResult:
        """Run a server tool of an agent, without a turn of its model; it ends with this call.

        A tool that failed is no error of the call: `value` of the result raises what it said.
        """
        request = make_request(
            tool_pb2.CallToolRequest,
            agent=agent,
            name=name,
            arguments_json=_arguments(arguments),
            timeout_seconds=clamped(timeout_seconds, 1, "timeout_seconds"),
            request_id=request_id or str(uuid.uuid4()),
        )
        return models.tool_result(await self._call("call_tool", request))

    async def list_tools(self, agent: str) -> list[ToolInfo]:
        """Return the server tools of an agent, in order of their names."""
        request = make_request(tool_pb2.ListServerToolsRequest, agent=agent, page_size=200)
        found: list[ToolInfo] = []
        while True:
            page = await self._call("list_server_tools", request)
            found.extend(models.tool_info(each) for each in page.tools)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def read_inbox(self, *, limit: int = 0, wait_seconds: int = 0) -> Inbox:
        """Take unread messages, oldest first: they become one turn until each is answered or `done`."""
        request = make_request(pb.TakeInboxRequest, limit=limit, wait_seconds=clamped(wait_seconds))
        return models.inbox(await self._call("take_inbox", request))

    async def done(self, message_id: str) -> None:
        """End the turn of a delivered message without an answer."""
        await self._call("done", make_request(pb.DoneRequest, message_id=message_id))


def make_request(kind: Any, **fields: Any) -> Any:
    """Build a request; what a field cannot hold at all is refused by its name."""
    request = kind()
    for name, value in fields.items():
        try:
            if isinstance(value, list):
                getattr(request, name).extend(value)
            else:
                setattr(request, name, value)
        except UnicodeError:
            raise invalid(name, "is not valid Unicode (it holds half of a surrogate pair)") from None
        except (TypeError, ValueError, AttributeError):
            raise invalid(name, f"cannot be {value!r:.80}") from None
    return request


def clamped(seconds: int, least: int = 0, name: str = "wait_seconds") -> int:
    """Bring a time into its range; the mesh clamps it too."""
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise invalid(name, f"must be whole seconds, not {seconds!r:.80}")
    if seconds < least:
        raise invalid(name, f"must be at least {least}" if least else "must not be negative")
    return min(seconds, MAX_WAIT)


def _arguments(given: Mapping[str, Any] | None) -> str:
    found: Any = {} if given is None else given
    if not isinstance(found, Mapping):
        raise invalid("arguments", f"must be a mapping of names to values, not {found!r:.80}")
    return json_text("arguments", dict(found))


def _payload(payload: Any) -> str:
    return "" if payload is None else json_text("payload", payload)


def json_text(field: str, value: Any) -> str:
    """Write a value as JSON, or say which field cannot be."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise HoplineError("invalid_argument", f"{field}: is not JSON ({error})") from None
