"""Usage and credits: figures with their limits, in words as well as in bars."""

from __future__ import annotations

from hopline.registry.v1 import identity_pb2

from tests.support.forms import done, fill
from tests.support.mesh_process import Space
from tests.support.pages import visitor


async def test_usage_is_told_of_the_workspace_and_of_each_agent_with_when_it_is_free_again(
    space: Space,
) -> None:
    await space.policy(sent_per_day=4)
    planner, _ = await space.agents("planner", "writer")
    client = space.client(planner)
    for _ in range(3):
        await client.send("writer", "hello")
    async with visitor(space) as admin:
        page = await admin.get("/usage")
        assert "Sent today by all agents 3 of 100" in page.text
        assert "Free again: 20" in page.text
        assert page.text.split("planner")[1].split("writer")[0].startswith(" 3 of 4")
        await client.send("writer", "hello")
        one = await admin.get(f"/usage?agent={planner.id}")
        assert "Sent today 4 of 4 4 of 4 full" in one.text
        assert "Starts between two agents (30/300s)" in one.text
        assert 'high="3.2"' in one.html
        assert (await admin.get("/usage?agent=nobody")).status == 404


async def test_bars_say_in_words_what_their_colour_says(space: Space) -> None:
    await space.policy(sent_per_day=5)
    planner, _ = await space.agents("planner", "writer")
    client = space.client(planner)
    async with visitor(space) as admin:
        for used, word in ((3, ""), (4, "nearly full"), (5, "full")):
            while f"Sent today {used} of 5" not in (page := await admin.get("/usage?agent=planner")).text:
                await client.send("writer", "hello")
            gauge = page.text.split("Sent today")[1].split("Free again")[0]
            assert gauge.split("of 5")[-1].strip() == word


async def test_a_person_sees_the_usage_of_agents_that_they_may_see_alone(space: Space) -> None:
    await space.agents("planner", "writer")
    token = await space.person("zoe")
    async with visitor(space, token) as zoe:
        assert "there is none that you may see" in (await zoe.get("/usage")).text
        grant = identity_pb2.GrantRoleRequest(user="zoe", agent="writer", role=identity_pb2.ROLE_VIEWER)
        await space.admin.identities.GrantRole(grant)
        text = (await zoe.get("/usage")).text
        assert ("writer" in text, "planner" in text) == (True, False)
        hidden, missing = await zoe.get("/usage?agent=planner"), await zoe.get("/usage?agent=neverwas")
        assert (hidden.status, hidden.text) == (missing.status, missing.text)


async def test_credits_are_paid_in_by_admins_and_seen_by_viewers(space: Space) -> None:
    token = await space.person("vera", identity_pb2.ROLE_VIEWER)
    nobody = await space.person("zoe")
    await space.policy(credits="0.25")
    await space.agent("planner")
    async with visitor(space) as admin, visitor(space, token) as vera, visitor(space, nobody) as zoe:
        for wrong in ("", "0", "-1", "a lot", "1.1234567"):
            answer = await fill(admin, "/credits", "/credits", amount=wrong)
            assert answer.status == 400, wrong
        assert "12.5 paid in" in await done(admin, await fill(admin, "/credits", "/credits", amount="12.5"))
        text = (await vera.get("/credits")).text
        assert ("Balance 12.5" in text, "Pay in" in text) == (True, False)
        assert "Price of a turn 0.25" in text
        assert "Balance 12.5" in (await vera.get("/usage")).text
        assert (await zoe.get("/credits")).status == 403
