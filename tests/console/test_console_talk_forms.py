"""What forms of the talk pages keep, offer and say when they were not sent, or not by whom they are for."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator

import pytest
from hopline.registry.v1 import identity_pb2, plugin_pb2
from hopline.relay.v1 import dead_letter_pb2, session_pb2
from hopline_client import Turn

from tests.support.mesh_process import Agent, Held, Space, shout, until
from tests.support.pages import Answer, Visitor, visitor


@pytest.fixture
async def admin(space: Space) -> AsyncIterator[Visitor]:
    async with visitor(space) as found:
        yield found


@pytest.fixture
async def vera(space: Space) -> AsyncIterator[Visitor]:
    """Somebody who may only look."""
    async with visitor(space, await space.person("vera", identity_pb2.ROLE_VIEWER)) as found:
        yield found


def hidden(page: Answer, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page.html)
    assert found is not None, name
    return found[1]


def fields(page: Answer, text: str) -> dict[str, str]:
    return {**{name: hidden(page, name) for name in ("agent", "session", "request_id")}, "text": text}


async def prompted(space: Space, admin: Visitor, lead: Agent, text: str) -> str:
    """Prompt an agent and return the session."""
    page = await admin.get(f"/playground?agent={lead.id}")
    sent = await admin.post("/playground", fields(page, text))
    assert sent.status == 303
    return sent.location


# Prompts


async def test_what_could_not_be_sent_is_sent_again_under_the_same_id(admin: Visitor, space: Space) -> None:
    (lead,) = await space.agents("lead")
    await space.policy(inbox_backlog=1)
    page = await admin.get(f"/chat?agent={lead.id}")
    given = {**fields(page, "x" * 70_000)}
    refused = await admin.post("/chat", given)
    assert refused.status == 400
    assert hidden(refused, "request_id") == given["request_id"]


async def test_other_words_under_an_id_that_has_gone_through_get_a_new_one(
    admin: Visitor, space: Space
) -> None:
    (lead,) = await space.agents("lead")
    page = await admin.get(f"/chat?agent={lead.id}")
    first = await admin.post("/chat", fields(page, "one"))
    again = await admin.post("/chat", fields(page, "two"))
    assert again.status == 409
    assert "has gone through" in again.text
    assert "two" in again.text
    assert hidden(again, "request_id") != hidden(page, "request_id")
    assert (await admin.post("/chat", fields(again, "two"))).status == 303
    assert "one" in (await admin.get(first.location)).text


async def test_lines_and_blanks_of_a_prompt_arrive_as_they_were_typed(admin: Visitor, space: Space) -> None:
    (lead,) = await space.agents("lead")
    held = Held()
    await space.work(lead, held)
    await prompted(space, admin, lead, "  def f():\r\n    pass\r\n")
    assert (await held.begun()).text == "  def f():\n    pass\n"


@pytest.mark.parametrize("where", ["playground", "session"])
async def test_a_prompt_that_is_refused_comes_back_on_its_own_page(
    admin: Visitor, space: Space, where: str
) -> None:
    (lead,) = await space.agents("lead")
    path = f"/playground?agent={lead.id}"
    post = "/playground"
    if where == "session":
        path = await prompted(space, admin, lead, "begin")
        post = f"{path}/prompt"
    page = await admin.get(path)
    refused = await admin.post(post, fields(page, "   "))
    assert refused.status == 400
    assert "say something first" in refused.text
    heading = re.compile(r"<h1>.*?</h1>")
    assert heading.findall(refused.html) == heading.findall(page.html)


async def test_a_command_of_a_plugin_leads_to_the_agent_that_it_went_to(admin: Visitor, space: Space) -> None:
    manifest = plugin_pb2.PluginManifest(
        key="shop",
        name="Shop",
        version="1",
        permissions=["agents.read", "agents.write"],
        agents=[plugin_pb2.PluginAgent(key="librarian", name="Librarian")],
        commands=[
            plugin_pb2.PluginCommand(name="research", description="Look it up.", agent_key="librarian")
        ],
    )
    request = plugin_pb2.InstallPluginRequest(manifest=manifest, confirm=True)
    await space.admin.plugins.InstallPlugin(request)
    (lead,) = await space.agents("lead")
    page = await admin.get(f"/chat?agent={lead.id}")
    assert "/research" in page.text
    shown = await admin.follow("/chat", fields(page, "/research pears"))
    assert "Chat with Librarian" in shown.text
    assert "pears" in shown.text


async def test_commands_are_told_to_nobody_who_may_not_use_them(vera: Visitor, space: Space) -> None:
    (lead,) = await space.agents("lead")
    await space.admin.identities.GrantRole(
        identity_pb2.GrantRoleRequest(user="vera", agent=lead.id, role=identity_pb2.ROLE_OPERATOR)
    )
    page = await vera.get(f"/chat?agent={lead.id}")
    assert 'name="text"' in page.html
    assert "Commands" not in page.text


# Reading


async def test_a_chat_opens_at_its_end_and_leads_back_to_its_beginning(admin: Visitor, space: Space) -> None:
    (lead,) = await space.agents("lead")
    await space.policy(messages_per_thread=500)
    await space.work(lead, shout)
    path = ""
    for number in range(26):
        session = path.rpartition("/")[2]
        request = session_pb2.PromptRequest(
            agent="lead", text=f"line {number:02d}", session_id=session, wait_seconds=50
        )
        path = f"/sessions/{(await space.admin.sessions.Prompt(request)).turn.session_id}"
    for address in (path, f"/chat?agent={lead.id}&session={path.rpartition('/')[2]}"):
        newest = await admin.get(address)
        assert "LINE 25" in newest.text
        assert "LINE 00" not in newest.text
        older = re.search(r'rel="prev" href="([^"]+)"', newest.html)
        assert older is not None
        first = await admin.get(older[1].replace("&amp;", "&"))
        assert "LINE 00" in first.text
        assert "this is its beginning" in first.text


async def test_sessions_of_a_channel_are_found_behind_any_number_of_others(
    admin: Visitor, space: Space
) -> None:
    lead, peer = await space.agents("lead", "peer")
    client = space.client(peer)
    await client.send("lead", "from a peer")
    for number in range(51):
        request = session_pb2.PromptRequest(agent="lead", text=f"number {number}", wait_seconds=0)
        await space.admin.sessions.Prompt(request)
    page = await admin.get(f"/playground?agent={lead.id}&channel=relay")
    assert page.html.count('href="/sessions/ses_') == 1
    assert (await admin.get(f"/playground?agent={lead.id}&channel=nonsense")).status == 200


async def test_a_chat_says_what_its_open_turn_waits_for(admin: Visitor, space: Space) -> None:
    (lead,) = await space.agents("lead")
    session = await prompted(space, admin, lead, "hello")
    page = await admin.get(session)
    assert "No worker" in page.text
    assert "hopline attach" in page.text


# Questions


async def test_an_option_of_any_characters_is_answered_as_it_is(admin: Visitor, space: Space) -> None:
    (peer,) = await space.agents("peer")
    odd = "yes\u200b\r\nreally"
    heard: list[str] = []

    async def ask_owner(turn: Turn) -> str:
        found = await turn.mesh.ask_owner("Which?", options=[odd, "no"], wait_seconds=50)
        heard.append(found.answer)
        return "done"

    await space.work(peer, ask_owner)
    await space.client(await space.agent("other")).send("peer", "go")

    async def asked() -> str:
        found = re.search(r"/escalations/(esc_\w+)", (await admin.get("/escalations")).html)
        return found[1] if found else ""

    path = f"/escalations/{await until(asked, 'the question')}"
    page = await admin.get(path)
    assert 'name="text"' not in page.html
    for wrong in ("2", "-1", "x", "1" * 40):
        assert (await admin.post(f"{path}/answer", {"option": wrong})).status == 400
    assert "has your answer" in (await admin.follow(f"{path}/answer", {"option": "0"})).text
    await until(lambda: heard, "the answer")
    assert heard == [odd]


# Todos, timers, dead letters


async def test_todos_are_removed_and_timers_called_off(admin: Visitor, vera: Visitor, space: Space) -> None:
    (lead,) = await space.agents("lead")

    async def leave(turn: Turn) -> str:
        if turn.text != "go":
            return "woken"
        await turn.mesh.add_todos("water the pears")
        await turn.mesh.notify_in(3600, "look again")
        return "noted"

    await space.work(lead, leave)
    session = await prompted(space, admin, lead, "go")

    async def noted() -> Answer | None:
        page = await admin.get(session)
        return page if "look again" in page.text and "water the pears" in page.text else None

    page = await until(noted, "todo and timer")
    todo, timer = hidden(page, "todo"), hidden(page, "timer")
    seen = await vera.get(session)
    assert "water the pears" in seen.text
    assert 'name="todo"' not in seen.html
    assert 'name="timer"' not in seen.html
    assert (await vera.post(f"{session}/todo", {"todo": todo})).status == 403
    assert "The todo was removed." in (await admin.follow(f"{session}/todo", {"todo": todo})).text
    told = await admin.follow(f"{session}/timer", {"timer": timer})
    assert "The timer was called off." in told.text
    assert "look again" not in (await admin.get(session)).text.partition("Transcript")[0]


async def _letter(space: Space) -> str:
    lead, _ = await space.agents("lead", "peer")
    await space.policy(queue_seconds=1)
    await space.client(lead).send("peer", "do it")

    async def died() -> str:
        found = await space.admin.letters.ListDeadLetters(dead_letter_pb2.ListDeadLettersRequest())
        return found.dead_letters[0].turn_id if found.dead_letters else ""

    return str(await until(died, "the dead letter"))


async def test_who_may_only_look_is_offered_nothing_to_change(vera: Visitor, space: Space) -> None:
    turn_id = await _letter(space)
    page = await vera.get("/dead")
    assert "of an agent that you operate" in page.text
    assert turn_id not in page.html
    assert (await vera.get(f"/dead/{turn_id}")).status == 403
    assert (await vera.post("/dead/retry", {"turn": turn_id})).status == 403


async def test_an_operator_tries_again_and_an_admin_throws_away(space: Space) -> None:
    turn_id = await _letter(space)
    async with visitor(space, await space.person("otto", identity_pb2.ROLE_OPERATOR)) as otto:
        for path in ("/dead", f"/dead/{turn_id}"):
            page = await otto.get(path)
            assert "again" in page.text
            assert "Throw" not in page.text
        refused = await otto.post("/dead/purge", {"turn": turn_id, "sure": "1"})
        assert refused.status == 403
        assert re.search(rf'value="{turn_id}" checked', refused.html)
        assert (await otto.post("/dead/retry", {"turn": f"trn_{uuid.uuid4().hex[:26]}"})).status == 404


async def test_who_may_only_look_is_shown_questions_and_held_answers_without_their_forms(
    vera: Visitor, admin: Visitor, space: Space
) -> None:
    (lead,) = await space.agents("lead")
    at_it = Held()

    async def work(turn: Turn) -> str:
        if turn.text == "ask":
            return (await turn.mesh.ask_owner("Shall I?", wait_seconds=50)).answer
        if turn.text != "plan":
            return await at_it(turn)
        await turn.mesh.add_todos("water the pears")
        return "a first draft"

    await space.work(lead, work)
    session = await prompted(space, admin, lead, "plan")
    await at_it.begun()
    await prompted(space, admin, lead, "ask")

    async def asked() -> str:
        found = re.search(r"/escalations/(esc_\w+)", (await admin.get("/escalations")).html)
        return found[0] if found else ""

    question = await until(asked, "the question")
    for path in (session, f"/chat?agent={lead.id}&session={session.rpartition('/')[2]}", "/held", question):
        seen, own = await vera.get(path), await admin.get(path)
        assert seen.status == own.status == 200
        assert re.findall(r'<form method="post" action="([^"]+)"', seen.html) == ["/signout"], path
        assert len(re.findall(r'<form method="post"', own.html)) > 1, path
    at_it.go_on.set()
