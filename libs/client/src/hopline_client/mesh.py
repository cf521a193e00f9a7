"""The mesh over unary calls: everything an agent, or a person's script, may do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from hopline.registry.v1 import visibility_pb2
from hopline.registry.v1.visibility_pb2_grpc import VisibilityServiceStub
from hopline.relay.v1 import delegation_pb2, session_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline.relay.v1.delegation_pb2_grpc import DelegationServiceStub
from hopline.relay.v1.draft_pb2_grpc import DraftServiceStub
from hopline.relay.v1.escalation_pb2_grpc import EscalationServiceStub
from hopline.relay.v1.message_pb2_grpc import MessageServiceStub
from hopline.relay.v1.session_pb2_grpc import SessionServiceStub
from hopline.relay.v1.timer_pb2_grpc import TimerServiceStub
from hopline.relay.v1.todo_pb2_grpc import TodoServiceStub
from hopline.relay.v1.tool_pb2_grpc import ToolServiceStub
from hopline_rpc.clock import Clock, SystemClock
from hopline_rpc.errors import HoplineError, from_rpc_error, invalid
from hopline_rpc.faults import point
from hopline_rpc.tls import TlsSettings

from hopline_client import crews, models
from hopline_client.actions import MAX_WAIT, Method
from hopline_client.connection import Connecting
from hopline_client.crews import Entry, Session
from hopline_client.dialing import Dial, bearer, dialer
from hopline_client.discovery import Source, TokenSource, source, token_source
from hopline_client.models import Connected, Message, Peer, Self, Status, Thread

_METHODS: Final[dict[Method, tuple[Any, str]]] = {
    "send": (MessageServiceStub, "Send"),
    "reply": (MessageServiceStub, "Reply"),
    "ask": (MessageServiceStub, "Ask"),
    "check": (MessageServiceStub, "Check"),
    "done": (MessageServiceStub, "Done"),
    "take_inbox": (MessageServiceStub, "TakeInbox"),
    "ask_owner": (EscalationServiceStub, "AskOwner"),
    "check_escalation": (EscalationServiceStub, "CheckEscalation"),
    "call_tool": (ToolServiceStub, "CallTool"),
    "list_server_tools": (ToolServiceStub, "ListServerTools"),
    "start_subagent": (DelegationServiceStub, "StartSubagent"),
    "start_self_subagent": (DelegationServiceStub, "StartSelfSubagent"),
    "report_to_caller": (DelegationServiceStub, "ReportToCaller"),
    "message_agent": (DelegationServiceStub, "MessageAgent"),
    "send_message_to_session": (DelegationServiceStub, "SendMessageToSession"),
    "close_subagent": (DelegationServiceStub, "CloseSubagent"),
    "reply_to_human": (DraftServiceStub, "ReplyToHuman"),
    "add_todos": (TodoServiceStub, "AddTodos"),
    "list_todos": (TodoServiceStub, "ListTodos"),
    "update_todo": (TodoServiceStub, "UpdateTodo"),
    "complete_todo": (TodoServiceStub, "CompleteTodo"),
    "remove_todo": (TodoServiceStub, "RemoveTodo"),
    "snooze_todo": (TodoServiceStub, "SnoozeTodo"),
    "set_timer": (TimerServiceStub, "SetTimer"),
    "list_timers": (TimerServiceStub, "ListTimers"),
    "cancel_timer": (TimerServiceStub, "CancelTimer"),
}
_WAITING: Final = frozenset({"ask", "check", "take_inbox", "ask_owner", "check_escalation", "call_tool"})
_CALL_SECONDS: Final = 10.0
_WAIT_SECONDS: Final = MAX_WAIT + 10.0
_PAGE: Final = 200
_TRIES: Final = 3
# So long a call goes on trying when a mesh that has answered before is gone: a restart takes less.
_PATIENCE_SECONDS: Final = 15.0
_FIRST_PAUSE: Final = 0.05
_LAST_PAUSE: Final = 1.0


class Mesh(Connecting):
    """A client of the mesh, acting as whoever holds the token.

    `where` is a data directory (a Path), a gateway's URL or a relay's address; without it, and without a
    token, the environment says (HOPLINE_URL, HOPLINE_DATA, HOPLINE_TOKEN_FILE)::

        async with Mesh("http://127.0.0.1:7400", token_file="me.token") as mesh:
            answer = await mesh.ask("reviewer", "Is two plus two four?")
            print(answer.text)

    A call that finds the mesh gone looks for it anew, so a mesh that came back elsewhere is found; it tries
    for 15 s where the mesh has answered this client before, else it fails after a moment.
    """

    def __init__(
        self,
        where: str | Path | Source | None = None,
        *,
        token: str | TokenSource | None = None,
        token_file: str | Path | None = None,
        tls: TlsSettings | None = None,
        insecure: bool = False,
        dial: Dial | None = None,
        traceparent: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._has_answered = False
        self._source = source(where)
        self._token = token_source(token, token_file)
        self._dial = dial or dialer(tls, insecure=insecure)
        self._traceparent = traceparent
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Mesh:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        channels = list(self._channels.values())
        self._channels.clear()
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*(channel.close() for channel in channels))

    async def list_agents(self) -> list[Peer]:
        """Return the agents on which this caller may start something, in order of slug."""
        found: list[visibility_pb2.Peer] = []
        request = visibility_pb2.ListPeersRequest(page_size=_PAGE)
        while True:
            page = await self._unary("registry", VisibilityServiceStub, "ListPeers", request)
            found.extend(page.peers)
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        presence: dict[str, str] = {}
        for start in range(0, len(found), _PAGE):
            ids = [one.id for one in found[start : start + _PAGE]]
            asked = session_pb2.GetPresenceRequest(agents=ids)
            answer = await self._unary("relay", SessionServiceStub, "GetPresence", asked)
            presence.update(answer.presence)
        return [models.peer(one, presence.get(one.id, "")) for one in found]

    async def connections(self) -> list[Connected]:
        """Return the connections that this agent may use now, in order of name."""
        request = visibility_pb2.ListConnectionsRequest(page_size=_PAGE)
        found = await self._unary("registry", VisibilityServiceStub, "ListConnections", request)
        return [models.connected(one) for one in found.connections]

    async def threads(self, limit: int = 50) -> list[Thread]:
        """Return the threads this caller takes part in, newest activity first."""
        return await self._pages(
            "ListThreads", pb.ListThreadsRequest(), "threads", limit, lambda one: models.thread(one)
        )

    async def thread(self, thread_id: str, limit: int = 1000) -> list[Message]:
        """Return the messages of a thread in order. An agent that reads an unread message has taken it."""
        request = pb.ListMessagesRequest(thread_id=thread_id)
        return await self._pages("ListMessages", request, "messages", limit, lambda one: models.message(one))

    async def sessions(self, agent: str = "", *, opened_by: str = "", limit: int = 50) -> list[Session]:
        """Return the sessions this caller may read, newest first; of those `opened_by` a session."""
        request = session_pb2.ListSessionsRequest(agent=agent, opened_by_session_id=opened_by)
        return await self._pages(
            "ListSessions", request, "sessions", limit, crews.session, SessionServiceStub
        )

    async def read_session(self, session_id: str, limit: int = 1000) -> list[Entry]:
        """Return what was said in a session, in order. An agent that reads an unread message has taken it."""
        request = session_pb2.ReadSessionRequest(session_id=session_id)
        return await self._pages("ReadSession", request, "entries", limit, crews.entry, SessionServiceStub)

    async def cancel(self, *, turn_id: str = "", session_id: str = "") -> Status:
        """End a turn that this caller started, or the newest of a session, and return its state."""
        if bool(turn_id) == bool(session_id):
            raise invalid("turn_id", "name either a turn or a session")
        request = delegation_pb2.CancelRequest(
            **({"turn_id": turn_id} if turn_id else {"session_id": session_id})
        )
        answer = await self._unary("relay", DelegationServiceStub, "Cancel", request)
        status: Any = pb.TurnStatus.Name(answer.status).removeprefix("TURN_STATUS_").lower()
        return status  # type: ignore[no-any-return] # the contract's names are the literals

    async def whoami(self) -> Self:
        """Return who this caller is and where it stands."""
        who, where = await asyncio.gather(
            self._unary("registry", VisibilityServiceStub, "GetSelf", visibility_pb2.GetSelfRequest()),
            self._unary("relay", SessionServiceStub, "GetContext", session_pb2.GetContextRequest()),
        )
        is_agent = who.HasField("agent")
        return Self(
            id=who.agent.id if is_agent else who.owner.id,
            slug=who.agent.slug,
            name=who.agent.name if is_agent else who.owner.name,
            kind="agent" if is_agent else "user",
            owner=who.owner.name,
            workspace=who.workspace.name,
            session_id=where.session_id,
            depth=where.depth,
            isolation=where.isolation,
        )

    # -- how calls travel --------------------------------------------------------------------------

    async def _call(self, method: Method, request: Any) -> Any:
        seconds = _WAIT_SECONDS if method in _WAITING else _CALL_SECONDS
        # Taking the inbox twice takes twice; all else is safe to say again, by its request_id.
        once = method == "take_inbox"
        stub, name = _METHODS[method]
        return await self._unary("relay", stub, name, request, seconds, once=once)

    async def _pages(
        self,
        method: str,
        request: Any,
        field: str,
        limit: int,
        read: Any,
        service: Any = MessageServiceStub,
    ) -> list[Any]:
        found: list[Any] = []
        while len(found) < limit:
            request.page_size = min(_PAGE, limit - len(found))
            page = await self._unary("relay", service, method, request)
            found.extend(read(one) for one in getattr(page, field))
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        return found

    async def _unary(
        self,
        service: str,
        stub: Any,
        method: str,
        request: Any,
        seconds: float = _CALL_SECONDS,
        *,
        once: bool = False,
    ) -> Any:
        gives_up = self._clock.monotonic() + (_PATIENCE_SECONDS if self._has_answered else 0.0)
        pause = _FIRST_PAUSE
        tried = 0
        while True:
            tried += 1
            try:
                return await self._try(service, stub, method, request, seconds)
            except HoplineError as error:
                over = tried >= _TRIES and self._clock.monotonic() >= gives_up
                if not _is_gone(error) or once or over:
                    raise
            await self._clock.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE)

    async def _try(self, service: str, stub: Any, method: str, request: Any, seconds: float) -> Any:
        channel = await self._channel(service)
        metadata = bearer(await self._token())
        if self._traceparent:
            metadata += (("traceparent", self._traceparent),)
        point("client.calling")
        try:
            answer = await getattr(stub(channel), method)(request, timeout=seconds, metadata=metadata)
        except (grpc.aio.AioRpcError, HoplineError) as error:
            failure = error if isinstance(error, HoplineError) else from_rpc_error(error)
            if _is_gone(failure):
                self._forget(service, channel)
            raise failure from None
        point("client.answered")
        self._has_answered = True
        return answer

    async def _channel(self, service: str) -> grpc.aio.Channel:
        channel = self._channels.get(service)
        if channel is None:
            target = (await self._source.endpoints()).target(service)
            channel = self._channels.setdefault(service, self._dial(target))
        return channel

    def _forget(self, service: str, channel: grpc.aio.Channel) -> None:
        """Look for the service anew next time; calls still under way on the channel may end."""
        if self._channels.get(service) is channel:
            del self._channels[service]
            task = asyncio.create_task(channel.close(_WAIT_SECONDS))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _is_gone(error: HoplineError) -> bool:
    """Tell whether it is the mesh that is away, not a worker that the mesh looked for to run a tool."""
    return error.reason == "unavailable" and "tool" not in error.details
