"""One turn of an agent, as its handler gets it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from hopline.runtime.v1 import tunnel_pb2

from hopline_client import models
from hopline_client.actions import Method
from hopline_client.connection import Connecting
from hopline_client.crews import Entry, Session
from hopline_client.mesh import Mesh
from hopline_client.models import Connected, Message, Peer, Self, Status, Thread, ToHuman


class Wire(Protocol):
    """The way from a turn back to the mesh."""

    async def call(self, turn_id: str, traceparent: str, method: Method, request: Any) -> Any:
        """Make a call from within the turn."""
        ...

    async def write(self, start: tunnel_pb2.StartTurn, text: str) -> None:
        """Pass on a piece of what the agent writes."""
        ...

    def progress(self, start: tunnel_pb2.StartTurn, text: str) -> None:
        """Give a sign of life."""
        ...

    def unary(self, traceparent: str) -> Mesh:
        """Return a client for what does not travel over the tunnel."""
        ...


class TurnMesh(Connecting):
    """The mesh as the agent sees it from within a turn.

    Sends, asks and replies travel over the worker's stream and count as this turn's: its session, its
    depth, its root. They survive a stream that breaks meanwhile.
    """

    def __init__(self, wire: Wire, turn_id: str, traceparent: str) -> None:
        self._wire = wire
        self._turn_id = turn_id
        self._traceparent = traceparent
        self._unary: Mesh | None = None

    async def _call(self, method: Method, request: Any) -> Any:
        return await self._wire.call(self._turn_id, self._traceparent, method, request)

    async def list_agents(self) -> list[Peer]:
        """Return the agents on which this one may start something, in order of slug."""
        return await self._mesh().list_agents()

    async def connections(self) -> list[Connected]:
        """Return the connections that this agent may use now, in order of name."""
        return await self._mesh().connections()

    async def threads(self, limit: int = 50) -> list[Thread]:
        """Return the threads this agent takes part in, newest activity first."""
        return await self._mesh().threads(limit)

    async def thread(self, thread_id: str, limit: int = 1000) -> list[Message]:
        """Return the messages of a thread in order."""
        return await self._mesh().thread(thread_id, limit)

    async def sessions(self, agent: str = "", *, opened_by: str = "", limit: int = 50) -> list[Session]:
        """Return the sessions this agent may read, newest first; of those `opened_by` a session."""
        return await self._mesh().sessions(agent, opened_by=opened_by, limit=limit)

    async def read_session(self, session_id: str, limit: int = 1000) -> list[Entry]:
        """Return what was said in a session, in order."""
        return await self._mesh().read_session(session_id, limit)

    async def cancel(self, *, turn_id: str = "", session_id: str = "") -> Status:
        """End a turn that this agent started, and return its state."""
        return await self._mesh().cancel(turn_id=turn_id, session_id=session_id)

    async def whoami(self) -> Self:
        """Return who this agent is and where it stands."""
        return await self._mesh().whoami()

    async def close(self) -> None:
        """Close what the turn opened."""
        if self._unary is not None:
            await self._unary.close()

    def _mesh(self) -> Mesh:
        if self._unary is None:
            self._unary = self._wire.unary(self._traceparent)
        return self._unary


class Turn:
    """What is to be done, for whom, and the way back.

    `prompt` is the text for a model: what a person wrote as it is, what an agent wrote fenced as data.
    `text` is the plain body. `start` is the frame as it came, with everything the contract has.
    """

    def __init__(self, start: tunnel_pb2.StartTurn, wire: Wire) -> None:
        self.start = start
        self.id = start.turn_id
        self.attempt = start.attempt
        self.session_id = start.session_id
        self.session_title = start.session_title
        self.channel = start.channel
        self.root_id = start.root_id
        self.depth = start.depth
        self.cause = start.cause
        self.messages: tuple[Message, ...] = tuple(models.message(one) for one in start.messages)
        self.prompt = start.prompt
        self.continued = start.continued
        self.soul = start.soul
        self.instructions = start.instructions
        # Both in one, as the workspace's hooks have left them: what belongs into a model's system prompt.
        self.system_prompt = start.system_prompt or "\n\n".join(
            part for part in (start.soul, start.instructions) if part
        )
        self.model_id = start.model_id
        self.thinking_level = start.thinking_level
        # What becomes of what the agent writes: `implicit`, `auto` or `all`.
        self.reply_mode = start.reply_mode
        self.traceparent = start.traceparent
        # In unix seconds.
        self.deadline = start.deadline.ToMicroseconds() / 1_000_000
        # `planner (for Alice)`.
        self.from_: str = getattr(start, "from")
        self.mesh = TurnMesh(wire, start.turn_id, start.traceparent)
        self._wire = wire

    @property
    def text(self) -> str:
        """The bodies of the messages, a blank line between them; who wrote them does not show."""
        return "\n\n".join(message.body for message in self.messages)

    async def write(self, text: str) -> None:
        """Pass on a piece of what the agent writes; waits while the mesh takes less than is written."""
        await self._wire.write(self.start, text)

    def progress(self, text: str) -> None:
        """Give a sign of life with words for people."""
        self._wire.progress(self.start, text)

    async def reply_to_human(self, text: str, *, request_id: str = "") -> ToHuman:
        """Answer the person who prompted this agent: sent, or held until its subagents and todos are done."""
        return await self.mesh.reply_to_human(text, request_id=request_id)


def readable(text: str, length: int) -> str:
    """Make words for people that any text field takes."""
    return text[:length].encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


class TurnFailed(Exception):  # noqa: N818 - the turn failed, not the worker
    """Raised in a handler: the turn fails, and the caller gets exactly this text as the reason."""


Handler = Callable[[Turn], Awaitable[str | None] | AsyncIterator[str]]
"""What an agent is: returns the final answer (None or empty for none), or yields it in pieces.

A raised exception fails the turn with its text. When the turn is cancelled, CancelledError is raised in it.
"""
