"""A gateway in front of services that answer by script, and clients of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from hopline.quota.v1 import usage_pb2, usage_pb2_grpc
from hopline.registry.v1 import (
    agent_pb2,
    identity_pb2,
    identity_pb2_grpc,
    plugin_pb2,
    visibility_pb2,
    visibility_pb2_grpc,
    workspace_pb2,
)
from hopline.relay.v1 import (
    delegation_pb2,
    delegation_pb2_grpc,
    draft_pb2,
    draft_pb2_grpc,
    escalation_pb2,
    escalation_pb2_grpc,
    message_pb2,
    message_pb2_grpc,
    plugin_tool_pb2,
    plugin_tool_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    timer_pb2,
    timer_pb2_grpc,
    todo_pb2,
    todo_pb2_grpc,
    tool_pb2,
    tool_pb2_grpc,
    webhook_pb2,
    webhook_pb2_grpc,
)
from hopline_directory import not_found
from hopline_gateway.app import SERVICE, Gateway
from hopline_rpc.auth import Authenticator, current_principal
from hopline_rpc.clock import ManualClock, to_timestamp
from hopline_rpc.errors import unauthenticated
from hopline_rpc.ids import Ids
from hopline_rpc.principals import (
    AssertionSigner,
    AssertionVerifier,
    Principal,
    new_signing_key,
    new_token,
)
from hopline_rpc.service import Wiring
from hopline_rpc.serving import Server
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

MESH_ID = "hopline"
WORKSPACE = "ws_1"
LEGACY, MODERN = "legacy", "2026-07-28"
PEERS = ("reviewer", "weather")


@dataclass
class Seen:
    """One RPC that reached a service."""

    method: str
    request: Any
    principal: Principal
    traceparent: str
    seconds: float


class Registry(identity_pb2_grpc.IdentityServiceServicer, visibility_pb2_grpc.VisibilityServiceServicer):
    """A registry that knows the tokens and agents a test gives it."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        key = new_signing_key("k1")
        self.key = key
        self.signer = AssertionSigner([key], MESH_ID, clock)
        self.principals: dict[str, Principal] = {}
        self.changes: list[visibility_pb2.Change] = []
        self.exchanges = 0
        self.followed = asyncio.Event()
        self._put(key=identity_pb2.SigningKey(kid="k1", public_key=key.public().public_bytes_raw()))
        self._put(workspace=workspace_pb2.Workspace(id=WORKSPACE, name="default"))
        self._put(user=identity_pb2.User(id="usr_alice", name="Alice"))

    def _put(self, **entity: Any) -> None:
        seq = len(self.changes) + 1
        self.changes.append(visibility_pb2.Change(seq=seq, workspace_id=WORKSPACE, **entity))

    def service_token(self) -> str:
        return self.signer.sign(Principal("service", "gateway", "", "gateway", "tok_service"))

    def token(self, kind: Any, identifier: str, name: str = "") -> str:
        token = new_token(kind)
        token_id = f"tok_{len(self.principals)}"
        self.principals[token] = Principal(kind, identifier, WORKSPACE, name or identifier, token_id)
        return token

    def agent(self, name: str, **definition: Any) -> str:
        """Add an agent and return its token."""
        agent = agent_pb2.Agent(id=f"agt_{name}", slug=name, name=name, owner_id="usr_alice", **definition)
        agent.kind = agent.kind or agent_pb2.AGENT_KIND_STANDARD
        agent.state = agent.state or agent_pb2.AGENT_STATE_ACTIVE
        self._put(agent=agent)
        return self.token("agent", agent.id, name)

    def plugin(self, key: str, **manifest: Any) -> str:
        """Add a plugin, in force as it is, and return its token."""
        given = {"name": key.title(), "version": "1", "endpoint": "127.0.0.1:1", **manifest}
        plugin = plugin_pb2.Plugin(
            id=f"plg_{key}",
            workspace_id=WORKSPACE,
            manifest=plugin_pb2.PluginManifest(key=key, **given),
            state=plugin_pb2.PLUGIN_STATE_ACTIVE,
            revision=1,
        )
        self._put(plugin=plugin)
        return self.token("plugin", plugin.id, key)

    def no_plugin(self, key: str) -> None:
        """Take a plugin away."""
        self._put(plugin_removed=f"plg_{key}")

    def user(self, name: str = "alice") -> str:
        return self.token("user", f"usr_{name}", name.title())

    async def revoke(self, token: str) -> None:
        """Take a token away and wait until whoever follows has dealt with it."""
        principal = self.principals.pop(token)
        self.followed.clear()
        self._put(token_revoked=identity_pb2.Token(id=principal.token_id))
        await self.clock.advance(0.3)
        await asyncio.wait_for(self.followed.wait(), 5)

    async def Authenticate(self, request: Any, context: Any) -> identity_pb2.AuthenticateResponse:
        self.exchanges += 1
        principal = self.principals.get(request.token)
        if principal is None:
            raise unauthenticated()
        return identity_pb2.AuthenticateResponse(assertion=self.signer.sign(principal))

    async def WatchChanges(self, request: Any, context: Any) -> AsyncIterator[Any]:
        sent = request.from_seq
        if not sent:
            sent = len(self.changes)
            yield visibility_pb2.WatchChangesResponse(
                changes=self.changes, head_seq=sent, snapshot=True, snapshot_end=True
            )
        while True:
            news, sent = self.changes[sent:], len(self.changes)
            yield visibility_pb2.WatchChangesResponse(changes=news, head_seq=sent)
            self.followed.set()
            await self.clock.sleep(0.2)

    async def ListPeers(self, request: Any, context: Any) -> visibility_pb2.ListPeersResponse:
        start = int(request.page_token or 0)
        page = PEERS[start : start + request.page_size]
        end = start + len(page)
        return visibility_pb2.ListPeersResponse(
            peers=[
                visibility_pb2.Peer(
                    id=f"agt_{name}",
                    slug=name,
                    name=name,
                    description=f"does {name}",
                    relation=visibility_pb2.RELATION_PEER,
                    plugin_id="plg_omo" if name == PEERS[0] else "",
                    plugin_name="Oh My" if name == PEERS[0] else "",
                )
                for name in page
            ],
            next_page_token=str(end) if end < len(PEERS) else "",
        )

    async def GetSelf(self, request: Any, context: Any) -> visibility_pb2.GetSelfResponse:
        principal = current_principal()
        found = visibility_pb2.GetSelfResponse(
            owner=identity_pb2.User(id="usr_alice", name="Alice"),
            workspace=workspace_pb2.Workspace(id=WORKSPACE, name="default"),
            policy=workspace_pb2.Policy(preset="default", max_depth=4, pair_budget="30/300s"),
        )
        if principal.kind == "agent":
            found.agent.CopyFrom(
                agent_pb2.Agent(
                    id=principal.id,
                    slug=principal.name,
                    name=principal.name,
                    kind=agent_pb2.AGENT_KIND_STANDARD,
                    state=agent_pb2.AGENT_STATE_ACTIVE,
                )
            )
        return found


Script = Callable[[Any], Awaitable[Any] | Any]


class Relay(
    message_pb2_grpc.MessageServiceServicer,
    session_pb2_grpc.SessionServiceServicer,
    delegation_pb2_grpc.DelegationServiceServicer,
    draft_pb2_grpc.DraftServiceServicer,
    escalation_pb2_grpc.EscalationServiceServicer,
    tool_pb2_grpc.ToolServiceServicer,
    plugin_tool_pb2_grpc.PluginToolServiceServicer,
    todo_pb2_grpc.TodoServiceServicer,
    timer_pb2_grpc.TimerServiceServicer,
    webhook_pb2_grpc.WebhookServiceServicer,
    usage_pb2_grpc.UsageServiceServicer,
):
    """Relay and quota: notes what comes in and answers by script (`relay.script["Ask"] = ...`)."""

    def __init__(self) -> None:
        self.script: dict[str, Script] = {}
        self.seen: list[Seen] = []
        self.ended: list[str] = []

    @property
    def last(self) -> Seen:
        return self.seen[-1]

    @property
    def acted(self) -> Seen:
        """The last call but a client's looks at what there is to call."""
        return next(seen for seen in reversed(self.seen) if seen.method != "ListServerTools")

    async def _answer(self, method: str, request: Any, context: Any, default: Script) -> Any:
        metadata = dict(context.invocation_metadata())
        traceparent = str(metadata.get("traceparent", ""))
        left = context.time_remaining()
        self.seen.append(Seen(method, request, current_principal(), traceparent, left))
        try:
            answer = self.script.get(method, default)(request)
            return await answer if isinstance(answer, Awaitable) else answer
        finally:
            self.ended.append(method)

    async def Send(self, request: Any, context: Any) -> Any:
        return await self._answer("Send", request, context, sent)

    async def Reply(self, request: Any, context: Any) -> Any:
        return await self._answer("Reply", request, context, lambda _: replied())

    async def Done(self, request: Any, context: Any) -> Any:
        answer = message_pb2.DoneResponse(state=message_pb2.DELIVERY_STATE_DONE)
        return await self._answer("Done", request, context, lambda _: answer)

    async def Ask(self, request: Any, context: Any) -> Any:
        return await self._answer("Ask", request, context, asked)

    async def Check(self, request: Any, context: Any) -> Any:
        answer = message_pb2.CheckResponse(turn=completed())
        return await self._answer("Check", request, context, lambda _: answer)

    async def TakeInbox(self, request: Any, context: Any) -> Any:
        answer = message_pb2.TakeInboxResponse(
            messages=[message()], remaining=2, turn_id="trn_1", session_id="ses_inbox"
        )
        return await self._answer("TakeInbox", request, context, lambda _: answer)

    async def AskOwner(self, request: Any, context: Any) -> Any:
        return await self._answer("AskOwner", request, context, lambda _: owner_answered())

    async def ReplyToHuman(self, request: Any, context: Any) -> Any:
        said = draft_pb2.ReplyToHumanResponse(
            status=draft_pb2.REPLY_STATUS_SENT, message_id="msg_said", thread_id="thr_1"
        )
        return await self._answer("ReplyToHuman", request, context, lambda _: said)

    async def DeliverWebhook(self, request: Any, context: Any) -> Any:
        answer = webhook_pb2.DeliverWebhookResponse(turn=queued())
        return await self._answer("DeliverWebhook", request, context, lambda _: answer)

    async def ListThreads(self, request: Any, context: Any) -> Any:
        thread = message_pb2.Thread(
            id="thr_1", subject="plan", message_count=2, last_at=to_timestamp(1_750_000_000)
        )
        thread.participants.add(name="another agent")
        answer = message_pb2.ListThreadsResponse(threads=[thread], next_page_token="more")
        return await self._answer("ListThreads", request, context, lambda _: answer)

    async def ListMessages(self, request: Any, context: Any) -> Any:
        answer = message_pb2.ListMessagesResponse(messages=[message()])
        return await self._answer("ListMessages", request, context, lambda _: answer)

    async def Cancel(self, request: Any, context: Any) -> Any:
        answer = delegation_pb2.CancelResponse(status=message_pb2.TURN_STATUS_CANCELED, canceled=2)
        return await self._answer("Cancel", request, context, lambda _: answer)

    async def StartSubagent(self, request: Any, context: Any) -> Any:
        answer = delegation_pb2.StartSubagentResponse(start=started())
        return await self._answer("StartSubagent", request, context, lambda _: answer)

    async def StartSelfSubagent(self, request: Any, context: Any) -> Any:
        answer = delegation_pb2.StartSelfSubagentResponse(start=started())
        return await self._answer("StartSelfSubagent", request, context, lambda _: answer)

    async def ReportToCaller(self, request: Any, context: Any) -> Any:
        answer = delegation_pb2.ReportToCallerResponse(
            is_delivered=True, message_id="msg_1", thread_id="thr_1", depth=1
        )
        return await self._answer("ReportToCaller", request, context, lambda _: answer)

    async def MessageAgent(self, request: Any, context: Any) -> Any:
        answer = delegation_pb2.MessageAgentResponse(
            session_id="ses_there", own_session_id="ses_here", message_id="msg_1", turn_id="trn_1", depth=1
        )
        return await self._answer("MessageAgent", request, context, lambda _: answer)

    async def SendMessageToSession(self, request: Any, context: Any) -> Any:
        answer = delegation_pb2.SendMessageToSessionResponse(is_delivered=True, message_id="msg_1")
        return await self._answer("SendMessageToSession", request, context, lambda _: answer)

    async def CloseSubagent(self, request: Any, context: Any) -> Any:
        answer = delegation_pb2.CloseSubagentResponse(state="closed", canceled=2)
        return await self._answer("CloseSubagent", request, context, lambda _: answer)

    async def Prompt(self, request: Any, context: Any) -> Any:
        answer = session_pb2.PromptResponse(turn=completed())
        return await self._answer("Prompt", request, context, lambda _: answer)

    async def ListSessions(self, request: Any, context: Any) -> Any:
        return await self._answer("ListSessions", request, context, sessions_of)

    async def GetSession(self, request: Any, context: Any) -> Any:
        answer = session_pb2.GetSessionResponse(session=session())
        return await self._answer("GetSession", request, context, lambda _: answer)

    async def ReadSession(self, request: Any, context: Any) -> Any:
        answer = session_pb2.ReadSessionResponse(entries=[entry()], next_page_token="more")
        return await self._answer("ReadSession", request, context, lambda _: answer)

    async def ListServerTools(self, request: Any, context: Any) -> Any:
        answer = tool_pb2.ListServerToolsResponse()
        return await self._answer("ListServerTools", request, context, lambda _: answer)

    async def CallTool(self, request: Any, context: Any) -> Any:
        answer = tool_pb2.CallToolResponse(turn=completed(), result_json="1")
        return await self._answer("CallTool", request, context, lambda _: answer)

    async def AddTodos(self, request: Any, context: Any) -> Any:
        answer = todo_pb2.AddTodosResponse(todos=[todo()], list=todo_pb2.TodoList(open=1))
        return await self._answer("AddTodos", request, context, lambda _: answer)

    async def ListTodos(self, request: Any, context: Any) -> Any:
        answer = todo_pb2.ListTodosResponse(
            todos=[todo()], list=todo_pb2.TodoList(open=1), next_page_token="more"
        )
        return await self._answer("ListTodos", request, context, lambda _: answer)

    async def CompleteTodo(self, request: Any, context: Any) -> Any:
        answer = todo_pb2.CompleteTodoResponse(todo=todo(todo_pb2.TODO_STATE_DONE))
        return await self._answer("CompleteTodo", request, context, lambda _: answer)

    async def RemoveTodo(self, request: Any, context: Any) -> Any:
        return await self._answer("RemoveTodo", request, context, lambda _: todo_pb2.RemoveTodoResponse())

    async def SnoozeTodo(self, request: Any, context: Any) -> Any:
        rests = todo(todo_pb2.TODO_STATE_SNOOZED)
        rests.snoozed_until.CopyFrom(to_timestamp(1_750_000_060))
        answer = todo_pb2.SnoozeTodoResponse(todo=rests, list=todo_pb2.TodoList(open=1))
        return await self._answer("SnoozeTodo", request, context, lambda _: answer)

    async def SetTimer(self, request: Any, context: Any) -> Any:
        answer = timer_pb2.SetTimerResponse(timer=timer())
        return await self._answer("SetTimer", request, context, lambda _: answer)

    async def ListTimers(self, request: Any, context: Any) -> Any:
        answer = timer_pb2.ListTimersResponse(timers=[timer()])
        return await self._answer("ListTimers", request, context, lambda _: answer)

    async def CancelTimer(self, request: Any, context: Any) -> Any:
        return await self._answer("CancelTimer", request, context, lambda _: timer_pb2.CancelTimerResponse())

    async def CallPluginTool(self, request: Any, context: Any) -> Any:
        answer = plugin_tool_pb2.CallPluginToolResponse(result_json="1", plugin="Shop")
        return await self._answer("CallPluginTool", request, context, lambda _: answer)

    async def UseSkill(self, request: Any, context: Any) -> Any:
        answer = plugin_tool_pb2.UseSkillResponse(text="Do so.", skill="shop__selling", plugin="Shop")
        return await self._answer("UseSkill", request, context, lambda _: answer)

    async def GetContext(self, request: Any, context: Any) -> Any:
        answer = session_pb2.GetContextResponse(
            session_id=request.caller_session_id, depth=1, isolation="none"
        )
        return await self._answer("GetContext", request, context, lambda _: answer)

    async def GetPresence(self, request: Any, context: Any) -> Any:
        answer = session_pb2.GetPresenceResponse(presence={"agt_weather": "idle"})
        return await self._answer("GetPresence", request, context, lambda _: answer)

    async def GetUsage(self, request: Any, context: Any) -> Any:
        answer = usage_pb2.GetUsageResponse(sent_today=3, inbox=1, resets_at=to_timestamp(1_750_032_000))
        return await self._answer("GetUsage", request, context, lambda _: answer)


def sent(request: Any) -> message_pb2.SendResponse:
    for name in request.to:
        if name.removeprefix("agt_") not in PEERS:
            raise not_found(name)
    answer = message_pb2.SendResponse(message_id="msg_1", thread_id="thr_1", depth=1)
    for name in request.to:
        delivery = answer.deliveries.add(session_id="ses_1", state=message_pb2.DELIVERY_STATE_QUEUED)
        delivery.agent.id, delivery.agent.name = f"agt_{name}", name
    return answer


def todo(state: Any = todo_pb2.TODO_STATE_OPEN) -> todo_pb2.Todo:
    return todo_pb2.Todo(id="tdo_1", text="read", state=state, created_at=to_timestamp(1_750_000_000))


def timer() -> timer_pb2.Timer:
    return timer_pb2.Timer(
        id="tmr_1",
        message="green?",
        created_at=to_timestamp(1_750_000_000),
        due_at=to_timestamp(1_750_000_060),
    )


def replied() -> message_pb2.ReplyResponse:
    return message_pb2.ReplyResponse(message_id="msg_2", thread_id="thr_1", depth=0)


def asked(request: Any) -> message_pb2.AskResponse:
    if request.agent.removeprefix("agt_") not in PEERS:
        raise not_found(request.agent)
    return message_pb2.AskResponse(turn=completed())


def started() -> delegation_pb2.ChildStart:
    return delegation_pb2.ChildStart(
        outcome=delegation_pb2.START_OUTCOME_CREATED,
        session_id="ses_child",
        turn_id="trn_child",
        message_id="msg_task",
        thread_id="thr_task",
        depth=1,
    )


def session() -> session_pb2.Session:
    """Return a session of weather's that `me` opened through its endpoint."""
    found = session_pb2.Session(id="ses_1", title="Oslo?", channel="mcp", state="idle")
    found.agent.id, found.agent.name = "agt_weather", "weather"
    found.opened_by.CopyFrom(session_pb2.OpenedBy(kind="agent", id="agt_me", name="me"))
    linked = found.opened.add(id="ses_2", title="From weather", state="busy")
    linked.agent.id, linked.agent.name = "agt_radar", "radar"
    found.opened.add().agent.name = "another agent"
    found.opened_count = 7
    found.created_at.CopyFrom(to_timestamp(1_750_000_000))
    found.last_at.CopyFrom(to_timestamp(1_750_000_001))
    return found


def entry() -> session_pb2.TranscriptEntry:
    found = session_pb2.TranscriptEntry(
        seq=1, kind="prompt", at=to_timestamp(1_750_000_000), text="Oslo?", turn_id="trn_1", depth=1
    )
    author = getattr(found, "from")
    author.id, author.name, author.display, author.kind = "agt_me", "me", "me (for Alice)", "agent"
    return found


def sessions_of(request: Any) -> session_pb2.ListSessionsResponse:
    if request.agent.removeprefix("agt_") not in PEERS:
        raise not_found(request.agent)
    return session_pb2.ListSessionsResponse(sessions=[session()], next_page_token="more")


def owner_answered(
    answer: str = "yes", status: Any = escalation_pb2.ESCALATION_STATUS_ANSWERED
) -> escalation_pb2.AskOwnerResponse:
    found = escalation_pb2.Escalation(
        id="esc_1", status=status, answer=answer, expires_at=to_timestamp(1_750_086_400)
    )
    found.ended_by.name = "alice"
    return escalation_pb2.AskOwnerResponse(escalation=found)


def queued() -> message_pb2.TurnView:
    return message_pb2.TurnView(
        status=message_pb2.TURN_STATUS_QUEUED, session_id="ses_1", turn_id="trn_1", thread_id="thr_1"
    )


def completed(reply: str = "sunny") -> message_pb2.TurnView:
    return message_pb2.TurnView(
        status=message_pb2.TURN_STATUS_COMPLETED,
        session_id="ses_1",
        turn_id="trn_1",
        reply=reply,
        has_reply=True,
        thread_id="thr_1",
        message_id="msg_1",
        reply_message_id="msg_2",
        depth=1,
    )


def message(body: str = "hello", subject: str = "greeting", payload: str = '{"a": 1}') -> message_pb2.Message:
    found = message_pb2.Message(
        id="msg_9",
        thread_id="thr_9",
        seq=1,
        subject=subject,
        body=body,
        payload_json=payload,
        depth=2,
        created_at=to_timestamp(1_750_000_000),
        reply_expected=True,
    )
    sender = getattr(found, "from")
    sender.id, sender.name, sender.display, sender.kind = "agt_p", "planner", "planner (for Alice)", "agent"
    found.to.add(id="agt_me", name="me")
    return found


@dataclass
class Rig:
    """A running gateway and everything behind it."""

    clock: ManualClock
    registry: Registry
    relay: Relay
    gateway: Gateway
    url: str
    # An agent's token.
    token: str
    servers: list[Server] = field(default_factory=list)

    @asynccontextmanager
    async def client(
        self,
        token: str = "",
        mode: str = LEGACY,
        headers: Mapping[str, str] | None = None,
        path: str = "/mcp",
    ) -> AsyncIterator[Any]:
        """An official client."""
        given = {"Authorization": f"Bearer {token or self.token}", **(headers or {})}
        async with plain_client(headers=given, timeout=60, follow_redirects=True) as http:
            transport = streamable_http_client(f"{self.url}{path}", http_client=http)
            async with Client(transport, mode=mode) as client:
                yield client

    @asynccontextmanager
    async def http(self, token: str | None = None, **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
        """A plain HTTP client."""
        given = {"Authorization": f"Bearer {self.token if token is None else token}", **headers}
        async with plain_client(base_url=self.url, headers=given, timeout=60) as client:
            yield client

    async def post(
        self, body: bytes | str, mode: str = LEGACY, tool: str = "", path: str = "/mcp", **headers: str
    ) -> Any:
        """Post a raw body as a client of that era would, and return the response."""
        async with self.http() as client:
            return await client.post(path, content=body, headers={**era_headers(mode, tool), **headers})


def plain_client(**options: Any) -> httpx2.AsyncClient:
    """Return a client without TLS: loading the certificates would take longer than most tests."""
    return httpx2.AsyncClient(verify=False, **options)


def era_headers(mode: str, tool: str = "") -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if mode == LEGACY:
        return {**headers, "MCP-Protocol-Version": "2025-11-25"}
    return {**headers, "MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool}


def call_body(tool: str, arguments: Any, mode: str = LEGACY, meta: Mapping[str, Any] | None = None) -> str:
    """The JSON of one `tools/call`; lone surrogates come out as escapes."""
    found = dict(meta or {})
    if mode == MODERN:
        found["io.modelcontextprotocol/protocolVersion"] = MODERN
        found["io.modelcontextprotocol/clientCapabilities"] = {}
    params = {"name": tool, "arguments": arguments, **({"_meta": found} if found else {})}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


@asynccontextmanager
async def running(
    settings: Mapping[str, str] | None = None, data_dir: Any = None, bind: str = "127.0.0.1:0"
) -> AsyncIterator[Rig]:
    """Start services and a gateway on a free port, and stop all of it."""
    clock = ManualClock()
    ids = Ids(clock)
    # They implement what the gateway calls.
    registry, relay = Registry(clock), Relay()  # type: ignore[abstract]
    verifier = AssertionVerifier(lambda kid: registry.key.public(), MESH_ID, clock)
    servers = [
        Server(name, authenticator=Authenticator(verifier, None, clock), clock=clock, ids=ids)
        for name in ("registry", "relay", "quota")
    ]
    servers[0].add(identity_pb2_grpc.add_IdentityServiceServicer_to_server, registry)
    servers[0].add(visibility_pb2_grpc.add_VisibilityServiceServicer_to_server, registry)
    servers[1].add(message_pb2_grpc.add_MessageServiceServicer_to_server, relay)
    servers[1].add(session_pb2_grpc.add_SessionServiceServicer_to_server, relay)
    servers[1].add(delegation_pb2_grpc.add_DelegationServiceServicer_to_server, relay)
    servers[1].add(todo_pb2_grpc.add_TodoServiceServicer_to_server, relay)
    servers[1].add(timer_pb2_grpc.add_TimerServiceServicer_to_server, relay)
    servers[1].add(tool_pb2_grpc.add_ToolServiceServicer_to_server, relay)
    servers[1].add(plugin_tool_pb2_grpc.add_PluginToolServiceServicer_to_server, relay)
    servers[1].add(escalation_pb2_grpc.add_EscalationServiceServicer_to_server, relay)
    servers[1].add(draft_pb2_grpc.add_DraftServiceServicer_to_server, relay)
    servers[1].add(webhook_pb2_grpc.add_WebhookServiceServicer_to_server, relay)
    servers[2].add(usage_pb2_grpc.add_UsageServiceServicer_to_server, relay)
    token = registry.agent("me")
    wiring = Wiring(
        data_dir=data_dir,
        channels={server.name: server.channel() for server in servers},
        clock=clock,
        ids=ids,
        service_token=registry.service_token,
        settings=dict(settings or {}),
    )
    gateway = await SERVICE.open(wiring)
    try:
        url = await gateway.start(bind)
        yield Rig(clock, registry, relay, gateway, url, token, servers)
    finally:
        await gateway.close()
        for server in servers:
            await server.stop()
