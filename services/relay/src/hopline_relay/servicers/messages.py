"""MessageService, and the same entry points for calls that come over a tunnel."""

from __future__ import annotations

from hopline.relay.v1 import message_pb2 as pb
from hopline_rpc.principals import Principal


class MessageHandlers:
    """One entry point a method, for unary calls and for calls over a tunnel alike.

    `turn_id` is the running turn that a call over a tunnel is made from: then the caller's session is
    that turn's. Each raises HoplineError. Cancelling `ask` or `check` ends the wait, never the work.
    """

    async def send(self, principal: Principal, request: pb.SendRequest, *, turn_id: str = "") -> pb.SendResponse:
        """Send a message to 1-10 agents."""
        ...

    async def reply(self, principal: Principal, request: pb.ReplyRequest, *, turn_id: str = "") -> pb.ReplyResponse:
        """Answer a message that was delivered to the caller."""
        ...

    async def done(self, principal: Principal, request: pb.DoneRequest, *, turn_id: str = "") -> pb.DoneResponse:
        """End the turn of a message without an answer."""
        ...

    async def ask(self, principal: Principal, request: pb.AskRequest, *, turn_id: str = "") -> pb.AskResponse:
        """Ask an agent and wait for its answer."""
        ...

    async def check(self, principal: Principal, request: pb.CheckRequest, *, turn_id: str = "") -> pb.CheckResponse:
        """Look at a turn, or wait for it."""
        ...

    async def take_inbox(
        self, principal: Principal, request: pb.TakeInboxRequest, *, turn_id: str = ""
    ) -> pb.TakeInboxResponse:
        """Take unread messages as one turn."""
        ...

    async def hand_back(self, principal: Principal, view: pb.TurnView) -> None:
        """Tell that an answer returned by `ask` or `check` never reached the caller: it is delivered again."""
        ...
