"""The audit log: narrowed down, taken along as JSON Lines, checked."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hopline.registry.v1 import identity_pb2, workspace_pb2
from hopline.relay.v1 import audit_pb2 as pb
from hopline_console.pages import audit_check
from hopline_console.pages.audit import lines
from hopline_rpc.errors import HoplineError

from tests.support.forms import fill, form, send
from tests.support.mesh_process import MeshProcess, Space
from tests.support.pages import Visitor, visitor


async def _talk(space: Space, times: int = 1) -> None:
    """Have two agents write to each other."""
    await space.policy(pair_budget="0")
    planner, writer = await space.agents("planner", "writer")
    one, two = space.client(planner), space.client(writer)
    for _ in range(times):
        await one.send("writer", "hello")
        await two.send("planner", "hello too")


async def _rows(admin: Visitor, **query: str) -> list[str]:
    """Return the kinds of the events on a page, as they stand there."""
    text = "&".join(f"{name}={value}" for name, value in query.items())
    page = await admin.get(f"/audit?{text}")
    assert page.status == 200, page.text
    return [part.split("<")[0] for part in page.html.split('data-label="Kind"><span class="word">')[1:]]


async def test_the_log_is_narrowed_down_by_kind_agent_actor_and_time(space: Space) -> None:
    await _talk(space)
    async with visitor(space) as admin:
        assert await _rows(admin, action="message.") == ["message.sent"] * 2
        assert await _rows(admin, action="message.", actor="planner") == ["message.sent"]
        assert await _rows(admin, action="agent.", agent="writer") == ["agent.created"]
        assert "agent.created" in await _rows(admin, actor="admin")
        assert await _rows(admin, to="2020-01-01T00:00") == []
        assert len(await _rows(admin, **{"from": "2020-01-01T00:00", "action": "agent."})) == 2
        newest, oldest = await _rows(admin), await _rows(admin, oldest="1")
        assert newest == oldest[::-1]
        page = await admin.get("/audit?action=message.&actor=planner")
        shown = form(page, "/audit")
        assert (shown["action"], shown["actor"]) == ("message.", "planner")


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("from=yesterday", 400, "must be a time"),
        ("agent=nobody", 404, "nobody"),
        ("actor=nobody", 404, "nobody"),
        ("action=" + "x" * 65, 400, "64"),
        ("page=nonsense", 400, "page"),
    ],
)
async def test_a_filter_that_cannot_be_is_said_in_words(
    space: Space, query: str, status: int, said: str
) -> None:
    async with visitor(space) as admin:
        page = await admin.get(f"/audit?{query}")
        assert page.status == status
        assert said in page.text
        assert (await admin.get(f"/audit/export?{query.replace('page', 'from')}")).status == status


async def test_the_log_comes_a_page_at_a_time_with_its_filter(space: Space) -> None:
    await _talk(space, 30)
    async with visitor(space) as admin:
        page = await admin.get("/audit?action=message.sent")
        assert page.html.count('data-label="Kind"') == 50
        rest = page.html.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
        assert "action=message.sent" in rest
        assert (await admin.get(rest)).html.count('data-label="Kind"') == 10


async def test_the_export_is_what_the_command_writes(space: Space, mesh: MeshProcess) -> None:
    await _talk(space, 3)
    async with visitor(space) as admin:
        answer = await admin.get("/audit/export?action=message.")
    assert answer.status == 200
    assert answer.headers["Content-Disposition"] == 'attachment; filename="audit.jsonl"'
    assert answer.headers["Content-Type"] == "application/jsonl"
    found = [json.loads(line) for line in answer.html.splitlines()]
    written = mesh.hopline("audit", "export", "--action", "message.", "--workspace", space.name)
    assert found == [json.loads(line) for line in written.stdout.splitlines()]
    assert len(found) == 6


async def test_the_export_shows_a_person_what_they_may_see(space: Space) -> None:
    await _talk(space)
    token = await space.person("zoe")
    grant = identity_pb2.GrantRoleRequest(user="zoe", agent="writer", role=identity_pb2.ROLE_VIEWER)
    await space.admin.identities.GrantRole(grant)
    async with visitor(space, token) as zoe:
        text = (await zoe.get("/audit/export")).html
        assert (await zoe.get("/audit/export?agent=planner")).status == 404
    events = [json.loads(line) for line in text.splitlines()]
    assert {"writer"} <= {each["actor"]["name"] for each in events}
    assert all(each["action"] != "agent.created" or each["agent_id"] for each in events)


async def test_a_long_export_holds_one_page_in_memory(space: Space) -> None:
    reads = 0

    class Log:
        """A log of ten thousand pages."""

        async def ListEvents(self, request: pb.ListEventsRequest) -> pb.ListEventsResponse:
            nonlocal reads
            reads += 1
            more = "more" if reads < 200 else ""
            events = [pb.Event(seq=reads * 200 + number, action="x" * 500) for number in range(200)]
            return pb.ListEventsResponse(events=events, next_page_token=more)

    log: Any = Log()
    written = 0
    tracemalloc.start()
    try:
        async for part in lines(log, pb.ListEventsRequest(), await log.ListEvents(pb.ListEventsRequest())):
            written += len(part)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (reads, written > 20_000_000) == (200, True)
    assert peak < 4_000_000


async def test_an_export_that_breaks_off_is_no_whole_file() -> None:
    class Log:
        """A log whose second page cannot be read."""

        async def ListEvents(self, request: pb.ListEventsRequest) -> pb.ListEventsResponse:
            if request.page_token:
                raise HoplineError("unavailable", "gone")
            return pb.ListEventsResponse(events=[pb.Event(seq=1)], next_page_token="more")

    log: Any = Log()
    parts: AsyncIterator[bytes] = lines(
        log, pb.ListEventsRequest(), await log.ListEvents(pb.ListEventsRequest())
    )
    assert json.loads(await anext(parts))["seq"] == 1
    with pytest.raises(HoplineError):
        await anext(parts)


async def test_the_check_says_in_words_that_the_log_holds_and_what_to_keep(space: Space) -> None:
    await _talk(space)
    async with visitor(space) as admin:
        page = await fill(admin, "/audit/check", "/audit/check")
        assert page.status == 200
        assert "The log is what was written" in page.text
        head = page.html.split("The head to keep</dt><dd><code>")[1].split("<")[0]
        again = await fill(admin, "/audit/check", "/audit/check", head=head)
        assert "The log is what was written" in again.text
        forged = f"{head.split(':')[0]}:{'0' * 64}"
        wrong = await fill(admin, "/audit/check", "/audit/check", head=forged)
        assert "was rewritten, seals included" in wrong.text
        assert (await fill(admin, "/audit/check", "/audit/check", head="nonsense")).status == 400


async def test_a_long_check_goes_on_from_where_it_came_to(space: Space) -> None:
    await _talk(space, 4)
    async with visitor(space) as admin:
        whole = await fill(admin, "/audit/check", "/audit/check")
        head = whole.html.split("The head to keep</dt><dd><code>")[1].split("<")[0]
        fields = form(await admin.get("/audit/check"), "/audit/check")
        page = await send(admin, fields, "/audit/check", at=head, before="7")
        assert "7 events are as they were sealed." in page.text
        page = await send(admin, fields, "/audit/check", at=head, before="7", head=head)
        assert "The log is what was written" in page.text
        forged = f"{head.split(':')[0]}:{'0' * 64}"
        page = await send(admin, fields, "/audit/check", at=head, before="7", head=forged)
        assert "The log is not what was sealed" in page.text


def test_a_check_whose_time_is_over_offers_to_go_on() -> None:
    found = pb.VerifyEventsResponse(checked=500, head=pb.ChainHead(seq=500, hash="a" * 64))
    note, ask = audit_check.told(found, 1000, "9:b")
    assert "1,500 events are as they were sealed, up to event 500." in getattr(note, "text", "")
    carried = ask.filled.form.carries  # type: ignore[union-attr]
    assert carried == {"at": f"500:{'a' * 64}", "before": "1500", "head": "9:b"}


async def test_a_log_that_was_tampered_with_is_told_with_its_place(own_mesh: MeshProcess) -> None:
    async with own_mesh.space() as space:
        await _talk(space)
        async with visitor(space) as admin:
            assert "The log is what was written" in (await fill(admin, "/audit/check", "/audit/check")).text
            with contextlib.closing(sqlite3.connect(own_mesh.data / "relay.db")) as record:
                workspace = (
                    await space.admin.workspaces.GetWorkspace(workspace_pb2.GetWorkspaceRequest())
                ).workspace.id
                record.execute(
                    "UPDATE audit_events SET action = 'x.y' WHERE workspace_id = ? AND seq = 3", (workspace,)
                )
                record.commit()
            page = await fill(admin, "/audit/check", "/audit/check")
            assert "The log is not what was sealed" in page.text
            assert "Event 3 was changed" in page.text


async def test_the_check_is_for_admins_and_needs_the_forms_token(space: Space) -> None:
    token = await space.person("olga", identity_pb2.ROLE_OPERATOR)
    async with visitor(space, token) as olga:
        assert "Check the chain" not in (await olga.get("/audit")).text
        assert (await olga.post("/audit/check")).status == 403
        assert (await olga.post("/audit/check", {"csrf": "x"})).status == 403
