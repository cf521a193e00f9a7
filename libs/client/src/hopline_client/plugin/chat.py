"""The session that a plugin was handed: what it may do there, as far as its manifest's permissions go.

Whatever is done is done as the session's agent and by its rules. It counts at the highest depth, root and
hook generation that the plugin was handed within the workspace's causality window, one further on. What the
rules do not allow is told as data, not raised. None of it answers the session's human.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from hopline.hooks.v1 import extension_pb2
from hopline.relay.v1 import plugin_session_pb2 as pb
from hopline.relay.v1 import session_pb2
from hopline.relay.v1.plugin_session_pb2_grpc import PluginSessionServiceStub
from hopline_rpc.clock import from_timestamp
from hopline_rpc.errors import HoplineError

from hopline_client.actions import make_request
from hopline_client.models import Party, party

Call = Callable[[Any, str, Any], Awaitable[Any]]
"""`await call(stub, method, request)` makes a call of the relay as the plugin."""

_PAGE: Final = 200

Outcome = Literal["created", "forbidden", "depth_exceeded"]
_OUTCOMES: Final[dict[int, Outcome]] = {
    pb.SPAWN_OUTCOME_CREATED: "created",
    pb.SPAWN_OUTCOME_FORBIDDEN: "forbidden",
    pb.SPAWN_OUTCOME_DEPTH_EXCEEDED: "depth_exceeded",
}


@dataclass(frozen=True, slots=True)
class Spawned:
    """What became of starting a subagent. `session_id` is the child's, None unless `created`."""

    outcome: Outcome
    session_id: str | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of a message to another session."""

    is_delivered: bool
    is_canceled: bool
    cancel_reason: str | None
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class PeerSession:
    """Another session: who runs it, and whether it is `idle`, `busy` or `closed`."""

    id: str
    agent: Party
    state: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a transcript. `kind`: `prompt`, `answer`, `message_in`, `message_out` or `note`."""

    seq: int
    kind: str
    sender: Party
    text: str
    at: float
    message_id: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """A page of a transcript; `next_cursor` goes on with it, None at the end."""

    lines: tuple[Line, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Todo:
    """Something that the session's agent has to do."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What became of a timer. Without an id it was not set: a hook left nothing of it, or `is_canceled`."""

    notify_id: str | None
    fire_at: float | None
    is_canceled: bool
    cancel_reason: str | None


class Chat:
    """A session that was handed to the plugin; without one every call is refused."""

    def __init__(
        self,
        call: Call,
        handed: extension_pb2.HandedSession | None,
        *,
        session_id: str = "",
        turn_id: str = "",
    ) -> None:
        handed = handed if handed is not None else extension_pb2.HandedSession(session_id=session_id)
        self._call = call
        self.session_id = handed.session_id
        self.turn_id = turn_id
        # Of an agent that is not the plugin's own, the id alone.
        self.agent_id = handed.agent_id
        self.agent_slug = handed.agent_slug
        self.agent_name = handed.agent_name
        self.agent_key: str | None = handed.agent_key or None
        self.channel = handed.channel
        self.depth = handed.depth
        self.hook_generation = handed.hook_generation
        # True where nothing can be done in it: too many reactions of plugins to one event.
        self.is_withheld = handed.is_withheld

    async def spawn(
        self, task: str, *, agent: str = "", is_fire_and_forget: bool = False, request_id: str = ""
    ) -> Spawned:
        """Start an agent on a task; it reports to this session. Without `agent`: a copy of its own."""
        request = make_request(
            pb.SpawnSubagentRequest,
            session_id=self._session(),
            agent=agent,
            task=task,
            is_fire_and_forget=is_fire_and_forget,
            request_id=request_id or str(uuid.uuid4()),
        )
        found = await self._made("SpawnSubagent", request)
        return Spawned(_OUTCOMES[found.outcome], found.child_session_id or None, found.reason)

    async def send(self, session_id: str, text: str, *, request_id: str = "") -> Delivered:
        """Send into another session that this one's agent may send to, which wakes it."""
        request = make_request(
            pb.SendPeerRequest,
            session_id=self._session(),
            to_session_id=session_id,
            text=text,
            request_id=request_id or str(uuid.uuid4()),
        )
        found = await self._made("SendPeer", request)
        return Delivered(
            found.is_delivered, found.is_canceled, found.cancel_reason or None, found.message_id or None
        )

    async def peer(self, session_id: str) -> PeerSession:
        """Return another session that this one's agent may see."""
        request = make_request(pb.GetPeerRequest, session_id=self._session(), peer_session_id=session_id)
        found = await self._made("GetPeer", request)
        return PeerSession(found.id, party(found.agent), found.state)

    async def read(self, *, session_id: str = "", limit: int = 50, cursor: str | None = None) -> Transcript:
        """Return a page of this transcript, or of that of another session that its agent may see."""
        request = make_request(
            pb.ReadConversationRequest,
            session_id=self._session(),
            of_session_id=session_id,
            page_size=limit,
            page_token=cursor or "",
        )
        found = await self._made("ReadConversation", request)
        return Transcript(tuple(_line(each) for each in found.entries), found.next_page_token or None)

    async def post(self, text: str, *, request_id: str = "") -> str:
        """Put a message of the plugin's into the session, which wakes its agent; returns the message's id."""
        request = make_request(
            pb.PostMessageRequest,
            session_id=self._session(),
            text=text,
            request_id=request_id or str(uuid.uuid4()),
        )
        return str((await self._made("PostMessage", request)).message_id)

    async def todos(self) -> list[Todo]:
        """Return the session's open todos in order. Permission `todo.read`."""
        found: list[Todo] = []
        request = make_request(pb.ListSessionTodosRequest, session_id=self._session(), page_size=_PAGE)
        while True:
            page = await self._made("ListSessionTodos", request)
            found.extend(_todo(each) for each in page.todos)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def add_todos(self, *texts: str, request_id: str = "") -> list[Todo]:
        """Note what is to be done; returns what was noted. Permission `todo.write`."""
        request = make_request(
            pb.CreateSessionTodosRequest,
            session_id=self._session(),
            texts=list(texts),
            request_id=request_id or str(uuid.uuid4()),
        )
        return [_todo(each) for each in (await self._made("CreateSessionTodos", request)).todos]

    async def update_todo(self, todo_id: str, text: str) -> Todo:
        """Put other words in the place of one. Permission `todo.write`."""
        request = make_request(
            pb.UpdateSessionTodoRequest, session_id=self._session(), todo_id=todo_id, text=text
        )
        return _todo((await self._made("UpdateSessionTodo", request)).todo)

    async def complete_todo(self, todo_id: str) -> None:
        """Say that one is done. Permission `todo.write`."""
        request = make_request(pb.CompleteSessionTodoRequest, session_id=self._session(), todo_id=todo_id)
        await self._made("CompleteSessionTodo", request)

    async def delete_todo(self, todo_id: str) -> None:
        """Forget one. Permission `todo.write`."""
        request = make_request(pb.DeleteSessionTodoRequest, session_id=self._session(), todo_id=todo_id)
        await self._made("DeleteSessionTodo", request)

    async def notify(self, message: str, delay_seconds: int, *, request_id: str = "") -> Scheduled:
        """Have the session woken with a note, at least 10 s from now. Permission `notify.write`."""
        request = make_request(
            pb.ScheduleNotifyRequest,
            session_id=self._session(),
            message=message,
            delay_seconds=delay_seconds,
            request_id=request_id or str(uuid.uuid4()),
        )
        found = await self._made("ScheduleNotify", request)
        return Scheduled(
            found.notify_id or None,
            from_timestamp(found.fire_at) if found.HasField("fire_at") else None,
            found.is_canceled,
            found.cancel_reason or None,
        )

    def _session(self) -> str:
        if not self.session_id:
            raise HoplineError("failed_precondition", "no session was handed over with this")
        return self.session_id

    async def _made(self, method: str, request: Any) -> Any:
        return await self._call(PluginSessionServiceStub, method, request)


def _todo(todo: pb.SessionTodo) -> Todo:
    return Todo(todo.id, todo.text)


def _line(entry: session_pb2.TranscriptEntry) -> Line:
    sender = party(getattr(entry, "from"))
    return Line(entry.seq, entry.kind, sender, entry.text, from_timestamp(entry.at), entry.message_id)
