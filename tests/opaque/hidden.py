"""What may not be known of: agents by what hides them, and things that others have between them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hopline.registry.v1.agent_pb2 import Agent as AgentMessage
from hopline.registry.v1.agent_pb2 import DeleteAgentRequest, PauseAgentRequest, UpdateAgentRequest
from hopline.registry.v1.crew_pb2 import ApplyCrewRequest, CrewMember, DeleteMemberRequest
from hopline.registry.v1.identity_pb2 import (
    ROLE_ADMIN,
    ROLE_OPERATOR,
    GrantRoleRequest,
    ListTokensRequest,
)
from hopline.registry.v1.plugin_pb2 import (
    InstallPluginRequest,
    InstallPluginResponse,
    PluginManifest,
    UninstallPluginRequest,
)
from hopline.relay.v1.delegation_pb2 import GetTurnRequest
from hopline.relay.v1.message_pb2 import AskRequest
from hopline.relay.v1.schedule_pb2 import AddScheduleRequest
from hopline_client import Mesh

from tests.support.mesh_process import Agent, Space

# Names by what hides them. All are of one length, so that whole answers can be compared.
HIDDEN = {
    "out_of_reach": "beyond",
    "paused": "paused",
    "group_only": "closed",
    "deleted": "gone01",
    "no_role": "theirs",
    "renamed": "former",
    "another workspace": "abroad",
    "never there": "nobody",
}
NEVER = "01m8p000000000000000000000"
NO_ID = f"agt_{NEVER}"
# Ids of things, by what hides them, in the fields that name them.
THINGS = ("session_id", "thread_id", "message_id", "turn_id")
# Different at every call, whatever is answered.
FLEETING = {"date", "hopline-request-id"}

# As far as a plugin may go.
MANIFEST = PluginManifest(
    key="all",
    name="All",
    version="1",
    permissions=[
        "agents.read",
        "agents.write",
        "models.read",
        "session",
        "todo.read",
        "todo.write",
        "notify.write",
    ],
)

Answers = Callable[[str], Awaitable[str]]


class Asker:
    """An agent that sees `friend`, and nobody of HIDDEN; `person` is the token of somebody alike.

    `plugin` is the token of a plugin that may do all that a manifest allows, and has no agents.

    `things` holds, by field and by what hides them, ids of what others have between them.
    """

    def __init__(
        self,
        space: Space,
        agent: Agent,
        person: str,
        plugin: str,
        ids: dict[str, str],
        things: dict[str, dict[str, str]],
    ) -> None:
        self.space = space
        self.agent = agent
        self.person = person
        self.plugin = plugin
        self.ids = ids
        self.things = things
        # A session that another agent has opened through the endpoint of `friend`.
        self.bound = ""

    async def all_alike(self, answers: Answers) -> str:
        """Compare the answers for everyone in HIDDEN, by name and by id; returns one, the name left out."""
        by_name = {why: (await answers(name)).replace(name, "NAME") for why, name in HIDDEN.items()}
        by_id = {why: (await answers(self.ids[why])).replace(self.ids[why], "NAME") for why in HIDDEN}
        for found in (by_name, by_id):
            assert found == dict.fromkeys(HIDDEN, found["never there"])
        return by_name["never there"]


async def hide(space: Space) -> Asker:
    """Make everyone in HIDDEN, and an agent that may not know of them."""
    await space.policy(refusals="0", agents=1000)
    await space.person("alice")
    bob = await space.person("bob")
    await space.agents("one", "two")
    absent = {"abroad", "nobody"}
    agents = {"friend": await space.agent("friend")}
    for why, name in HIDDEN.items():
        if name not in absent:
            slug = "called-otherwise" if why == "renamed" else name
            agents[name] = await space.agent(name, slug=slug, is_group_only_callable=why == "group_only")
    for name in agents.keys() - {"theirs", "former"}:
        grant = GrantRoleRequest(user="alice", agent=name, role=ROLE_OPERATOR)
        await space.admin.identities.GrantRole(grant)
    reach = [agent.id for name, agent in agents.items() if name != "beyond"]
    asker = await space.agent("asker", owner_id="alice", reach=reach)
    # A lead has the tools of crews as well.
    await space.agent("crewed", owner_id="alice", is_subagent=True, parent_agent_id=asker.id)
    # As far as anyone may go on it: a change of `friend` can name others.
    grant = GrantRoleRequest(user="bob", agent="friend", role=ROLE_ADMIN)
    await space.admin.identities.GrantRole(grant)
    three = await space.agent("three")
    askers = {"between others": space.client(three)}
    askers["of a deleted agent"] = space.client(agents["gone01"])
    asked = {why: await client.ask("two", "well?", wait_seconds=0) for why, client in askers.items()}
    questions = {why: await client.ask_owner("well?", wait_seconds=0) for why, client in askers.items()}
    left = {why: await _left(client) for why, client in askers.items()}
    roots = {why: await _root(space, each.turn_id) for why, each in asked.items()}
    tokens = {
        "between others": await _token(space, "three"),
        "of a deleted agent": await _token(space, "gone01"),
    }
    schedules = {
        "between others": await _schedule(space, "three"),
        "of a deleted agent": await _schedule(space, "gone01"),
    }
    plugins = {
        "between others": (await _plugin(space, "kept")).plugin.id,
        "of a deleted agent": (await _plugin(space, "gone")).plugin.id,
    }
    await space.admin.plugins.UninstallPlugin(UninstallPluginRequest(plugin="gone"))
    crews = {"between others": await _crew(space, "other"), "of a deleted agent": await _crew(space, "gone")}
    await space.admin.crews.DeleteMember(DeleteMemberRequest(crew=crews["of a deleted agent"], key="k"))
    rename = UpdateAgentRequest(agent_ref=agents["former"].id, agent=AgentMessage(name="latter"))
    rename.update_mask.paths.append("name")
    await space.admin.agents.UpdateAgent(rename)
    await space.admin.agents.PauseAgent(PauseAgentRequest(agent="paused"))
    await space.admin.agents.DeleteAgent(DeleteAgentRequest(agent="gone01"))
    async with space.mesh.space() as elsewhere:
        agents["abroad"], _ = await elsewhere.agents("abroad", "two")
        client = elsewhere.client(agents["abroad"])
        asked["another workspace"] = await client.ask("two", "well?", wait_seconds=0)
        questions["another workspace"] = await client.ask_owner("well?", wait_seconds=0)
        left["another workspace"] = await _left(client)
        roots["another workspace"] = await _root(elsewhere, asked["another workspace"].turn_id)
        tokens["another workspace"] = await _token(elsewhere, "abroad")
        schedules["another workspace"] = await _schedule(elsewhere, "abroad")
        plugins["another workspace"] = (await _plugin(elsewhere, "abroad")).plugin.id
        crews["another workspace"] = await _crew(elsewhere, "abroad")
    ids = {why: agents[name].id if name in agents else NO_ID for why, name in HIDDEN.items()}
    things: dict[str, dict[str, str]] = {}
    for field in THINGS:
        things[field] = {why: getattr(each, field) for why, each in asked.items()}
    things["escalation_id"] = {why: each.id for why, each in questions.items()}
    things |= {"root_id": roots, "token_id": tokens, "schedule_id": schedules, "plugin": plugins}
    things["crew"] = crews
    things["todo_id"] = {why: todo_id for why, (todo_id, _) in left.items()}
    things["timer_id"] = {why: timer_id for why, (_, timer_id) in left.items()}
    for of in things.values():
        of["never there"] = of["between others"][:4] + NEVER
    found = Asker(space, asker, bob, (await _plugin(space, "all", MANIFEST)).token, ids, things)
    request = AskRequest(agent="friend", text="well?", wait_seconds=0, own_endpoint=True)
    found.bound = (await space.stubs(three.token).messages.Ask(request)).turn.session_id
    return found


async def _left(client: Mesh) -> tuple[str, str]:
    """Have an agent leave a todo and a timer to itself; returns their ids."""
    (todo,) = await client.add_todos("well?")
    return todo.id, (await client.notify_in(86_400, "well?")).id


async def _plugin(space: Space, key: str, manifest: PluginManifest | None = None) -> InstallPluginResponse:
    """Install a plugin, by the admin."""
    request = InstallPluginRequest(manifest=manifest or PluginManifest(name="A plugin", version="1"))
    request.manifest.key, request.confirm = key, True
    return await space.admin.plugins.InstallPlugin(request)


async def _schedule(space: Space, agent: str) -> str:
    request = AddScheduleRequest(agent=agent, cron="0 5 * * *", text="well?")
    return str((await space.admin.schedules.AddSchedule(request)).schedule.id)


async def _crew(space: Space, name: str) -> str:
    """Make a crew, called by a name as long as an id."""
    called = f"crw_{name:x<26}"
    await space.admin.crews.ApplyCrew(ApplyCrewRequest(crew=called, members=[CrewMember(key="k")]))
    return called


async def _root(space: Space, turn_id: str) -> str:
    found = await space.admin.turns.GetTurn(GetTurnRequest(turn_id=turn_id))
    return str(found.turn.root_id)


async def _token(space: Space, agent: str) -> str:
    found = await space.admin.identities.ListTokens(ListTokensRequest(agent=agent))
    return str(found.tokens[0].id)
