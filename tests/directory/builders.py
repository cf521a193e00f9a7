"""A view of a small world, built by changes as the registry would send them."""

from __future__ import annotations

from typing import Any

from hopline.registry.v1.agent_pb2 import AGENT_STATE_ACTIVE, Agent
from hopline.registry.v1.identity_pb2 import RoleGrant, SigningKey, Token, User
from hopline.registry.v1.model_pb2 import Model
from hopline.registry.v1.visibility_pb2 import Change, WatchChangesResponse
from hopline.registry.v1.workspace_pb2 import Policy, Workspace
from hopline_directory import Directory
from hopline_rpc.clock import to_timestamp
from hopline_rpc.principals import Principal

HOME = "ws_home"
ABROAD = "ws_abroad"
POLICY = Policy(
    preset="default",
    max_depth=4,
    root_turns=200,
    messages_per_thread=20,
    pair_budget="30/300s",
    refuse_cycles="off",
    credits="0.25",
    refusals="0",
    concurrent_runs=1,
    inbox_backlog=1,
    turn_seconds=1,
    queue_seconds=1,
)


class World:
    """Makes changes with the next sequence number, and applies them to `view`."""

    def __init__(self) -> None:
        self.view = Directory()
        self.seq = 0
        self.log: list[Change] = []

    def change(self, workspace_id: str, at: float = 1000.0, **entity: Any) -> Change:
        self.seq += 1
        change = Change(seq=self.seq, workspace_id=workspace_id, at=to_timestamp(at), **entity)
        self.log.append(change)
        self.view.apply(WatchChangesResponse(changes=[change], head_seq=self.seq))
        return change

    def workspace(self, workspace_id: str = HOME) -> None:
        self.change(workspace_id, workspace=Workspace(id=workspace_id, name=workspace_id[3:]))
        self.change(workspace_id, policy=POLICY)

    def user(self, name: str, workspace_id: str = HOME) -> Principal:
        self.change(workspace_id, user=User(id=f"usr_{name}", name=name.capitalize()))
        return Principal("user", f"usr_{name}", workspace_id, name.capitalize(), f"tok_{name}")

    def role(self, user: str, role: int, agent: str = "", workspace_id: str = HOME) -> None:
        """Give a role, or take it away with 0."""
        grant = RoleGrant(user_id=f"usr_{user}", agent_id=f"agt_{agent}" if agent else "", role=role or 1)  # type: ignore[arg-type]
        if role:
            self.change(workspace_id, role_granted=grant)
        else:
            self.change(workspace_id, role_revoked=grant)

    def agent(self, slug: str, /, owner: str = "alice", workspace_id: str = HOME, **fields: Any) -> Principal:
        """Add or change an agent: `parent` and `reach` are names."""
        parent = fields.pop("parent", "")
        values: dict[str, Any] = {
            "id": f"agt_{slug}",
            "slug": slug,
            "name": slug.capitalize(),
            "owner_id": f"usr_{owner}",
            "state": AGENT_STATE_ACTIVE,
            "parent_agent_id": f"agt_{parent}" if parent else "",
            "reach": [f"agt_{each}" for each in fields.pop("reach", [])],
        }
        self.change(workspace_id, agent=Agent(**{**values, **fields}))
        return Principal("agent", f"agt_{slug}", workspace_id, slug.capitalize(), f"tok_{slug}")

    def model(self, identifier: str, workspace_id: str = HOME, **fields: Any) -> None:
        """Add or change a model of the catalogue."""
        model = Model(id=f"mdl_{identifier}", model_identifier=identifier, **fields)
        self.change(workspace_id, model=model)

    def delete(self, name: str, workspace_id: str = HOME) -> None:
        self.change(workspace_id, agent_deleted=f"agt_{name}")

    def revoke(self, token_id: str, at: float = 1000.0) -> None:
        self.change("", at, token_revoked=Token(id=token_id, revoked_at=to_timestamp(at)))

    def key(self, kid: str, public: bytes) -> None:
        self.change("", key=SigningKey(kid=kid, public_key=public))

    def slugs(self, caller: Principal) -> list[str]:
        """Return whom a caller may start something on."""
        return [agent.slug for agent in self.view.peers_after(caller, "", 1000)[0]]


def household() -> World:
    """Alice, with agents `a` and `b`; Bob, with agent `c`; nobody has a role on anybody else's."""
    world = World()
    world.workspace()
    world.user("alice")
    world.user("bob")
    world.agent("a")
    world.agent("b")
    world.agent("c", owner="bob")
    return world


def agent_of(world: World, name: str, workspace_id: str = HOME) -> Principal:
    return Principal("agent", f"agt_{name}", workspace_id, name.capitalize(), f"tok_{name}")
