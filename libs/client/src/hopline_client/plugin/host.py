"""What a plugin does in the mesh with its token: its agents, the models, its sessions, asking."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import agent_pb2, model_pb2
from hopline.registry.v1 import plugin_pb2 as pb
from hopline.registry.v1.model_pb2_grpc import ModelServiceStub
from hopline.registry.v1.plugin_pb2_grpc import PluginServiceStub
from hopline_rpc.errors import HoplineError, invalid

from hopline_client.actions import make_request
from hopline_client.mesh import Mesh
from hopline_client.models import Connected
from hopline_client.plugin.chat import Chat

_PAGE: Final = 200
_ENUMS: Final = {"thinking_level": agent_pb2.ThinkingLevel, "reply_mode": agent_pb2.ReplyMode}
_FIELDS: Final = frozenset(
    {
        "name",
        "description",
        "model_id",
        "soul",
        "instructions",
        "thinking_level",
        "reply_mode",
        "is_subagent",
        "parent_agent_id",
        "is_group_only_callable",
        "labels",
    }
)

current_chat: ContextVar[Chat | None] = ContextVar("hopline_plugin_chat", default=None)


@dataclass(frozen=True, slots=True)
class PluginAgent:
    """An agent of the plugin's own. Reconcile on `key`, never on the name."""

    id: str
    slug: str
    name: str
    description: str
    key: str
    model_id: str | None
    enabled: bool
    is_subagent: bool
    parent_agent_id: str | None
    is_group_only_callable: bool
    # Of one that `create` returned: False where it was there before, and was left as it is.
    was_created: bool = False


@dataclass(frozen=True, slots=True)
class PluginModel:
    """A model of the workspace's catalogue; prices in US dollars a million tokens, None where not known."""

    id: str
    identifier: str
    display_name: str
    input_usd_per_1m: Decimal | None
    output_usd_per_1m: Decimal | None
    cached_usd_per_1m: Decimal | None
    is_default: bool


Unary = Callable[[str, Any, str, Any], Awaitable[Any]]


class PluginAgents:
    """The plugin's own agents; nobody else's exist for it."""

    def __init__(self, unary: Unary) -> None:
        self._unary = unary

    async def list(self) -> list[PluginAgent]:
        """Return them, in order of slug. Permission `agents.read`."""
        found: list[PluginAgent] = []
        request = pb.ListPluginAgentsRequest(page_size=_PAGE)
        while True:
            page = await self._unary("registry", PluginServiceStub, "ListPluginAgents", request)
            found.extend(_agent(each) for each in page.agents)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def create(self, key: str, name: str, **fields: Any) -> PluginAgent:
        """Return the agent of this key, made where there is none; one that is there is left as it is.

        Fields are those of `update`. Permission `agents.write`.
        """
        agent = _message({**fields, "name": name})
        agent.key = key
        request = pb.CreatePluginAgentRequest(agent=agent)
        made = await self._unary("registry", PluginServiceStub, "CreatePluginAgent", request)
        return _agent(made.agent, was_created=made.was_created)

    async def update(self, agent_id: str, *, enabled: bool | None = None, **fields: Any) -> PluginAgent:
        """Change what is given; what is left out stays.

        `name`, `description`, `model_id`, `soul`, `instructions`, `thinking_level`, `reply_mode`,
        `is_subagent`, `parent_agent_id` (None: no parent), `is_group_only_callable`, `labels`. Permission
        `agents.write`.
        """
        mask = FieldMask(paths=sorted(fields))
        request = pb.UpdatePluginAgentRequest(agent_ref=agent_id, agent=_message(fields), update_mask=mask)
        if enabled is not None:
            request.enabled = enabled
        changed = await self._unary("registry", PluginServiceStub, "UpdatePluginAgent", request)
        return _agent(changed.agent)

    async def delete(self, agent_id: str) -> None:
        """Delete one. Permission `agents.write`."""
        request = make_request(pb.DeletePluginAgentRequest, agent=agent_id)
        await self._unary("registry", PluginServiceStub, "DeletePluginAgent", request)


class PluginModels:
    """The workspace's catalogue of models."""

    def __init__(self, unary: Unary) -> None:
        self._unary = unary

    async def list(self) -> list[PluginModel]:
        """Return it, in order of identifier. Permission `models.read`."""
        found: list[PluginModel] = []
        request = model_pb2.ListModelsRequest(page_size=_PAGE)
        while True:
            page = await self._unary("registry", ModelServiceStub, "ListModels", request)
            found.extend(_model(each) for each in page.models)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token


class PluginHost(Mesh):
    """The mesh as a plugin sees it: its `agents`, the `models`, its `session`; its own agents by `ask`."""

    @property
    def agents(self) -> PluginAgents:
        """Its own agents."""
        return PluginAgents(self._unary)

    @property
    def models(self) -> PluginModels:
        """The models there are."""
        return PluginModels(self._unary)

    @property
    def session(self) -> Chat:
        """The session that the running tool, event or hook was handed."""
        chat = current_chat.get()
        if chat is None:
            raise HoplineError("failed_precondition", "no tool, event or hook is running here")
        return chat

    def chat(self, session_id: str) -> Chat:
        """Return a session that was handed over earlier, by its id."""
        return Chat(self._to_relay, None, session_id=session_id)

    async def connections(self) -> list[Connected]:
        """Return the plugin's own agents under their keys. Permission `agents.read`."""
        own = await self.agents.list()
        return [
            Connected(each.key, each.id, each.slug, each.name, each.description)
            for each in sorted(own, key=lambda agent: agent.key)
            if each.enabled
        ]

    async def _to_relay(self, stub: Any, method: str, request: Any) -> Any:
        return await self._unary("relay", stub, method, request)


def _message(fields: dict[str, Any]) -> agent_pb2.Agent:
    given: dict[str, Any] = {}
    for name, value in fields.items():
        if name not in _FIELDS:
            raise invalid(name, f"is unknown; there are: {', '.join(sorted(_FIELDS))}")
        if name in _ENUMS and value is not None:
            value = _ENUMS[name].Value(f"{name.upper()}_{str(value).upper()}")
        if value is not None:
            given[name] = value
    labels = given.pop("labels", {})
    agent: agent_pb2.Agent = make_request(agent_pb2.Agent, **given)
    agent.labels.update(labels)
    return agent


def _agent(agent: agent_pb2.Agent, *, was_created: bool = False) -> PluginAgent:
    return PluginAgent(
        id=agent.id,
        slug=agent.slug,
        name=agent.name,
        description=agent.description,
        key=agent.key,
        model_id=agent.model_id or None,
        enabled=agent.state != agent_pb2.AGENT_STATE_PAUSED,
        is_subagent=agent.is_subagent,
        parent_agent_id=agent.parent_agent_id or None,
        is_group_only_callable=agent.is_group_only_callable,
        was_created=was_created,
    )


def _model(model: model_pb2.Model) -> PluginModel:
    def price(name: str) -> Decimal | None:
        return Decimal(getattr(model, name)) if model.HasField(name) else None  # type: ignore[arg-type] # one of three

    return PluginModel(
        id=model.id,
        identifier=model.model_identifier,
        display_name=model.display_name,
        input_usd_per_1m=price("input_usd_per_1m"),
        output_usd_per_1m=price("output_usd_per_1m"),
        cached_usd_per_1m=price("cached_usd_per_1m"),
        is_default=model.is_default,
    )
