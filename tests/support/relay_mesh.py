"""Registry, quota and relay, all real, in one process on a clock that a test moves by hand.

`mesh.agent("ada")` makes an agent and returns its stubs; `mesh.reopen()` closes everything and opens it
again on the same files; `mesh.kill()` leaves the relay's store as a killed process would.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from hopline.quota.v1 import admission_pb2, credit_pb2, usage_pb2
from hopline.quota.v1.admission_pb2_grpc import AdmissionServiceStub
from hopline.quota.v1.credit_pb2_grpc import CreditServiceStub
from hopline.quota.v1.usage_pb2_grpc import UsageServiceStub
from hopline.registry.v1 import agent_pb2, identity_pb2, workspace_pb2
from hopline.registry.v1.agent_pb2_grpc import AgentServiceStub
from hopline.registry.v1.identity_pb2_grpc import IdentityServiceStub
from hopline.registry.v1.plugin_pb2_grpc import PluginServiceStub
from hopline.registry.v1.workspace_pb2_grpc import WorkspaceServiceStub
from hopline.relay.v1 import audit_pb2, delegation_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline.relay.v1.audit_pb2_grpc import AuditServiceStub
from hopline.relay.v1.dead_letter_pb2_grpc import DeadLetterServiceStub
from hopline.relay.v1.delegation_pb2_grpc import DelegationServiceStub
from hopline.relay.v1.escalation_pb2_grpc import EscalationServiceStub
from hopline.relay.v1.exchange_pb2_grpc import ExchangeServiceStub
from hopline.relay.v1.floor_pb2_grpc import FloorServiceStub
from hopline.relay.v1.hook_state_pb2_grpc import HookStateServiceStub
from hopline.relay.v1.message_pb2_grpc import MessageServiceStub
from hopline.relay.v1.schedule_pb2_grpc import ScheduleServiceStub
from hopline.relay.v1.session_pb2_grpc import SessionServiceStub
from hopline.relay.v1.timer_pb2_grpc import TimerServiceStub
from hopline.relay.v1.todo_pb2_grpc import TodoServiceStub
from hopline.relay.v1.webhook_pb2_grpc import WebhookServiceStub
from hopline_quota.app import SERVICE as QUOTA
from hopline_registry.app import SERVICE as REGISTRY
from hopline_relay.app import SERVICE as RELAY
from hopline_relay.app import Relay
from hopline_relay.turns import ClaimedTurn, ClaimWish, Held, TurnEnd
from hopline_rpc.channels import ClientChannel
from hopline_rpc.clock import ManualClock
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import Ids
from hopline_rpc.principals import Principal
from hopline_rpc.service import Wiring

T = TypeVar("T")
_PATIENCE = 10.0


async def until(condition: Callable[[], T | None], what: str = "it") -> T:
    """Let the process run until the condition holds, and return its value."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + _PATIENCE
    while not (value := condition()):
        if loop.time() > ends:
            raise AssertionError(f"{what} never came")
        await asyncio.sleep(0.001)
    return value


async def refusal(call: Awaitable[Any]) -> HoplineError:
    """Return the error of a call that has to be refused."""
    try:
        answer = await call
    except HoplineError as error:
        return error
    raise AssertionError(f"not refused: {answer}")


async def attempt(call: Awaitable[T]) -> T | HoplineError:
    """Return the result of a call, or its refusal."""
    try:
        return await call
    except HoplineError as error:
        return error


class Clock(ManualClock):
    """A clock that can also be set on at once, and whose wall time can be set while no time passes."""

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self._set_by = 0.0

    def now(self) -> float:
        """Return the wall clock."""
        return super().now() + self._set_by

    def set_wall(self, seconds: float) -> None:
        """Set the wall clock on, or back; no time passes."""
        self._set_by += seconds

    def skip(self, seconds: float) -> None:
        """Go on; what was due on the way happens with the next step."""
        self._now += seconds


class Caller:
    """Somebody with a credential, and what they can call."""

    def __init__(self, mesh: RelayMesh, identifier: str, token: str, workspace: str = "") -> None:
        self.mesh = mesh
        self.id = identifier
        self.token = token
        self.workspace = workspace

    def _channel(self, service: str) -> ClientChannel:
        pairs: tuple[tuple[str, str | bytes], ...] = (("authorization", f"Bearer {self.token}"),)
        if self.workspace:
            pairs += (("hopline-workspace", self.workspace),)
        return ClientChannel(self.mesh.channels[service], lambda: pairs)

    @property
    def messages(self) -> Any:
        """MessageService."""
        return MessageServiceStub(self._channel("relay"))

    @property
    def sessions(self) -> Any:
        """SessionService."""
        return SessionServiceStub(self._channel("relay"))

    @property
    def turns(self) -> Any:
        """DelegationService."""
        return DelegationServiceStub(self._channel("relay"))

    @property
    def escalations(self) -> Any:
        """EscalationService."""
        return EscalationServiceStub(self._channel("relay"))

    @property
    def todos(self) -> Any:
        """TodoService."""
        return TodoServiceStub(self._channel("relay"))

    @property
    def timers(self) -> Any:
        """TimerService."""
        return TimerServiceStub(self._channel("relay"))

    @property
    def letters(self) -> Any:
        """DeadLetterService."""
        return DeadLetterServiceStub(self._channel("relay"))

    @property
    def schedules(self) -> Any:
        """ScheduleService."""
        return ScheduleServiceStub(self._channel("relay"))

    @property
    def webhooks(self) -> Any:
        """WebhookService."""
        return WebhookServiceStub(self._channel("relay"))

    @property
    def audit(self) -> Any:
        """AuditService."""
        return AuditServiceStub(self._channel("relay"))

    @property
    def exchanges(self) -> Any:
        """ExchangeService."""
        return ExchangeServiceStub(self._channel("relay"))

    @property
    def floor(self) -> Any:
        """FloorService."""
        return FloorServiceStub(self._channel("relay"))

    @property
    def hooks(self) -> Any:
        """HookStateService."""
        return HookStateServiceStub(self._channel("relay"))

    @property
    def usage(self) -> Any:
        """UsageService."""
        return UsageServiceStub(self._channel("quota"))

    @property
    def credits(self) -> Any:
        """CreditService."""
        return CreditServiceStub(self._channel("quota"))

    @property
    def agents(self) -> Any:
        """AgentService."""
        return AgentServiceStub(self._channel("registry"))

    @property
    def people(self) -> Any:
        """IdentityService."""
        return IdentityServiceStub(self._channel("registry"))

    @property
    def plugins(self) -> Any:
        """PluginService."""
        return PluginServiceStub(self._channel("registry"))

    @property
    def workspaces(self) -> Any:
        """WorkspaceService."""
        return WorkspaceServiceStub(self._channel("registry"))

    async def send(self, *to: Caller | str, text: str = "hello", **more: Any) -> pb.SendResponse:
        """Send a message."""
        names = [each if isinstance(each, str) else each.id for each in to]
        answer: pb.SendResponse = await self.messages.Send(pb.SendRequest(to=names, text=text, **more))
        return answer

    async def ask(self, to: Caller | str, text: str = "well?", wait: int = 0, **more: Any) -> pb.TurnView:
        """Ask, and wait for `wait` seconds."""
        name = to if isinstance(to, str) else to.id
        request = pb.AskRequest(agent=name, text=text, wait_seconds=wait, **more)
        answer: pb.AskResponse = await self.messages.Ask(request)
        return answer.turn

    async def reply(self, message_id: str, text: str = "so", **more: Any) -> pb.ReplyResponse:
        """Reply."""
        request = pb.ReplyRequest(message_id=message_id, text=text, **more)
        answer: pb.ReplyResponse = await self.messages.Reply(request)
        return answer

    async def take(self, wait: int = 0, **more: Any) -> pb.TakeInboxResponse:
        """Take the inbox."""
        request = pb.TakeInboxRequest(wait_seconds=wait, **more)
        answer: pb.TakeInboxResponse = await self.messages.TakeInbox(request)
        return answer

    async def check(self, turn_id: str = "", wait: int = 0, **more: Any) -> pb.TurnView:
        """Check a turn."""
        request = pb.CheckRequest(wait_seconds=wait, **more)
        if turn_id:
            request.turn_id = turn_id
        answer: pb.CheckResponse = await self.messages.Check(request)
        return answer.turn

    async def done(self, message_id: str) -> int:
        """Finish a message without an answer; returns its state."""
        answer = await self.messages.Done(pb.DoneRequest(message_id=message_id))
        return int(answer.state)


async def start_child(
    lead: Caller, agent: Caller | str, task: str = "look", **more: Any
) -> delegation_pb2.ChildStart:
    """Have an agent start a subagent."""
    name = agent if isinstance(agent, str) else agent.id
    request = delegation_pb2.StartSubagentRequest(agent=name, task=task, **more)
    answer: delegation_pb2.StartSubagentResponse = await lead.turns.StartSubagent(request)
    return answer.start


@dataclass
class Worker:
    """A tunnel of one agent as the relay's record knows it, without a stream."""

    mesh: RelayMesh
    agent: Caller
    epoch: int

    def wish(self, most: int) -> ClaimWish:
        """Return the wish for so many turns."""
        return ClaimWish(self.mesh.workspace_id, self.agent.id, most, self.epoch)

    async def claim(self, most: int = 10) -> list[ClaimedTurn]:
        """Claim turns."""
        turns = await self.mesh.relay.turns.claim([self.wish(most)])
        await self.accept(*turns)
        return turns

    async def next(self) -> ClaimedTurn:
        """Claim exactly one turn."""
        turns = await self.claim(1)
        assert len(turns) == 1, f"{len(turns)} turns"
        return turns[0]

    async def accept(self, *turns: ClaimedTurn) -> None:
        """Say that turns have arrived."""
        await self.mesh.relay.turns.accepted(
            self.mesh.workspace_id, self.agent.id, [turn.held for turn in turns], self.epoch
        )

    async def end(self, turn: ClaimedTurn, answer: str | None = None, failure: str | None = None) -> bool:
        """End a turn, as the stream does on which it was started or resumed."""
        known = turn.known if turn.known is not None and turn.known.turn.epoch == self.epoch else None
        return await self.mesh.relay.turns.end(
            TurnEnd(
                self.mesh.workspace_id,
                self.agent.id,
                turn.held,
                self.epoch,
                answer=answer,
                failure=failure,
                known=known,
            )
        )

    async def renew(self, *held: Held) -> list[Held]:
        """Renew leases; returns what is lost."""
        return await self.mesh.relay.turns.renew(self.mesh.workspace_id, self.agent.id, held, self.epoch)

    async def principal(self) -> Principal:
        """Return the agent as an authenticated caller, for calls over a tunnel."""
        return await self.mesh.relay.authenticator.principal(self.agent.token)

    async def ask(self, turn: ClaimedTurn, to: Caller, text: str = "well?", wait: int = 0) -> pb.TurnView:
        """Ask from within a turn."""
        request = pb.AskRequest(agent=to.id, text=text, wait_seconds=wait)
        answer = await self.mesh.relay.handlers.ask(await self.principal(), request, turn_id=turn.turn_id)
        return answer.turn

    async def send(self, turn: ClaimedTurn, *to: Caller, text: str = "hello", **more: Any) -> pb.SendResponse:
        """Send from within a turn."""
        request = pb.SendRequest(to=[each.id for each in to], text=text, **more)
        return await self.mesh.relay.handlers.send(await self.principal(), request, turn_id=turn.turn_id)


class RelayMesh:
    """The three services."""

    def __init__(self, folder: Path, clock: Clock, store_url: str = "") -> None:
        self.folder = folder
        self.clock = clock
        self.store_url = store_url
        self.channels: dict[str, Any] = {}
        self.relay: Relay
        self._wiring: Wiring
        self.workspace_id = ""
        self._services: list[Any] = []
        self._token = ""
        self.admin: Caller

    async def open(self) -> None:
        """Open everything."""
        wiring = Wiring(
            data_dir=self.folder,
            channels=self.channels,
            clock=self.clock,
            ids=Ids(self.clock),
            service_token=lambda: self._token,
            settings={"database_url": self.store_url},
            embedded=True,
        )
        registry = await REGISTRY.open(wiring)
        self._add("registry", registry)
        self._token = await registry.service_token("mesh")
        self._add("quota", await QUOTA.open(wiring))
        self._wiring = wiring
        await self.open_relay()
        self.admin = Caller(self, "", registry.token_file.read_text().strip(), "default")
        found = await self.admin.workspaces.GetWorkspace(workspace_pb2.GetWorkspaceRequest())
        self.workspace_id = found.workspace.id

    async def open_relay(self) -> None:
        """Open the relay."""
        self.relay = await RELAY.open(replace(self._wiring, channels=self.channels))
        self._add("relay", self.relay)

    def _add(self, name: str, service: Any) -> None:
        self._services.append(service)
        self.channels[name] = service.server.channel()

    async def listen(self) -> dict[str, str]:
        """Open a port for each service, and return their addresses by name."""
        return {each.name: await each.server.start("127.0.0.1:0") for each in self._services}

    async def close(self) -> None:
        """Close everything."""
        for service in reversed(self._services):
            await service.close()
        self._services.clear()

    async def close_relay(self) -> None:
        """Close the relay alone."""
        self._services.remove(self.relay)
        del self.channels["relay"]
        await self.relay.close()

    async def forget_counters(self, epoch: int) -> None:
        """Have the quota service hold nothing any more, under an epoch that the relay does not know."""
        stub = AdmissionServiceStub(self._wiring.channel("quota"))
        assert (await stub.Seed(admission_pb2.SeedRequest(epoch=epoch))).accepted

    async def reopen(self) -> None:
        """Close everything, and open it again on the same files."""
        await self.close()
        await self.open()

    async def agent(self, name: str, caller: Caller | None = None, **fields: Any) -> Caller:
        """Make an agent."""
        request = agent_pb2.CreateAgentRequest(agent=agent_pb2.Agent(name=name, **fields))
        made = await (caller or self.admin).agents.CreateAgent(request)
        return Caller(self, made.agent.id, made.token)

    async def person(self, name: str, workspace_role: int = 0) -> Caller:
        """Make a person."""
        made = await self.admin.people.CreateUser(identity_pb2.CreateUserRequest(name=name))
        if workspace_role:
            await self.grant(name, workspace_role)
        return Caller(self, made.user.id, made.token)

    async def grant(self, user: str, role: int, agent: str = "") -> None:
        """Give a role."""
        request = identity_pb2.GrantRoleRequest(user=user, agent=agent, role=role)  # type: ignore[arg-type]
        await self.admin.people.GrantRole(request)

    async def worker(self, agent: Caller) -> Worker:
        """Attach a worker of an agent."""
        return Worker(self, agent, await self.relay.turns.attach(self.workspace_id, agent.id))

    async def policy(self, **values: Any) -> None:
        """Change the policy."""
        request = workspace_pb2.UpdatePolicyRequest(policy=workspace_pb2.Policy(**values))
        request.update_mask.paths.extend(values)
        await self.admin.workspaces.UpdatePolicy(request)

    async def deposit(self, amount: str) -> None:
        """Pay in."""
        await self.admin.credits.Deposit(credit_pb2.DepositRequest(amount=amount))

    async def balance(self) -> str:
        """Return what is left of what was paid in."""
        found = await self.admin.credits.GetBalance(credit_pb2.GetBalanceRequest())
        return str(found.credits.balance)

    @property
    def service(self) -> Caller:
        """A process of the mesh, such as the gateway."""
        return Caller(self, "", self._token)

    async def pause(self, agent: Caller) -> None:
        """Pause an agent."""
        await self.admin.agents.PauseAgent(agent_pb2.PauseAgentRequest(agent=agent.id))

    async def resume(self, agent: Caller) -> None:
        """Resume an agent."""
        await self.admin.agents.ResumeAgent(agent_pb2.ResumeAgentRequest(agent=agent.id))

    async def delete(self, agent: Caller) -> None:
        """Delete an agent."""
        await self.admin.agents.DeleteAgent(agent_pb2.DeleteAgentRequest(agent=agent.id))

    async def foreign_agent(self, name: str) -> Caller:
        """Make an agent in another workspace."""
        request = workspace_pb2.CreateWorkspaceRequest(name="other")
        await self.admin.workspaces.CreateWorkspace(request)
        return await self.agent(name, Caller(self, "", self.admin.token, "other"))

    async def usage(self, agent: Caller) -> usage_pb2.GetUsageResponse:
        """Return what the quota service counts of an agent."""
        answer: usage_pb2.GetUsageResponse = await agent.usage.GetUsage(usage_pb2.GetUsageRequest())
        return answer

    async def skip(self, seconds: float) -> None:
        """Set the clock on without all the heartbeats that would come on the way."""
        self.clock.skip(seconds)
        await self.clock.advance(0.3)

    async def passes(self, seconds: float) -> None:
        """Let time pass, and what is due happen."""
        await self.clock.advance(seconds)
        await self.relay.sweep.due()

    async def worker_lost(self, turn_id: str) -> None:
        """Let time pass until a turn is not its worker's; a mesh that stood still hears workers first."""
        request = delegation_pb2.GetTurnRequest(turn_id=turn_id)
        for _ in range(10):
            await self.passes(31)
            found = await self.admin.turns.GetTurn(request)
            if found.turn.status != pb.TURN_STATUS_RUNNING:
                return
        raise AssertionError(f"{turn_id} stays with its worker")

    async def thread(self, thread_id: str, reader: Caller | None = None) -> list[pb.Message]:
        """Return a thread's messages."""
        request = pb.ListMessagesRequest(thread_id=thread_id)
        answer = await (reader or self.admin).messages.ListMessages(request)
        return list(answer.messages)

    async def events(self, action: str = "", **more: Any) -> list[audit_pb2.Event]:
        """Return the audit log."""
        request = audit_pb2.ListEventsRequest(action=action, page_size=200, **more)
        return list((await self.admin.audit.ListEvents(request)).events)


@asynccontextmanager
async def relay_mesh(
    folder: Path, now: float = 1_750_000_000.0, store_url: str = ""
) -> AsyncIterator[RelayMesh]:
    """Open a mesh and close it at the end."""
    mesh = RelayMesh(folder, Clock(now), store_url)
    await mesh.open()
    try:
        yield mesh
    finally:
        await mesh.close()
