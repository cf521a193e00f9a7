"""What the view holds: plain frozen values, with enums as the words the outer surfaces use.

Standard library only; `convert.py` makes them from the contract's messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal

AgentKind = Literal["standard", "receive_only"]
AgentState = Literal["provisioning", "active", "paused"]
ReplyMode = Literal["implicit", "auto", "all"]
Runtime = Literal["local", "cloud"]
WakeKind = Literal["none", "exec", "webhook"]
Relation = Literal["peer", "lead", "subagent", "sibling"]

# Roles are ordered: each may do what the ones below it may. They equal the contract's numbers.
NO_ROLE: Final = 0
VIEWER: Final = 1
OPERATOR: Final = 2
ADMIN: Final = 3


@dataclass(frozen=True, slots=True)
class WorkspaceRecord:
    """A tenant. Times are unix seconds."""

    id: str
    name: str
    created_at: float


@dataclass(frozen=True, slots=True)
class UserRecord:
    """A person of one workspace."""

    id: str
    workspace_id: str
    name: str
    created_at: float
    # Whether they are told elsewhere of what their agents ask them.
    has_webhook: bool = False


@dataclass(frozen=True, slots=True)
class ServerToolRecord:
    """A tool of an agent that its peers may call without a turn of its model."""

    name: str
    description: str
    input_schema: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True, slots=True)
class ConnectionRecord:
    """Another agent under a name of one's own. It gives no reach."""

    name: str
    agent_id: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """An agent's definition. A deleted one stays as a tombstone, so that its threads stay readable."""

    id: str
    workspace_id: str
    slug: str
    name: str
    owner_id: str
    description: str = ""
    kind: AgentKind = "standard"
    state: AgentState = "active"
    is_subagent: bool = False
    parent_agent_id: str = ""
    is_group_only_callable: bool = False
    reply_mode: ReplyMode = "auto"
    soul: str = ""
    instructions: str = ""
    model_id: str = ""
    thinking_level: str = ""
    runtime: Runtime = "local"
    wake: WakeKind = "none"
    webhook_url: str = ""
    # Whether the registry keeps a secret for it; the secret itself is in no view.
    has_webhook_secret: bool = False
    reach: frozenset[str] = frozenset()
    tools: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    is_default: bool = False
    plugin_id: str = ""
    key: str = ""
    server_tools: tuple[ServerToolRecord, ...] = ()
    created_at: float = 0.0
    # Names it had before, and until when each is remembered.
    former_names: tuple[tuple[str, float], ...] = ()
    # In order of name.
    connections: tuple[ConnectionRecord, ...] = ()
    # The crew of its owner that it is a member of; its key is unique within it.
    crew: str = ""
    # Made by its plugin's installation, and nobody has said yet what it is.
    awaits_definition: bool = False
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A model of a workspace's catalogue. Prices are US dollars for a million tokens, None: unknown."""

    id: str
    workspace_id: str
    model_identifier: str
    display_name: str
    input_usd_per_1m: Decimal | None = None
    output_usd_per_1m: Decimal | None = None
    cached_usd_per_1m: Decimal | None = None
    is_default: bool = False
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` in any `seconds`."""

    count: int
    seconds: int


@dataclass(frozen=True, slots=True)
class Policy:
    """Every limit of a workspace, under the names of the policy's keys. `None` means off."""

    preset: str
    max_depth: int
    root_turns: int
    messages_per_thread: int
    sent_per_day: int
    received_per_day: int
    pair_budget: Rate | None
    concurrent_runs: int
    inbox_backlog: int
    agents: int
    refuse_cycles: str
    credits: Decimal | None
    subagent_depth: int
    hook_generations: int
    refusals: Rate | None
    causality_window_seconds: int
    turn_seconds: int
    queue_seconds: int
    retention_days: int
    batch_inbox: bool
    require_isolation: bool
    redact_credentials: bool = False
    evidence_required: bool = False
