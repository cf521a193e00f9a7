"""A relay's tunnels on an in-memory record of turns: everything of the tunnel is real but the store.

`FakeMesh` has agents and tokens by name; `mesh.queue("a")` queues a turn, `mesh.worker()` opens a raw stream.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import grpc.aio
from hopline.registry.v1 import agent_pb2, model_pb2, visibility_pb2, workspace_pb2
from hopline.relay.v1 import message_pb2 as msg
from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline.runtime.v1.tunnel_pb2_grpc import TunnelServiceStub, add_TunnelServiceServicer_to_server
from hopline_directory.directory import Directory
from hopline_relay.dispatch import Attachment, Dispatcher
from hopline_relay.drafts import Sent
from hopline_relay.outputs import Outputs
from hopline_relay.servicers.messages import MessageHandlers
from hopline_relay.tool_runs import ToolRuns
from hopline_relay.tool_schemas import Tool
from hopline_relay.tunnel import TunnelServicer
from hopline_relay.tunnel_stream import Tunnels
from hopline_relay.turns import ClaimedTurn, ClaimWish, Held, TurnEnd, Turns
from hopline_rpc.auth import Authenticator
from hopline_rpc.channels import ClientChannel, bearer, dial
from hopline_rpc.clock import ManualClock, to_timestamp
from hopline_rpc.errors import HoplineError, unauthenticated
from hopline_rpc.ids import seeded_ids
from hopline_rpc.principals import (
    AssertionSigner,
    AssertionVerifier,
    Principal,
    PrincipalKind,
    new_signing_key,
    new_token,
)
from hopline_rpc.serving import Server

MESH = "mesh-of-tests"
Key = tuple[str, str]


@dataclass
class FakeTurn:
    """A turn of the record."""

    turn_id: str
    key: Key
    text: str
    sender_kind: str = "agent"
    state: str = "queued"
    attempt: int = 0
    epoch: int = 0
    answer: str | None = None
    failure: str | None = None
    session_id: str = "ses_1"
    traceparent: str = ""


@dataclass
class FakeTurns:
    """The record. `gate` holds back what its name is found in, until it is set."""

    clock: ManualClock
    turns: dict[str, FakeTurn] = field(default_factory=dict)
    epochs: dict[Key, int] = field(default_factory=dict)
    log: list[tuple[str, Any]] = field(default_factory=list)
    claims: list[list[ClaimWish]] = field(default_factory=list)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    failures: dict[str, list[Exception]] = field(default_factory=dict)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    # The dispatcher registers itself here.
    on_claimable: Callable[[set[Key]], None] = field(init=False)
    on_cancel: Callable[[list[tuple[str, str, Held, str]]], None] = field(init=False)
    on_agent_gone: Callable[[str, str, str, str, str], None] = field(init=False)
    presence_source: Callable[[str, str], str | None] = field(init=False)
    isolation_source: Callable[[str, str], str] = field(init=False)
    places_source: Callable[[str, str], int] = field(init=False)

    def hold(self, name: str) -> asyncio.Event:
        """Make the calls of one method wait until the returned event is set."""
        return self.gates.setdefault(name, asyncio.Event())

    async def _pass(self, name: str) -> None:
        if name in self.gates:
            await self.gates[name].wait()
        if self.failures.get(name):
            raise self.failures[name].pop(0)

    def of(self, held: Held, epoch: int) -> FakeTurn | None:
        """Return the running turn that a frame names, unless the frame is stale."""
        turn = self.turns.get(held.turn_id)
        ours = turn is not None and turn.state == "running" and turn.attempt == held.attempt
        return turn if turn is not None and ours and turn.epoch == epoch else None

    async def attach(self, workspace_id: str, agent_id: str, told: Any = None) -> int:
        await self._pass("attach")
        key = (workspace_id, agent_id)
        self.epochs[key] = self.epochs.get(key, 0) + 1
        return self.epochs[key]

    async def resume(self, workspace_id: str, agent_id: str, held: Sequence[Held], epoch: int) -> list[Held]:
        await self._pass("resume")
        found = []
        for one in held:
            turn = self.turns.get(one.turn_id)
            mine = turn is not None and turn.key == (workspace_id, agent_id)
            if (
                turn is not None
                and mine
                and turn.state in {"running", "lost"}
                and turn.attempt == one.attempt
            ):
                turn.state, turn.epoch = "running", epoch
                found.append(one)
        return found

    async def claim(self, wishes: Sequence[ClaimWish]) -> list[ClaimedTurn]:
        self.claims.append(list(wishes))
        await self._pass("claim")
        claimed = []
        for wish in wishes:
            key = (wish.workspace_id, wish.agent_id)
            waiting = [t for t in self.turns.values() if t.key == key and t.state == "queued"]
            for turn in waiting[: wish.capacity]:
                turn.state, turn.attempt, turn.epoch = "running", turn.attempt + 1, wish.epoch
                claimed.append(self._claimed(turn, wish))
        return claimed

    def _claimed(self, turn: FakeTurn, wish: ClaimWish) -> ClaimedTurn:
        message = msg.Message(
            id=f"msg_{turn.turn_id}",
            thread_id="thr_1",
            seq=1,
            body=turn.text,
            depth=1,
            created_at=to_timestamp(self.clock.now()),
            reply_expected=True,
        )
        getattr(message, "from").CopyFrom(
            msg.Party(id="agt_sender", name="sender", display="sender (for Alice)", kind=turn.sender_kind)
        )
        return ClaimedTurn(
            turn_id=turn.turn_id,
            workspace_id=turn.key[0],
            agent_id=turn.key[1],
            attempt=turn.attempt,
            session_id=turn.session_id,
            session_title="From sender",
            channel="relay",
            root_id="rot_1",
            depth=1,
            cause="ask",
            continued=False,
            deadline=self.clock.now() + 3600,
            traceparent=turn.traceparent,
            sender_display="sender (for Alice)",
            sender_kind=turn.sender_kind,
            messages=[message],
            attachment=wish.attachment,
        )

    async def accepted(self, workspace_id: str, agent_id: str, held: Sequence[Held], epoch: int) -> None:
        await self._pass("accepted")
        self.log += [("accepted", one.turn_id) for one in held]

    async def end(self, end: TurnEnd) -> bool:
        await self._pass("end")
        self.log.append(("end", end.held.turn_id))
        turn = self.of(end.held, end.epoch)
        if turn is None:
            return False
        turn.answer, turn.failure = end.answer, end.failure
        turn.state = "canceled" if end.canceled else "failed" if end.failure is not None else "completed"
        return True

    async def renew(self, workspace_id: str, agent_id: str, held: Sequence[Held], epoch: int) -> list[Held]:
        await self._pass("renew")
        self.log.append(("renew", sorted(one.turn_id for one in held)))
        return [one for one in held if self.of(one, epoch) is None]

    async def tunnel_lost(self, workspace_id: str, agent_id: str, held: Sequence[Held], epoch: int) -> None:
        for one in held:
            self.log.append(("lost", one.turn_id))
            turn = self.of(one, epoch)
            if turn is not None:
                turn.state = "lost"
        self.lost.set()

    async def give_back(self, workspace_id: str, agent_id: str, held: Sequence[Held], epoch: int) -> None:
        for one in held:
            self.log.append(("given back", one.turn_id))
            turn = self.of(one, epoch)
            if turn is not None:
                turn.state, turn.attempt = "queued", turn.attempt - 1


class FakeTools:
    """Nobody calls a tool here."""

    def __init__(self) -> None:
        self.queue = self

    def offered(self, workspace_id: str, agent_id: str) -> dict[str, Tool]:
        return {}

    def place_free(self, workspace_id: str, agent_id: str) -> None:
        pass

    def lost(self, attachment: Attachment) -> None:
        pass

    def run_of(self, attachment: Attachment, call_id: int) -> None:
        return None


class FakeOutputs:
    """Keeps nothing of what is written."""

    async def load(self, keys: Any) -> dict[Any, Any]:
        return {}

    def changed(self, key: Any, attempt: int, writing: Any) -> None:
        pass

    def ended(self, key: Any) -> None:
        pass


class FakeHandlers:
    """Answers calls; an `ask` waits for `answers[agent]` where the test put a future there."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any, str]] = []
        self.answers: dict[str, asyncio.Future[msg.TurnView]] = {}
        self.handed_back: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.refusals: dict[str, HoplineError] = {}
        self.repeats = 0
        # What the relay has in parts is all here.
        self.delegation = self.todos = self.timers = self

    def repeated(self) -> None:
        self.repeats += 1

    async def _note(self, method: str, principal: Principal, request: Any, turn_id: str) -> None:
        self.calls.append((method, principal.name, request, turn_id))
        if method in self.gates:
            await self.gates[method].wait()
        if method in self.refusals:
            raise self.refusals[method]

    def enqueue_send(
        self, principal: Principal, request: msg.SendRequest, turn_id: str, traceparent: str
    ) -> asyncio.Future[Sent]:
        return self._queue("send", principal, request, turn_id, Sent("msg_sent", "thr_1", 1))

    def enqueue_reply(
        self, principal: Principal, request: msg.ReplyRequest, turn_id: str, traceparent: str
    ) -> asyncio.Future[Sent]:
        return self._queue("reply", principal, request, turn_id, Sent("msg_reply", "thr_1", 0))

    def _queue(
        self, method: str, principal: Principal, request: Any, turn_id: str, sent: Sent
    ) -> asyncio.Future[Sent]:
        async def write() -> Sent:
            await self._note(method, principal, request, turn_id)
            return sent

        return asyncio.ensure_future(write())

    def send_response(self, principal: Principal, sent: Sent) -> msg.SendResponse:
        return msg.SendResponse(message_id=sent.message_id, thread_id=sent.thread_id, depth=sent.depth)

    def reply_response(self, principal: Principal, sent: Sent) -> msg.ReplyResponse:
        return msg.ReplyResponse(message_id=sent.message_id, thread_id=sent.thread_id)

    async def send(
        self, principal: Principal, request: msg.SendRequest, *, turn_id: str = ""
    ) -> msg.SendResponse:
        return self.send_response(principal, await self.enqueue_send(principal, request, turn_id, ""))

    async def reply(
        self, principal: Principal, request: msg.ReplyRequest, *, turn_id: str = ""
    ) -> msg.ReplyResponse:
        return self.reply_response(principal, await self.enqueue_reply(principal, request, turn_id, ""))

    async def done(
        self, principal: Principal, request: msg.DoneRequest, *, turn_id: str = ""
    ) -> msg.DoneResponse:
        await self._note("done", principal, request, turn_id)
        return msg.DoneResponse(state=msg.DELIVERY_STATE_DONE)

    async def ask(
        self, principal: Principal, request: msg.AskRequest, *, turn_id: str = ""
    ) -> msg.AskResponse:
        await self._note("ask", principal, request, turn_id)
        if request.agent in self.answers:
            return msg.AskResponse(turn=await self.answers[request.agent])
        reply = f"{request.agent} says {request.text}"
        return msg.AskResponse(turn=completed(reply))

    async def check(
        self, principal: Principal, request: msg.CheckRequest, *, turn_id: str = ""
    ) -> msg.CheckResponse:
        await self._note("check", principal, request, turn_id)
        return msg.CheckResponse(turn=completed("checked"))

    async def take_inbox(
        self, principal: Principal, request: msg.TakeInboxRequest, *, turn_id: str = ""
    ) -> msg.TakeInboxResponse:
        await self._note("take_inbox", principal, request, turn_id)
        return msg.TakeInboxResponse(messages=[msg.Message(id="msg_taken")], remaining=3)

    def lost(self, principal: Principal, handed: msg.TurnView | tuple[str, ...]) -> None:
        self.handed_back += [handed.turn_id] if isinstance(handed, msg.TurnView) else handed


def completed(reply: str, turn_id: str = "trn_asked") -> msg.TurnView:
    """Return what an asker learns of a turn that has answered."""
    return msg.TurnView(
        status=msg.TURN_STATUS_COMPLETED, session_id="ses_x", turn_id=turn_id, reply=reply, has_reply=True
    )


class RawWorker:
    """A worker that says exactly what the test tells it to."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stream: Any = TunnelServiceStub(channel).Attach()
        self._read: list[pb.RelayItem] = []
        self.frames = 0

    async def say(self, *items: pb.WorkerItem) -> None:
        """Send a frame."""
        await self.stream.write(pb.AttachRequest(items=items))

    async def attach(self, token: str, number: int = 1, **fields: Any) -> pb.RelayItem:
        """Attach an agent and return the answer."""
        fields.setdefault("max_turns", 4)
        fields.setdefault("isolation", "user")
        await self.say(pb.WorkerItem(attach=pb.AttachAgent(attachment=number, credential=token, **fields)))
        return await self.next("attached", "detached")

    async def next(self, *kinds: str) -> pb.RelayItem:
        """Return the next item of these kinds; others before it stay for later."""
        while True:
            for item in self._read:
                if not kinds or item.WhichOneof("item") in kinds:
                    self._read.remove(item)
                    return item
            frame = await self.stream.read()
            if frame is grpc.aio.EOF:
                raise EOFError
            self.frames += 1
            self._read.extend(frame.items)

    async def start(self) -> pb.StartTurn:
        """Wait for a turn."""
        return (await self.next("start")).start

    async def rest(self) -> list[pb.RelayItem]:
        """Return everything up to the end of the stream."""
        items = []
        try:
            while True:
                items.append(await self.next())
        except EOFError:
            return items

    async def beat(self) -> None:
        """Send a heartbeat and wait for its echo: all that was said before has been taken."""
        await self.say(pb.WorkerItem(heartbeat=pb.Heartbeat()))
        await self.next("heartbeat")


def accepted(start: pb.StartTurn) -> pb.WorkerItem:
    """Say that a turn was taken."""
    item = pb.TurnAccepted(attachment=start.attachment, turn_id=start.turn_id, attempt=start.attempt)
    return pb.WorkerItem(accepted=item)


def ended(start: pb.StartTurn, **outcome: Any) -> pb.WorkerItem:
    """Say that a turn has ended."""
    item = pb.TurnEnded(
        attachment=start.attachment,
        turn_id=start.turn_id,
        attempt=start.attempt,
        **(outcome or {"answer": "ok"}),
    )
    return pb.WorkerItem(ended=item)


class FakeMesh:
    """The relay's side, with agents by name."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.turns = FakeTurns(self.clock)
        self.handlers = FakeHandlers()
        self.directory = Directory()
        self.principals: dict[str, Principal] = {}
        self.revoked: set[str] = set()
        self.reachable = True
        key = new_signing_key("k1")
        self._signer = AssertionSigner([key], MESH, self.clock)
        verifier = AssertionVerifier(
            lambda kid: key.public() if kid == "k1" else None,
            MESH,
            self.clock,
            lambda principal: principal.token_id in self.revoked,
        )
        self.authenticator = Authenticator(verifier, self._exchange, self.clock)
        turns = cast("Turns", self.turns)
        self.dispatcher = Dispatcher(turns, self.directory, self.clock)
        tunnels = Tunnels(
            self.dispatcher,
            turns,
            cast("ToolRuns", FakeTools()),
            cast("MessageHandlers", self.handlers),
            cast("Outputs", FakeOutputs()),
            self.authenticator,
            self.directory,
            self._fresh,
            self.clock,
            seeded_ids(self.clock, 2),
            lambda call, error: None,
        )
        self.servicer = TunnelServicer(tunnels)
        self.server = Server(
            "relay", authenticator=self.authenticator, clock=self.clock, ids=seeded_ids(self.clock, 1)
        )
        self.server.add(add_TunnelServiceServicer_to_server, self.servicer)
        self.address = ""
        self._seq = 0
        self._numbers = itertools.count(1)
        self._channels: list[ClientChannel] = []
        self._agents: dict[str, agent_pb2.Agent] = {}
        self._apply(snapshot=True)
        self.policy()

    async def _fresh(self) -> None:
        if not self.reachable:
            raise HoplineError("unavailable", "the registry cannot be reached just now; try again")

    async def _exchange(self, token: str, workspace: str) -> str:
        await self._fresh()
        principal = self.principals.get(token)
        if principal is None or principal.token_id in self.revoked:
            raise unauthenticated()
        if principal.expires_at and principal.expires_at <= self.clock.now():
            raise unauthenticated()
        return self._signer.sign(principal)

    def _apply(self, *, snapshot: bool = False, **entity: Any) -> None:
        self._seq += 1
        change = visibility_pb2.Change(seq=self._seq, workspace_id="ws_1", **entity)
        self.directory.apply(
            visibility_pb2.WatchChangesResponse(
                changes=[change] if entity else [],
                head_seq=self._seq,
                snapshot=snapshot,
                snapshot_end=snapshot,
            )
        )

    # -- agents and tokens -------------------------------------------------------------------------

    def model(self, model_id: str, identifier: str, *, is_default: bool = False) -> None:
        """Put a model into the catalogue, or change it."""
        self._apply(model=model_pb2.Model(id=model_id, model_identifier=identifier, is_default=is_default))

    def agent(self, name: str, **fields: Any) -> str:
        """Create an agent and return a token of its."""
        agent = agent_pb2.Agent(
            id=f"agt_{name}",
            slug=name,
            name=name,
            kind=agent_pb2.AGENT_KIND_STANDARD,
            state=agent_pb2.AGENT_STATE_ACTIVE,
            **fields,
        )
        self._agents[name] = agent
        self._apply(agent=agent)
        return self.token(name)

    def token(self, name: str, kind: PrincipalKind = "agent", expires_in: float = 0.0) -> str:
        """Make a further token."""
        token = new_token(kind)
        self.principals[token] = Principal(
            kind,
            f"agt_{name}" if kind == "agent" else name,
            "ws_1",
            name,
            f"tok_{next(self._numbers)}",
            expires_at=self.clock.now() + expires_in if expires_in else 0.0,
        )
        return token

    def assertion(self, token: str, life: float = 60.0) -> str:
        """Sign an assertion for the holder of a token."""
        return self._signer.sign(self.principals[token], life=life)

    def pause(self, name: str) -> None:
        """Pause an agent, as the relay learns of it."""
        agent = self._agents[name]
        agent.state = agent_pb2.AGENT_STATE_PAUSED
        self._apply(agent=agent)
        self.turns.on_agent_gone("ws_1", agent.id, "", "agent_paused", "the agent is paused")

    def resume(self, name: str) -> None:
        """Let a paused agent work again."""
        agent = self._agents[name]
        agent.state = agent_pb2.AGENT_STATE_ACTIVE
        self._apply(agent=agent)

    def revoke(self, token: str) -> None:
        """Revoke a token, as the relay learns of it."""
        principal = self.principals[token]
        self.revoked.add(principal.token_id)
        self.authenticator.drop(principal.token_id)
        error = unauthenticated()
        self.turns.on_agent_gone("ws_1", principal.id, principal.token_id, error.reason, error.message)

    def policy(self, **fields: Any) -> None:
        """Change the workspace's policy."""
        self._apply(policy=workspace_pb2.Policy(pair_budget="0", refusals="0", credits="off", **fields))

    # -- turns -------------------------------------------------------------------------------------

    def queue(self, name: str, text: str = "hello", sender_kind: str = "agent", **fields: Any) -> str:
        """Queue a turn of an agent and say so."""
        turn_id = f"trn_{next(self._numbers)}"
        key = ("ws_1", f"agt_{name}")
        self.turns.turns[turn_id] = replace(FakeTurn(turn_id, key, text, sender_kind), **fields)
        self.turns.on_claimable({key})
        return turn_id

    def state(self, turn_id: str) -> str:
        """Return a turn's state."""
        return self.turns.turns[turn_id].state

    def cancel(self, turn_id: str, reason: str = "no longer needed") -> None:
        """Cancel a turn, as the store would."""
        turn = self.turns.turns[turn_id]
        turn.state = "canceled"
        self.turns.on_cancel([(*turn.key, Held(turn_id, turn.attempt), reason)])

    # -- streams -----------------------------------------------------------------------------------

    def channel(self, token: str) -> ClientChannel:
        """Return a channel whose streams are opened with this token, over the socket where there is one."""
        if self.address:
            channel = dial(self.address, credentials=bearer(token))
        else:
            channel = ClientChannel(self.server.channel(), bearer(token))
        self._channels.append(channel)
        return channel

    def worker(self, token: str) -> RawWorker:
        """Open a stream."""
        return RawWorker(self.channel(token))

    async def close(self) -> None:
        """Close everything."""
        for channel in self._channels:
            await channel.close()
        await self.server.stop(0)
        await self.dispatcher.close()


@asynccontextmanager
async def fake_mesh(*, socket: bool = False) -> AsyncIterator[FakeMesh]:
    """Run a mesh in process or on a free port."""
    mesh = FakeMesh()
    mesh.dispatcher.start()
    if socket:
        mesh.address = await mesh.server.start("127.0.0.1:0")
    try:
        yield mesh
    finally:
        await mesh.close()
