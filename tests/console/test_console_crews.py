"""Crews: a file is uploaded, its plan is shown, and just that is done, or nothing."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from hopline.registry.v1 import crew_pb2 as pb
from hopline_console.uploads import MOST_BYTES

from tests.support.forms import Fields, done, form, send
from tests.support.mesh_process import Space
from tests.support.pages import Answer, Visitor, visitor

FILE = """\
crew: research
members:
  - {key: lead, name: Planner, lead: true}
  - key: librarian
    description: Finds sources.
    instructions: |
      First line.
      Second line, with "quotes" and <tags>.
    group_only: true
"""


async def _upload(visitor: Visitor, text: str | bytes, **more: str) -> Answer:
    """Send a file as a browser does."""
    data = aiohttp.FormData()
    for name, value in {**form(await visitor.get("/crews"), "/crews/plan"), **more}.items():
        if name != "file":
            data.add_field(name, value)
    raw = text.encode() if isinstance(text, str) else text
    data.add_field("file", raw, filename="crew.yaml", content_type="application/yaml")
    return await _post(visitor, "/crews/plan", data)


async def _carry_out(visitor: Visitor, fields: Fields, **more: str) -> Answer:
    """Send the form that stands below a plan."""
    data = aiohttp.FormData()
    for name, value in {**fields, **more}.items():
        data.add_field(name, value)
    return await _post(visitor, "/crews/apply", data)


async def _post(visitor: Visitor, path: str, data: Any) -> Answer:
    url, headers = visitor.url + path, {"Origin": visitor.url}
    async with visitor.http.post(url, data=data, headers=headers, allow_redirects=False) as answer:
        return Answer(answer.status, answer.headers, await answer.text())


async def _members(space: Space) -> dict[str, str]:
    found = await space.admin.crews.ListMembers(pb.ListMembersRequest(crew="research"))
    return {each.key: each.instructions for each in found.agents}


async def test_a_plan_is_shown_and_nothing_is_done_before_it_is_confirmed(space: Space) -> None:
    async with visitor(space) as admin:
        plan = await _upload(admin, FILE)
        assert plan.status == 200
        for text in ("Crew research: the plan", "lead (lead)", "create", "librarian", "Finds sources."):
            assert text in plan.text
        assert "No crews." in (await admin.get("/crews")).text
        answer = await _carry_out(admin, form(plan, "/crews/apply"))
        assert "The crew research is as its file says: 2 changed." in await done(admin, answer)
        text = (await admin.get("/crews")).text
        assert "research" in text
        page = await admin.get("/crews/members?crew=research")
        assert ("Planner" in page.text, "subagent" in page.text) == (True, True)
        same = await _upload(admin, FILE)
        assert "There is nothing to change." in same.text
        assert "/crews/apply" not in same.html
    assert (await _members(space))["librarian"] == 'First line.\nSecond line, with "quotes" and <tags>.\n'


async def test_a_plan_that_has_become_another_meanwhile_is_not_carried_out(space: Space) -> None:
    async with visitor(space) as admin:
        plan = await _upload(admin, FILE)
        wanted = pb.ApplyCrewRequest(crew="research", members=[pb.CrewMember(key="librarian")])
        await space.admin.crews.ApplyCrew(wanted)
        refused = await _carry_out(admin, form(plan, "/crews/apply"))
        assert refused.status == 409
        assert "Nothing was changed." in refused.text
        assert form(refused, "/crews/plan")["text"].splitlines() == FILE.splitlines()
    assert set(await _members(space)) == {"librarian"}


async def test_what_is_wrong_with_a_file_is_said_with_its_lines(space: Space) -> None:
    async with visitor(space) as admin:
        answer = await _upload(admin, "crew: research\nmembers:\n  - {name: x}\n  - {key: a, colour: red}\n")
        assert answer.status == 400
        assert "crew.yaml:3: the member has no key" in answer.text
        assert "crew.yaml:4: a member has no field 'colour'" in answer.text
        nonsense = await _upload(admin, b"\xff\xfe\x00")
        assert (nonsense.status, "is no text in UTF-8" in nonsense.text) == (400, True)
        refused = await _upload(admin, "crew: r\nmembers: [{key: a, models: [" + "x" * 201 + "]}]\n")
        assert (refused.status, "crew.yaml:2" in refused.text) == (400, True)


async def test_what_the_mesh_refuses_of_a_file_is_said_there(space: Space) -> None:
    await space.policy(agents=1)
    async with visitor(space) as admin:
        answer = await _upload(admin, FILE)
        assert answer.status == 409
        assert "Nothing was changed." in answer.text


async def test_a_text_may_be_pasted_and_only_who_is_missing_be_made(space: Space) -> None:
    wanted = pb.ApplyCrewRequest(crew="research", members=[pb.CrewMember(key="librarian", name="Mine")])
    await space.admin.crews.ApplyCrew(wanted)
    async with visitor(space) as admin:
        fields = form(await admin.get("/crews"), "/crews/plan")
        plan = await send(admin, fields, "/crews/plan", text=FILE.replace("\n", "\r\n"), only_missing="1")
        assert "kept" in plan.text
        await done(admin, await _carry_out(admin, form(plan, "/crews/apply")))
    assert (await _members(space))["librarian"] == ""


@pytest.mark.parametrize(
    ("size", "status"), [(MOST_BYTES - 1, 200), (MOST_BYTES, 200), (MOST_BYTES + 1, 400)]
)
async def test_a_file_may_have_180_kib_and_no_more(space: Space, size: int, status: int) -> None:
    text = FILE + "#" * (size - len(FILE))
    async with visitor(space) as admin:
        answer = await _upload(admin, text)
        assert answer.status == status
        if status == 200:
            assert (await _carry_out(admin, form(answer, "/crews/apply"))).status == 303
        else:
            assert "is longer than 180 KiB" in answer.text


async def test_neither_a_file_nor_a_text_is_a_mistake_and_so_is_a_plan_without_its_file(space: Space) -> None:
    async with visitor(space) as admin:
        answer = await _upload(admin, "")
        assert (answer.status, "names no crew" in answer.text) == (400, True)
        fields = form(await admin.get("/crews"), "/crews/plan")
        answer = await send(admin, fields, "/crews/plan", file=None)
        assert (answer.status, "is needed, or its text" in answer.text) == (400, True)
        plan = form(await _upload(admin, FILE), "/crews/apply")
        for file in ("", "no base64!", "/w=="):
            refused = await _carry_out(admin, plan, file=file)
            assert (refused.status, "did not come along" in refused.text) == (400, True)


async def test_a_body_that_is_far_too_large_is_not_read(space: Space) -> None:
    async with visitor(space) as admin:
        assert (await _upload(admin, b"x" * (2 * 1024 * 1024))).status == 413


async def test_a_crew_is_deleted_behind_a_question(space: Space) -> None:
    async with visitor(space) as admin:
        await _carry_out(admin, form(await _upload(admin, FILE), "/crews/apply"))
        page = await admin.get("/crews/members?crew=research")
        assert "All its members are deleted" in page.text
        fields = form(page, "/crews/delete")
        assert "is deleted" in await done(admin, await send(admin, fields, "/crews/delete"))
        assert (await admin.get("/crews/members?crew=research")).status == 404
