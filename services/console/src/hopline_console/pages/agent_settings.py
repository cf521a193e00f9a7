"""`/agents/new` and `/agents/<id>/settings`: what an agent is."""

from __future__ import annotations

from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import agent_pb2 as pb
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.blocks import Ask, Facts, Link, Links, Secret
from hopline_console.context import ConsoleContext
from hopline_console.forms import Filled, Form
from hopline_console.forms.fields import Value
from hopline_console.pages import agent_form
from hopline_console.visit import Visit, routed
from hopline_console.words import ADMIN, OPERATOR


def routes(context: ConsoleContext) -> list[Route]:
    """Return the pages of definitions."""
    return [
        *routed(context, "/agents/new", get=new, post=create),
        *routed(context, "/agents/{agent}/settings", get=settings, post=change),
    ]


async def new(visit: Visit) -> Response:
    """Ask what a new agent is to be."""
    visit.require(visit.role, OPERATOR)
    return await _new_page(visit, (await _new_form(visit)).empty(**agent_form.new_values()))


async def _new_form(visit: Visit) -> Form:
    return Form("/agents/new", "A new agent", "Create", await agent_form.fields_for(visit, new=True))


async def _new_page(visit: Visit, filled: Filled) -> Response:
    return await visit.page("Create an agent", [Ask(filled)], filled=filled)


async def create(visit: Visit) -> Response:
    """Create an agent and show its first token."""
    visit.require(visit.role, OPERATOR)
    filled = (await _new_form(visit)).read(await visit.posted())

    async def act() -> Response:
        agent = agent_form.definition(filled.values)
        request = pb.CreateAgentRequest(agent=agent, request_id=filled.once)
        made = await visit.mesh.agents.CreateAgent(request)
        at = f"/agents/{made.agent.id}"
        if not made.token:
            return visit.done(at, "The agent had been created already; its token was shown then.")
        text = "Its worker needs this token. It is shown this one time, and stored nowhere: copy it now."
        shown = Secret(f"{made.agent.name} is created", "Token", made.token, text)
        return await visit.page("An agent's token", [shown, Links("Go on", [Link("Go to the agent", at)])])

    return await visit.answer(filled, act, lambda: _new_page(visit, filled))


async def settings(visit: Visit) -> Response:
    """Show an agent's definition to be changed."""
    agent, form = await _found(visit)
    return await _settings_page(visit, agent, form.empty(**await _values(visit, agent)))


async def _found(visit: Visit) -> tuple[pb.Agent, Form]:
    found = await visit.mesh.agents.GetAgent(pb.GetAgentRequest(agent=visit.path("agent")))
    visit.require(found.role, ADMIN, f"the agent {found.agent.slug!r}")
    fields = await agent_form.fields_for(visit, new=False)
    return found.agent, Form(f"/agents/{found.agent.id}/settings", "Settings", "Save", fields, sees=True)


async def _values(visit: Visit, agent: pb.Agent) -> dict[str, Value]:
    return agent_form.values_of(agent, await visit.slugs(), await visit.names_of_people())


async def _settings_page(visit: Visit, agent: pb.Agent, filled: Filled) -> Response:
    back = Links("This agent", [Link("Back to the agent", f"/agents/{agent.id}")])
    tools = ", ".join(each.name for each in agent.server_tools)
    shown = [Facts("", [("Its own tools", tools)])] if tools else []
    return await visit.page(f"Settings of {agent.name}", [back, Ask(filled), *shown], filled=filled)


async def change(visit: Visit) -> Response:
    """Change what the person changed in the form, and nothing else."""
    posted = await visit.posted()
    agent, form = await _found(visit)
    filled = form.read(posted)
    filled.hold_against(await _values(visit, agent))
    at = f"/agents/{agent.id}"

    async def act() -> Response:
        paths = agent_form.paths_of(filled.changed())
        if not paths:
            return visit.done(at, "Nothing was changed.")
        request = pb.UpdateAgentRequest(
            agent_ref=agent.id,
            agent=agent_form.definition(filled.values),
            update_mask=FieldMask(paths=paths),
            expected=agent,
        )
        made = await visit.mesh.agents.UpdateAgent(request)
        return visit.done(at, f"{made.agent.name} is changed.")

    return await visit.answer(filled, act, lambda: _settings_page(visit, agent, filled))
