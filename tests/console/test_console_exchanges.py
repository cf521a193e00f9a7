"""The inter-agents window, the timeline of the workspace and traces in the console."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
from hopline.registry.v1 import agent_pb2
from hopline_client import Turn
from markupsafe import escape

from tests.support.mesh_process import Agent, Space, shout, until
from tests.support.pages import Answer, Visitor, visitor

_NEVER_WAS = "agt_01m8r6qq5d3rrwyeyqtm4ajxm6"


@pytest.fixture
async def admin(space: Space) -> AsyncIterator[Visitor]:
    async with visitor(space) as found:
        yield found


async def _asked(space: Space) -> tuple[Agent, Agent]:
    """Have an agent ask another one, which answers."""
    lead, peer = await space.agents("lead", "peer")

    async def ask(turn: Turn) -> str:
        return str((await turn.mesh.ask("peer", "weigh the <b>pears</b>", wait_seconds=50)).text)

    await space.work(lead, ask)
    await space.work(peer, shout)
    begun = await space.mesh.cli("chat", "lead", "go", "--workspace", space.name)
    assert "PEARS" in str(begun)
    return lead, peer


def _window(agent: Agent, **filters: str) -> str:
    more = "".join(f"&{name.rstrip('_')}={quote(value)}" for name, value in filters.items())
    return f"/floor?agent={agent.id}&channel=relay{more}"


def _rows(page: Answer) -> int:
    assert page.status == 200, page.text
    return page.html.count('<td data-label="When">')


async def test_the_window_shows_both_directions_and_leads_to_all_of_it(admin: Visitor, space: Space) -> None:
    lead, peer = await _asked(space)
    page = await admin.get(_window(lead))
    assert "lead : inter-agents" in page.text
    for text in ("to peer", "from peer", "ask", "answer", "depth 1", "weigh the <b>pears</b>"):
        assert text in page.text
    assert "<b>pears" not in page.html
    links = set(re.findall(r'href="/(threads|sessions|turns|traces)/', page.html))
    assert links == {"threads", "sessions", "turns", "traces"}
    assert ">linked session<" in page.html
    for path in sorted(set(re.findall(r'href="(/(?:threads|sessions|turns)/[^"#]+)', page.html))):
        assert (await admin.get(path)).status == 200, path
    other = await admin.get(_window(peer))
    assert "from lead" in other.text


async def test_what_is_looked_for_is_found_by_words_direction_peer_and_kind(
    admin: Visitor, space: Space
) -> None:
    lead, _ = await _asked(space)
    every = _rows(await admin.get(_window(lead)))
    sent = _rows(await admin.get(_window(lead, direction="sent")))
    received = _rows(await admin.get(_window(lead, direction="received")))
    assert every == sent + received
    assert sent
    assert received
    assert _rows(await admin.get(_window(lead, q='"WEIGH the"', kind="ask"))) == 1
    assert _rows(await admin.get(_window(lead, q="pea*", peer="peer"))) == 2
    for filters in (
        {"q": "apples"},
        {"kind": "timer"},
        {"state": "vetoed"},
        {"until": "2001-01-01"},
        {"from_": "2999-01-01T10:00"},
    ):
        page = await admin.get(_window(lead, **filters))
        assert _rows(page) == 0, filters
        assert "Nothing here fits." in page.text, filters
    assert _rows(await admin.get(_window(lead, kind="no such kind", state="<none>"))) == every


@pytest.mark.parametrize(
    ("wrong", "status", "said"),
    [
        ({"from_": "yesterday"}, 400, "is no time: write it like"),
        ({"until": "<i>"}, 400, "is no time: write it like"),
        ({"q": '"'}, 400, "there is no word in it to look for"),
        ({"peer": "nobody"}, 200, "Nothing here fits."),
    ],
)
async def test_a_filter_that_cannot_be_is_said_and_stays_in_the_form(
    admin: Visitor, space: Space, wrong: dict[str, str], status: int, said: str
) -> None:
    lead, _ = await space.agents("lead", "peer")
    page = await admin.get(_window(lead, **wrong))
    assert page.status == status, page.text
    assert said in page.text
    (typed,) = wrong.values()
    assert f'value="{escape(typed)}"' in page.html


async def test_a_long_window_is_read_page_by_page(admin: Visitor, space: Space) -> None:
    lead, peer = await space.agents("lead", "peer")
    await space.policy(pair_budget="0")
    client = space.client(lead)
    for number in range(55):
        await client.send(peer.id, f"number {number}")
    first = await admin.get(_window(lead))
    assert _rows(first) == 50
    assert "number 54" in first.text
    following = re.search(r'rel="next" href="([^"]+)"', first.html)
    assert following is not None
    path = following[1].replace("&amp;", "&")
    assert "channel=relay" in path
    second = await admin.get(path)
    assert _rows(second) == 5
    assert "First page" in second.text
    assert "Next page" not in second.text


async def test_the_window_of_a_hidden_agent_is_that_of_none(space: Space) -> None:
    lead, _ = await _asked(space)
    token = await space.person("zoe")
    async with visitor(space, token) as zoe:
        hidden = await zoe.get(_window(lead))
        never_was = await zoe.get(f"/floor?agent={_NEVER_WAS}&channel=relay")
        wrong_too = await zoe.get(_window(lead, q='"', until="never"))
        assert hidden.status == never_was.status == wrong_too.status == 404
        assert hidden.html == never_was.html == wrong_too.html


async def test_the_timeline_badges_what_agents_say_to_each_other(admin: Visitor, space: Space) -> None:
    lead, _ = await _asked(space)
    page = await admin.get("/activity")
    assert "inter-agent lead (for admin) sent a message to peer" in page.text
    assert "inter-agent peer (for admin) sent a message to lead" in page.text
    # Neither the prompt nor its answer is between agents.
    assert "inter-agent admin" not in page.text
    assert "lead (for admin) sent a message to a person" in page.text
    assert "inter-agent lead (for admin) sent a message to a person" not in page.text
    assert "ended a turn" in page.text
    only = await admin.get(f"/activity?kind=message.&agent={lead.id}")
    assert "sent a message to" in only.text
    assert "ended a turn" not in only.text
    assert "Nothing has happened that fits." in (await admin.get("/activity?kind=dead_letter.")).text
    assert (await admin.get("/activity?kind=no+such")).status == 200


async def test_the_timeline_names_agents_by_id_that_are_gone(admin: Visitor, space: Space) -> None:
    lead, peer = await space.agents("lead", "peer")
    await space.client(lead).send(peer.id, "hello")
    await space.admin.agents.DeleteAgent(agent_pb2.DeleteAgentRequest(agent=peer.id))
    page = await admin.get("/activity")
    assert f"lead sent a message to {peer.id}" in page.text.replace(" (for admin)", "")
    assert f"agent={peer.id}" not in page.html
    assert "to a person" not in page.text


async def test_a_trace_is_drawn_from_the_spans_that_are_kept(admin: Visitor, space: Space) -> None:
    lead, _ = await _asked(space)
    window = await admin.get(_window(lead))
    link = re.search(r'href="(/traces/[0-9a-f]{32})', window.html)
    assert link is not None

    async def drawn() -> Answer | None:
        found = await admin.get(link[1])
        return found if "relay" in found.text and "<svg" in found.html else None

    page = await until(drawn, "the spans of the trace")
    assert page.status == 200
    nothing = await admin.get(f"/traces/{'0' * 31}1")
    assert "Nothing of this trace is kept here" in nothing.text
    token = await space.person("zoe")
    async with visitor(space, token) as zoe:
        assert (await zoe.get(link[1])).html == (await zoe.get(f"/traces/{'0' * 31}1")).html
