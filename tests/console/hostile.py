"""A workspace in which everybody who can write anything has written what no page may obey.

Whatever ran would set `window.ran`, or be seen by the checks that every page in the browser is held against.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import agent_pb2, crew_pb2, identity_pb2, model_pb2, plugin_pb2
from hopline.relay.v1 import (
    draft_pb2,
    escalation_pb2,
    schedule_pb2,
    session_pb2,
    timer_pb2,
    todo_pb2,
    webhook_pb2,
)
from hopline_client import Turn
from hopline_rpc.errors import HoplineError

from tests.support.mesh_process import Agent, Space, until

# As short as it gets: for fields of 32 characters.
SHORT: Final = '"><script>ran=1</script>{{7*7}}'
# Names may hold no control characters; everything else they do.
NAME: Final = "</title></textarea>'\"><img src=x onerror=window.ran=1><script>window.ran=1</script>{{7*7}}"
ATTRIBUTE: Final = '" onfocus="window.ran=1" autofocus x=\''
# A word for which no line is long enough.
LONG: Final = "W" * 190
LINKS: Final = (
    "javascript:window.ran=1 data:text/html,<script>window.ran=1</script> https://evil.example.org/?q=1"
    " [press](javascript:window.ran=1) <a href='javascript:window.ran=1'>press</a> <https://evil.example.org>"
)
MARKUP: Final = (
    "<base href='https://evil.example.org/'><meta http-equiv='refresh' content='0;url=https://evil.example.org/'>"
    "<form action='https://evil.example.org/'><button>Sign in again</button></form>"
    "<iframe srcdoc='<script>parent.ran=1</script>'></iframe><svg onload=window.ran=1></svg>"
    "<style>*{display:none}</style><link rel=stylesheet href='https://evil.example.org/x.css'>"
    "<div data-live id=content hidden>gone</div>{{ 7*7 }}{% raise %}${7*7}"
)
# Text that would move a cursor, hide, or read other than it is stored.
TURNED: Final = (
    "\u202egnp.exe\u2066 \u061c\x1b[2J\x1b]8;;https://evil.example.org\x07press\x08\x7f\x85\u2028\ufeff\x0c"
)
TEXT: Final = "\n".join((NAME, ATTRIBUTE, LINKS, MARKUP, TURNED, LONG * 4, "<!--", "]]>", "&lt;b&gt;"))
# What may never stand in a page as it is.
INVISIBLE: Final = frozenset("\u202e\u2066\u061c\x1b\x07\x08\x7f\x85\u2028\x0c")


async def poison(space: Space) -> None:
    """Fill a workspace."""
    await space.policy(refusals="0", agents=100)
    await _people(space)
    agents = [await _agent(space, f"{NAME} {number}") for number in range(3)]
    await _set_up(space, agents[0])
    await _crew(space)
    await _talk(space, agents)


async def _people(space: Space) -> None:
    admin = space.admin
    await admin.identities.CreateUser(identity_pb2.CreateUserRequest(name=NAME, login="a\"'<b>@example.org"))
    await admin.identities.CreateUser(identity_pb2.CreateUserRequest(name=LONG[:100]))
    for name in (NAME[:100], LONG[:100]):
        await admin.identities.CreateToken(identity_pb2.CreateTokenRequest(user="admin", name=name))
    grant = identity_pb2.GrantRoleRequest(user=NAME, role=identity_pb2.ROLE_VIEWER)
    await admin.identities.GrantRole(grant)


async def _agent(space: Space, name: str) -> Agent:
    made = await space.agent(
        name,
        description=TEXT[:1500],
        soul=TEXT,
        instructions=TEXT,
        labels={NAME[:63]: TEXT[:255]},
        model_id=NAME,
        key=f"{NAME}{name[-1]}",
    )
    former = agent_pb2.UpdateAgentRequest(agent_ref=made.id, agent=agent_pb2.Agent(name=f"{LONG} {name[-1]}"))
    former.update_mask.CopyFrom(FieldMask(paths=["name"]))
    await space.admin.agents.UpdateAgent(former)
    back = agent_pb2.UpdateAgentRequest(agent_ref=made.id, agent=agent_pb2.Agent(name=name))
    back.update_mask.CopyFrom(FieldMask(paths=["name"]))
    await space.admin.agents.UpdateAgent(back)
    return Agent(made.id, name, made.token, made.token_file)


async def _set_up(space: Space, agent: Agent) -> None:
    """Write what admins and plugins write."""
    admin = space.admin
    model = model_pb2.Model(model_identifier=NAME, display_name=NAME, input_usd_per_1m="3")
    await admin.models.CreateModel(model_pb2.CreateModelRequest(model=model))
    for confirm in (True, False):  # one at work, one that waits for its OK
        await admin.plugins.InstallPlugin(
            plugin_pb2.InstallPluginRequest(manifest=_manifest(confirm), confirm=confirm)
        )
    schedule = schedule_pb2.AddScheduleRequest(agent=agent.id, cron="0 3 * * *", name=NAME[:64], text=TEXT)
    await admin.schedules.AddSchedule(schedule)
    await admin.webhooks.AddWebhook(webhook_pb2.AddWebhookRequest(agent=agent.id, name="a-hook"))


def _manifest(confirmed: bool) -> plugin_pb2.PluginManifest:
    return plugin_pb2.PluginManifest(
        key="bad" if confirmed else "worse",
        name=NAME,
        version=SHORT,
        description=TEXT[:2000],
        agents=[plugin_pb2.PluginAgent(key=NAME, name=f"{NAME} of a plugin")],
        permissions=["agents.read", "session"],
        tools=[plugin_pb2.PluginTool(name="tool", description=TEXT[:2000])],
        skills=[plugin_pb2.PluginSkill(name="skill", description=TEXT[:500], text=TEXT)],
        commands=[plugin_pb2.PluginCommand(name="command", description=TEXT[:500], agent_key=NAME)],
        hooks=[plugin_pb2.PluginHook(kind="inter_agent_message")],
        endpoint="127.0.0.1:9",
    )


async def _crew(space: Space) -> None:
    members = [
        crew_pb2.CrewMember(
            key=f"{NAME} {number}",
            name=f"{NAME} {number} of a crew",
            lead=number == 0,
            description=TEXT[:1500],
            soul=TEXT,
            instructions=TEXT,
        )
        for number in range(2)
    ]
    await space.admin.crews.ApplyCrew(crew_pb2.ApplyCrewRequest(crew=NAME, members=members))


async def _talk(space: Space, agents: list[Agent]) -> None:
    """Let agents write to each other, ask their owner, answer, fail, plan."""
    asker, answerer, silent = agents
    client = space.client(asker)
    mine = space.stubs(asker.token)
    await client.send([answerer.id, silent.id], TEXT, subject=NAME, payload={NAME: TEXT, "n": [NAME]})
    await space.work(answerer, _answer)
    answered = await client.ask(answerer.id, TEXT)
    assert answered.reply == TEXT
    failed = await client.ask(answerer.id, f"fail {TEXT}")
    assert failed.status == "failed", failed
    await client.ask(silent.id, TEXT, wait_seconds=0)  # nobody serves it
    for options in ((), (SHORT, TEXT[:200].replace("\n", " "))):
        await client.ask_owner(TEXT, options=options, wait_seconds=0)
    over = await client.ask_owner(f"and {TEXT}", wait_seconds=0)
    withdraw = escalation_pb2.WithdrawEscalationRequest(escalation_id=over.id, reason=TEXT[:1200])
    await space.admin.escalations.WithdrawEscalation(withdraw)
    await mine.todos.AddTodos(todo_pb2.AddTodosRequest(texts=[TEXT, NAME, LONG]))
    await mine.timers.SetTimer(timer_pb2.SetTimerRequest(delay_seconds=3600, message=TEXT))
    for agent in (answerer, silent, asker):
        prompt = session_pb2.PromptRequest(agent=agent.id, text=TEXT, wait_seconds=0)
        await space.admin.sessions.Prompt(prompt)
    await _draft(space, asker)


async def _answer(turn: Turn) -> str:
    if turn.text.startswith("fail"):
        raise HoplineError("failed_precondition", TEXT[:1500])
    return TEXT


async def _draft(space: Space, lead: Agent) -> None:
    """Have an answer held back: todos of its session are open."""

    async def hold(turn: Turn) -> str:
        await turn.mesh.add_todos(TEXT)
        return f"{TEXT} held"

    await space.work(lead, hold)

    async def is_held() -> Any:
        return (await space.admin.drafts.ListHeld(draft_pb2.ListHeldRequest())).holds

    await until(is_held, "a held answer")
