"""People, roles and tokens: who may give and take what, and what is shown of it."""

from __future__ import annotations

from hopline.registry.v1 import agent_pb2
from hopline.registry.v1 import identity_pb2 as pb

from tests.support.forms import done, fill, form, send
from tests.support.mesh_process import Space
from tests.support.pages import visitor


async def _grants(space: Space, user: str) -> dict[str, int]:
    found = await space.admin.identities.ListRoles(pb.ListRolesRequest(user=user))
    return {each.agent_slug: int(each.role) for each in found.grants}


async def test_a_person_is_made_and_their_token_signs_them_in(space: Space) -> None:
    async with visitor(space) as admin:
        fields = {**form(await admin.get("/users"), "/users"), "name": "Vera"}
        made = await send(admin, fields, "/users")
        token = made.html.split('<code class="secret" tabindex="0">')[1].split("<")[0]
        again = await send(admin, fields, "/users")
        assert "is there already" in await done(admin, again)
        taken = await fill(admin, "/users", "/users", name="Vera")
        assert (taken.status, "is taken" in taken.text) == (409, True)
        empty = await fill(admin, "/users", "/users", name=" ")
        assert (empty.status, "is needed" in empty.text) == (400, True)
    async with visitor(space, token) as vera:
        assert "Vera" in (await vera.get("/agents")).text


async def test_people_are_found_by_their_name_and_one_alone_with_their_roles(space: Space) -> None:
    for name in ("Vera", "Vernon", "Walt"):
        await space.person(name, pb.ROLE_VIEWER)
    async with visitor(space) as admin:
        page = await admin.get("/users?who=VER")
        assert "Vera" in page.text
        assert "Vernon" in page.text
        assert "Walt" in page.text  # of the roles, which are everybody's
        page = await admin.get("/users?who=vera")
        assert 'value="vera"' in page.html
        assert "viewer of Vera" in page.html
        assert "Vernon" not in page.text
        assert "Walt" not in page.text
        assert "Nobody." in (await admin.get("/users?who=%25")).text


async def test_a_role_is_given_replaced_and_taken_away(space: Space) -> None:
    await space.agent("planner")
    await space.person("vera")
    async with visitor(space) as admin:
        await done(admin, await fill(admin, "/users", "/users/roles", user="vera", role="1"))
        said = await done(
            admin, await fill(admin, "/users", "/users/roles", user="vera", role="2", agent="planner")
        )
        assert "vera is operator of planner." in said
        assert await _grants(space, "vera") == {"": 1, "planner": 2}
        page = await admin.get("/users")
        agent = (await space.admin.agents.GetAgent(agent_pb2.GetAgentRequest(agent="planner"))).agent
        taken = form(page, "/users/roles/revoke", agent=agent.id)
        # Meanwhile it has become another one: what was not seen is not taken away.
        await done(admin, await fill(admin, "/users", "/users/roles", user="vera", role="3", agent="planner"))
        await done(admin, await send(admin, taken, "/users/roles/revoke"))
        assert await _grants(space, "vera") == {"": 1, "planner": 3}
        seen = form(await admin.get("/users"), "/users/roles/revoke", agent=agent.id)
        await done(admin, await send(admin, seen, "/users/roles/revoke"))
        assert await _grants(space, "vera") == {"": 1}
        missing = await fill(admin, "/users", "/users/roles", user="nobody", role="1")
        assert (missing.status, "nobody" in missing.text) == (404, True)


async def test_who_is_admin_of_an_agent_alone_gives_roles_on_it_and_nowhere_else(space: Space) -> None:
    await space.agents("planner", "writer")
    await space.person("vera")
    token = await space.person("olga")
    for agent, role in (("planner", pb.ROLE_ADMIN), ("writer", pb.ROLE_VIEWER)):
        await space.admin.identities.GrantRole(pb.GrantRoleRequest(user="olga", agent=agent, role=role))
    async with visitor(space, token) as olga:
        page = await olga.get("/users")
        assert "A new person" not in page.text
        assert page.html.count('action="/users/roles/revoke"') == 1
        await done(olga, await fill(olga, "/users", "/users/roles", user="vera", role="1", agent="planner"))
        for agent in ("writer", ""):
            refused = await fill(olga, "/users", "/users/roles", user="vera", role="1", agent=agent)
            assert refused.status == 403
            assert "this needs the role" in refused.text
            assert form(refused, "/users/roles")["user"] == "vera"
        assert (await olga.post("/users", {"name": "x"})).status == 403
        admin = form(page, "/users/roles/revoke")
        assert (await send(olga, admin, "/users/roles/revoke", agent="", user="admin")).status == 403


async def test_where_a_person_is_told_is_set_and_shown_to_nobody(space: Space) -> None:
    await space.person("vera")
    secret, url = "sixteen bytes of it", "https://hooks.example.org/vera"
    async with visitor(space) as admin:
        short = await fill(admin, "/users", "/users/webhook", user="vera", url=url, secret="short")
        assert short.status == 400
        assert "short" not in form(short, "/users/webhook").values()
        said = await done(
            admin, await fill(admin, "/users", "/users/webhook", user="vera", url=url, secret=secret)
        )
        assert "vera is told of what their agents ask." in said
        page = await admin.get("/users")
        assert (url in page.html, secret in page.html) == (False, False)
        assert "has no webhook" in await done(
            admin, await fill(admin, "/users", "/users/webhook", user="vera")
        )


async def test_tokens_of_every_kind_are_made_and_ended(space: Space) -> None:
    await space.agent("planner")
    await space.person("vera")
    async with visitor(space) as admin:
        for kind, holder, sign in (("agent", "planner", "hpl_a_"), ("user", "vera", "hpl_u_")):
            made = await fill(admin, "/tokens", "/tokens", kind=kind, holder=holder, name=f"for {kind}")
            assert made.text.count(sign) == 1
            assert holder in made.text
        page = await admin.get("/tokens?agent=planner")
        assert ("for agent" in page.text, "for user" in page.text) == (True, False)
        tokens = (await space.admin.identities.ListTokens(pb.ListTokensRequest(agent="planner"))).tokens
        spare = next(each for each in tokens if each.name == "for agent")
        at = f"/tokens/{spare.id}/revoke"
        assert "is revoked" in await done(admin, await send(admin, form(page, at), at))
        page = await admin.get("/tokens?agent=planner")
        assert at not in page.html
        assert "revoked" in page.text
        missing = await admin.post("/tokens/tok_nothing/revoke")
        assert missing.status == 404
        unknown = await fill(admin, "/tokens", "/tokens", kind="service", holder="relay")
        assert (unknown.status, "must be one of" in unknown.text) == (400, True)


async def test_a_token_that_has_run_out_is_shown_as_over(space: Space) -> None:
    await space.agent("planner")
    request = pb.CreateTokenRequest(agent="planner", name="brief", expires_in_seconds=1)
    made = (await space.admin.identities.CreateToken(request)).info
    async with visitor(space) as admin:
        page = await admin.get("/tokens")
        ends = page.html.split("brief")[1].split("</tr>")[0]
        assert made.id in page.html
        assert "<time datetime=" in ends


async def test_a_person_without_a_role_manages_their_own_tokens_alone(space: Space) -> None:
    await space.agent("planner")
    token = await space.person("zoe")
    async with visitor(space, token) as zoe:
        page = await zoe.get("/tokens")
        assert "planner" not in page.text.split("Tokens that you may manage")[1].split("A further token")[0]
        made = await fill(zoe, "/tokens", "/tokens", kind="user", holder="zoe", name="spare")
        assert "hpl_u_" in made.text
        hidden = await fill(zoe, "/tokens", "/tokens", kind="agent", holder="planner")
        missing = await fill(zoe, "/tokens", "/tokens", kind="agent", holder="neverwas")
        assert hidden.status == missing.status == 404
        told = hidden.text.replace("planner", "neverwas")
        assert told == missing.text
