"""Gives a mesh the agents of its file, in the workspace `default`.

What is missing is made, what differs is changed, nothing is deleted, and what the file does not name stays as
it is. Everything is asked of the registry by its own methods, with the installation's token. A second start
finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import agent_pb2, identity_pb2, workspace_pb2
from hopline.registry.v1.agent_pb2_grpc import AgentServiceStub
from hopline.registry.v1.identity_pb2_grpc import IdentityServiceStub
from hopline.registry.v1.workspace_pb2_grpc import WorkspaceServiceStub
from hopline_files.problems import Place, Problem, raise_all
from hopline_rpc.channels import ChannelLike, ClientChannel, bearer
from hopline_rpc.errors import HoplineError

if TYPE_CHECKING:
    from hopline_cli.running.config import UpConfig
    from hopline_cli.running.mesh_file import FileAgent

T = TypeVar("T")

_PAGE: Final = 200
# The person that every workspace has from its first start.
_ADMIN: Final = "admin"
# What names other agents is set once all are there.
_NAMING: Final = frozenset({"reach", "connections"})


class Registry:
    """The registry, as the holder of the installation's token asks it."""

    def __init__(self, channel: ChannelLike, token: str) -> None:
        calling = ClientChannel(channel, bearer(token))
        self.agents = AgentServiceStub(calling)
        self.identities = IdentityServiceStub(calling)
        self.workspaces = WorkspaceServiceStub(calling)


@dataclass(frozen=True)
class Known:
    """Whom the file may name: the agents and people of the workspace."""

    agents: tuple[agent_pb2.Agent, ...] = ()
    # Name and id by either of them.
    people: dict[str, str] = field(default_factory=lambda: {_ADMIN: ""})
    # How many agents the policy allows; None before there is a mesh.
    room: int | None = None

    def agent(self, slug: str) -> agent_pb2.Agent | None:
        """Return the agent with a slug."""
        return next((each for each in self.agents if each.slug == slug), None)


@dataclass(frozen=True)
class Settled:
    """What came of it: slugs, and what a person should know."""

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


async def known_of(registry: Registry) -> Known:
    """Ask the registry for agents, people and room."""
    agents: list[agent_pb2.Agent] = []
    listing = agent_pb2.ListAgentsRequest(page_size=_PAGE)
    while True:
        page = await registry.agents.ListAgents(listing)
        agents.extend(page.agents)
        listing.page_token = page.next_page_token
        if not page.next_page_token:
            break
    people: dict[str, str] = {}
    asking = identity_pb2.ListUsersRequest(page_size=_PAGE)
    while True:
        users = await registry.identities.ListUsers(asking)
        people |= {each.name: each.id for each in users.users} | {each.id: each.id for each in users.users}
        asking.page_token = users.next_page_token
        if not users.next_page_token:
            break
    policy = (await registry.workspaces.GetPolicy(workspace_pb2.GetPolicyRequest())).policy
    return Known(tuple(agents), people, policy.agents)


def check(config: UpConfig, known: Known) -> None:
    """Refuse a file with anything wrong in it, all of it at once."""
    found = [*_unknown_names(config.agents, known), *_no_room(config.agents, known)]
    raise_all([*config.problems, *found])


def connected(config: UpConfig) -> Iterator[Problem]:
    """Find connections, which a mesh that serves one agent alone leaves without an address to lead to."""
    for agent in config.agents:
        for each, place in zip(agent.wanted.connections, agent.peers, strict=True):
            text = (
                f"the connection {each.name} of {agent.slug} leads nowhere with --single, which serves one "
                "agent alone; leave out one of the two"
            )
            yield Problem(place, text)


def _unknown_names(agents: Sequence[FileAgent], known: Known) -> Iterator[Problem]:
    """Find owners and peers that there are not, and connections of an agent with itself."""
    names = _Names(agents, known)
    for agent in agents:
        owner = agent.wanted.owner_id
        if "owner_id" in agent.places and owner not in known.people:
            text = f"there is no user {owner!r}; make it with `hopline user create`, or name another owner"
            yield Problem(agent.places["owner_id"], text)
        for ref, place in zip(agent.wanted.reach, agent.reach, strict=True):
            yield from names.problems(ref, place, f"reach of {agent.slug}")
        for each, place in zip(agent.wanted.connections, agent.peers, strict=True):
            what = f"the connection {each.name} of {agent.slug}"
            if each.agent and names.slugs(each.agent) == [agent.slug]:
                yield Problem(place, f"{what} leads to the agent itself; name another agent")
            else:
                yield from names.problems(each.agent, place, what)


def _no_room(agents: Sequence[FileAgent], known: Known) -> Iterator[Problem]:
    missing = [each for each in agents if known.agent(each.slug) is None]
    if known.room is not None and missing and len(known.agents) + len(missing) > known.room:
        text = (
            f"{len(missing)} agents are to be made beside {len(known.agents)}, and the policy allows"
            f" {known.room}; start without --config, raise it with `hopline policy set agents=N`, start again"
        )
        yield Problem(missing[0].place, text)


class _Names:
    """What the file's references mean, once its agents are made: by id, else by slug, else by name."""

    def __init__(self, agents: Sequence[FileAgent], known: Known) -> None:
        self._ids = {each.id: each.slug for each in known.agents}
        called = {each.slug: each.name for each in known.agents}
        for each in agents:
            called[each.slug] = each.wanted.name or called.get(each.slug, each.slug)
        self._called = called

    def slugs(self, ref: str) -> list[str]:
        """Return the slugs of all that a reference may mean."""
        if ref in self._ids:
            return [self._ids[ref]]
        if ref in self._called:
            return [ref]
        return [slug for slug, name in self._called.items() if name == ref]

    def problems(self, ref: str, place: Place, what: str) -> Iterator[Problem]:
        """Say what is wrong with a reference."""
        found = self.slugs(ref)
        if not found:
            there = ", ".join(sorted(self._called)[:20]) or "none"
            text = (
                f"{what} names no agent that there is: {ref!r}; add it under agents, or name one of: {there}"
            )
            yield Problem(place, text)
        elif len(found) > 1:
            yield Problem(place, f"{what} names several agents, {', '.join(found)}: use the slug of one")


async def settle(config: UpConfig, registry: Registry, *, has_public_url: bool) -> Settled:
    """Make the mesh's agents what the file says. Everything is checked before anything is changed."""
    known = await known_of(registry)
    check(config, known)
    problems: list[Problem] = []
    created = [each for each in config.agents if known.agent(each.slug) is None]
    for agent in created:
        await _try(_create(registry, agent), agent, problems)
    raise_all(problems)
    if created:
        known = await known_of(registry)
    names, changed = _Names(config.agents, known), []
    for agent in config.agents:
        there = known.agent(agent.slug)
        wanted = _resolved(agent, names, known)
        paths = [] if there is None else [path for path in agent.places if _differs(there, wanted, path)]
        made = await _try(_update(registry, agent, wanted, paths), agent, problems) if paths else None
        if made is not None and made != there:
            changed.append(agent)
    raise_all(problems)
    final = await known_of(registry) if created or changed else known
    return Settled(
        tuple(each.slug for each in created),
        tuple(each.slug for each in changed if each not in created),
        () if has_public_url else tuple(_without_peers(config.agents, final)),
    )


async def _try(work: Coroutine[Any, Any, T], agent: FileAgent, problems: list[Problem]) -> T | None:
    """Do something to an agent; what the registry refuses is noted with its line."""
    try:
        return await work
    except HoplineError as error:
        if error.reason in {"unavailable", "internal", "deadline_exceeded", "unauthenticated"}:
            raise
        path = error.violations[0][0] if error.violations else ""
        problems.append(Problem(agent.place_of(path), f"{agent.slug}: {error.message}"))
        return None


async def _create(registry: Registry, agent: FileAgent) -> None:
    wanted = agent_pb2.Agent()
    wanted.CopyFrom(agent.wanted)
    wanted.name = wanted.name or agent.slug
    # Under its key an agent that was deleted may be made again.
    wanted.key = f"mesh.yaml/{agent.slug}"
    for path in _NAMING:
        wanted.ClearField(path)  # type: ignore[arg-type]
    # Its token is not kept: `hopline token create` makes those that are used.
    await registry.agents.CreateAgent(agent_pb2.CreateAgentRequest(agent=wanted))


async def _update(
    registry: Registry, agent: FileAgent, wanted: agent_pb2.Agent, paths: Sequence[str]
) -> agent_pb2.Agent:
    request = agent_pb2.UpdateAgentRequest(
        agent_ref=agent.slug, agent=wanted, update_mask=FieldMask(paths=paths)
    )
    return (await registry.agents.UpdateAgent(request)).agent


def _resolved(agent: FileAgent, names: _Names, known: Known) -> agent_pb2.Agent:
    """Return what an agent is to be, with ids in place of names."""
    ids = {each.slug: each.id for each in known.agents}
    wanted = agent_pb2.Agent()
    wanted.CopyFrom(agent.wanted)
    wanted.owner_id = known.people.get(wanted.owner_id, wanted.owner_id)
    del wanted.reach[:]
    wanted.reach.extend(sorted({ids[names.slugs(ref)[0]] for ref in agent.wanted.reach}))
    for each in wanted.connections:
        each.agent = ids[names.slugs(each.agent)[0]]
    wanted.connections.sort(key=lambda each: each.name)
    return wanted


def _differs(there: agent_pb2.Agent, wanted: agent_pb2.Agent, path: str) -> bool:
    """Tell whether a field has another value than the file wants."""
    if path == "wake":
        # Whether the secret is another one only the registry knows: with an address it is asked each time.
        return there.wake.kind != wanted.wake.kind or bool(wanted.wake.webhook_url)
    found, wished = getattr(there, path), getattr(wanted, path)
    if path == "labels":
        return dict(found) != dict(wished)
    return bool(found != wished)


def _without_peers(agents: Sequence[FileAgent], known: Known) -> Iterator[str]:
    """Warn of agents that are offered no connection because they run in the cloud."""
    places = {each.slug: f"{each.places.get('connections', each.place)}: " for each in agents}
    for agent in known.agents:
        if agent.runtime == agent_pb2.AGENT_RUNTIME_CLOUD and agent.connections:
            yield (
                f"{places.get(agent.slug, '')}{agent.slug} runs in the cloud and is offered no connections:"
                " nothing says by which URL this mesh is reached from there; start it with --public-url URL"
            )
