"""Credentials: exchange, life and end, who may manage whose, and nothing crosses workspaces."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hopline.common.v1.options_pb2 import PRINCIPAL_KIND_SERVICE, PRINCIPAL_KIND_USER
from hopline.registry.v1.agent_pb2 import DeleteAgentRequest, GetAgentRequest, PauseAgentRequest
from hopline.registry.v1.identity_pb2 import (
    AuthenticateRequest,
    AuthenticateResponse,
    CreateTokenRequest,
    GetKeysRequest,
    GrantRoleRequest,
    ListTokensRequest,
    RevokeTokenRequest,
    RotateKeysRequest,
    Token,
)
from hopline.registry.v1.visibility_pb2 import (
    GetSelfRequest,
    ListPeersRequest,
    WatchChangesRequest,
    WatchChangesResponse,
)
from hopline.registry.v1.workspace_pb2 import CreateWorkspaceRequest, GetWorkspaceRequest
from hopline_directory import ADMIN, OPERATOR, VIEWER, Guard
from hopline_rpc.errors import HoplineError, to_status
from hopline_rpc.principals import hash_token, new_token

from tests.registry.builders import Caller, Rig, refusal

pytestmark = pytest.mark.both_stores


async def exchange(rig: Rig, token: str, workspace: str = "") -> AuthenticateResponse:
    request = AuthenticateRequest(token=token, workspace=workspace)
    return await rig.caller("").identity.Authenticate(request)


def whole(error: HoplineError) -> Any:
    return to_status(error)


async def test_a_token_becomes_an_assertion_of_a_minute_at_most(rig: Rig) -> None:
    agent, caller = await rig.agent("Planner")
    answer = await exchange(rig, caller.token)
    assert answer.principal_id == agent.id
    assert answer.name == "Planner"
    assert answer.expires_at.seconds - rig.clock.now() <= 60
    by_assertion = rig.caller(answer.assertion)
    assert (await by_assertion.visibility.GetSelf(GetSelfRequest())).agent.id == agent.id


async def test_an_assertion_ends_with_its_minute_and_its_token_goes_on(rig: Rig) -> None:
    _, caller = await rig.agent("Planner")
    answer = await exchange(rig, caller.token)
    await rig.clock.advance(61)
    late = rig.caller(answer.assertion)
    assert (await refusal(late.visibility.GetSelf(GetSelfRequest()))).reason == "unauthenticated"
    await caller.visibility.GetSelf(GetSelfRequest())


async def test_every_bad_token_is_answered_alike_to_the_byte(rig: Rig) -> None:
    agent, caller = await rig.agent("Planner")
    short = await rig.admin.identity.CreateToken(CreateTokenRequest(agent=agent.id, expires_in_seconds=5))
    gone, leaving = await rig.agent("Leaving")
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent=gone.id))
    listed = await rig.admin.identity.ListTokens(ListTokensRequest(agent=agent.id))
    (first,) = [token for token in listed.tokens if token.name == "first"]
    await rig.admin.identity.RevokeToken(RevokeTokenRequest(token_id=first.id))
    await rig.clock.advance(5)
    bad = {
        "unknown": new_token("agent"),
        "malformed": "not a token",
        "empty": "",
        "long": "hpl_a_" + "x" * 10_000,
        "of another alphabet": "hpl_a_é😀",
        "expired": short.token,
        "revoked": caller.token,
        "of a deleted agent": leaving.token,
        "its hash": hash_token(caller.token),
        "cut short": caller.token[:-1],
    }
    answers = {}
    for name, token in bad.items():
        answers[name] = whole(await refusal(exchange(rig, token)))
        if token.isascii() and token:
            answers[f"{name}, as a caller"] = whole(
                await refusal(rig.caller(token).visibility.GetSelf(GetSelfRequest()))
            )
    assert len(set(answers.values())) == 1, answers


@pytest.mark.parametrize(("seconds", "works"), [(4.9, True), (5.0, False), (5.1, False)])
async def test_a_token_works_until_it_expires(rig: Rig, seconds: float, works: bool) -> None:
    agent, _ = await rig.agent("Planner")
    made = await rig.admin.identity.CreateToken(CreateTokenRequest(agent=agent.id, expires_in_seconds=5))
    answer = await exchange(rig, made.token)
    assert answer.expires_at.seconds <= rig.clock.now() + 5
    await rig.clock.advance(seconds)
    caller = rig.caller(made.token)
    if works:
        await caller.visibility.GetSelf(GetSelfRequest())
    else:
        assert (await refusal(caller.visibility.GetSelf(GetSelfRequest()))).reason == "unauthenticated"


async def test_several_tokens_work_at_once_so_that_rotation_needs_no_break(rig: Rig) -> None:
    agent, first = await rig.agent("Planner")
    second = rig.caller((await rig.admin.identity.CreateToken(CreateTokenRequest(agent=agent.id))).token)
    await first.visibility.GetSelf(GetSelfRequest())
    await second.visibility.GetSelf(GetSelfRequest())
    listed = await rig.admin.identity.ListTokens(ListTokensRequest(agent="planner"))
    ids = {token.name: token.id for token in listed.tokens}
    await rig.admin.identity.RevokeToken(RevokeTokenRequest(token_id=ids["first"]))
    assert (await refusal(first.visibility.GetSelf(GetSelfRequest()))).reason == "unauthenticated"
    await second.visibility.GetSelf(GetSelfRequest())


async def test_a_revoked_token_and_its_assertion_end_when_the_call_returns(rig: Rig) -> None:
    agent, caller = await rig.agent("Planner")
    assertion = rig.caller((await exchange(rig, caller.token)).assertion)
    await caller.visibility.GetSelf(GetSelfRequest())
    await assertion.visibility.GetSelf(GetSelfRequest())
    token = (await rig.admin.identity.ListTokens(ListTokensRequest(agent=agent.id))).tokens[0]
    await rig.admin.identity.RevokeToken(RevokeTokenRequest(token_id=token.id))
    for ended in (caller, assertion):
        assert (await refusal(ended.visibility.GetSelf(GetSelfRequest()))).reason == "unauthenticated"
    again = await rig.admin.identity.ListTokens(ListTokensRequest(agent=agent.id))
    assert again.tokens[0].HasField("revoked_at")
    seq = rig.registry.directory.seq
    await rig.admin.identity.RevokeToken(RevokeTokenRequest(token_id=token.id))
    assert rig.registry.directory.seq == seq


async def test_a_revocation_ends_the_streams_that_the_token_opened(rig: Rig) -> None:
    made = await rig.admin.identity.CreateToken(CreateTokenRequest(service="relay"))
    stream = rig.caller(made.token).visibility.WatchChanges(WatchChangesRequest())
    await stream.read()
    await rig.admin.identity.RevokeToken(RevokeTokenRequest(token_id=made.info.id))

    async def to_the_end() -> None:
        while True:
            await stream.read()

    assert (await refusal(to_the_end())).reason == "unauthenticated"


async def test_revoking_races_with_exchanging_and_nothing_slips_through(rig: Rig) -> None:
    for _ in range(10):
        agent, caller = await rig.agent("Racer")
        token = (await rig.admin.identity.ListTokens(ListTokensRequest(agent=agent.id))).tokens[0]
        answers = await asyncio.gather(
            rig.admin.identity.RevokeToken(RevokeTokenRequest(token_id=token.id)),
            *(exchange(rig, caller.token) for _ in range(5)),
            return_exceptions=True,
        )
        for answer in answers[1:]:
            if isinstance(answer, AuthenticateResponse):
                ended = rig.caller(answer.assertion)
                error = await refusal(ended.visibility.GetSelf(GetSelfRequest()))
                assert error.reason == "unauthenticated"
        await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent=agent.id))


async def test_pausing_races_with_exchanging_and_the_agent_may_only_read(rig: Rig) -> None:
    agent, caller = await rig.agent("Racer")
    await rig.agent("Peer")
    _, answer = await asyncio.gather(
        rig.admin.agents.PauseAgent(PauseAgentRequest(agent=agent.id)), exchange(rig, caller.token)
    )
    for paused in (caller, rig.caller(answer.assertion)):
        assert (await paused.visibility.ListPeers(ListPeersRequest())).peers == []


# --- workspaces ------------------------------------------------------------------------------------


async def test_the_installations_token_acts_as_the_admin_of_the_workspace_it_names(rig: Rig) -> None:
    other = await rig.workspace("other")
    home = (await rig.admin.visibility.GetSelf(GetSelfRequest())).workspace
    abroad = await other.visibility.GetSelf(GetSelfRequest())
    assert home.name == "default"
    assert (abroad.workspace.name, abroad.owner.name) == ("other", "admin")
    by_id = rig.caller(rig.root, abroad.workspace.id)
    assert (await by_id.visibility.GetSelf(GetSelfRequest())).workspace.name == "other"
    assert (await exchange(rig, rig.root, "other")).workspace_id == abroad.workspace.id


async def test_the_installations_token_is_told_of_a_workspace_that_is_not_there(rig: Rig) -> None:
    lost = rig.caller(rig.root, "nowhere")
    assert (await refusal(lost.visibility.GetSelf(GetSelfRequest()))).reason == "not_found"


async def test_no_other_token_crosses_workspaces_and_the_answer_tells_nothing(rig: Rig) -> None:
    other = await rig.workspace("other")
    alice = await rig.user("Alice", ADMIN)
    _, planner = await rig.agent("Planner")
    _, foreign = await rig.agent("Foreign", other)
    mesh = await rig.service("mesh")
    bad = await refusal(exchange(rig, new_token("user")))
    for token in (alice.token, planner.token, mesh.token):
        for workspace in ("other", "nowhere"):
            assert whole(await refusal(exchange(rig, token, workspace))) == whole(bad)
    assert whole(await refusal(exchange(rig, foreign.token, "default"))) == whole(bad)
    home = (await rig.admin.visibility.GetSelf(GetSelfRequest())).workspace
    for own in ("default", home.id):
        assert (await exchange(rig, alice.token, own)).workspace_id == home.id


async def test_a_caller_cannot_name_itself_somebody_else(rig: Rig) -> None:
    agent, planner = await rig.agent("Planner")
    other, _ = await rig.agent("Other")
    mesh = await rig.service("mesh")
    forged = rig.caller(planner.token, subject=(await exchange(rig, mesh.token)).assertion)
    assert (await refusal(forged.visibility.GetSelf(GetSelfRequest()))).reason == "permission_denied"
    claims = rig.caller(planner.token, agent=other.id, user="admin")
    assert (await claims.visibility.GetSelf(GetSelfRequest())).agent.id == agent.id


async def test_a_service_asks_for_the_workspace_of_its_subject(rig: Rig) -> None:
    _, planner = await rig.agent("Planner")
    mesh = await rig.service("mesh")
    assertion = (await exchange(rig, planner.token)).assertion
    asking = rig.caller(mesh.token, subject=assertion)
    assert (await asking.workspaces.GetWorkspace(GetWorkspaceRequest())).workspace.name == "default"
    alone = await refusal(mesh.workspaces.GetWorkspace(GetWorkspaceRequest()))
    assert alone.reason == "failed_precondition"


async def test_the_tokens_of_the_last_start_end_when_new_ones_are_made(rig: Rig) -> None:
    first = await rig.service("mesh")
    other = await rig.service("quota")
    second = await rig.service("mesh")
    assert await watches(second)
    ended = first.visibility.WatchChanges(WatchChangesRequest())
    assert (await refusal(ended.read())).reason == "unauthenticated"
    assert await watches(other)


async def watches(caller: Caller) -> bool:
    stream = caller.visibility.WatchChanges(WatchChangesRequest())
    first = await stream.read()
    stream.cancel()
    return isinstance(first, WatchChangesResponse) and first.snapshot


# --- who may manage whose --------------------------------------------------------------------------


async def manage(rig: Rig) -> dict[str, Caller]:
    people = {
        "nobody": await rig.user("Nobody"),
        "viewer": await rig.user("Viewer", VIEWER),
        "operator": await rig.user("Operator", OPERATOR),
        "admin": await rig.user("Boss", ADMIN),
        "installation": rig.admin,
    }
    people["owner"] = await rig.user("Owner", OPERATOR)
    await rig.agent("Planner", people["owner"])
    people["agents admin"] = await rig.user("Helper")
    await rig.admin.identity.GrantRole(GrantRoleRequest(user="Helper", agent="planner", role=ADMIN))  # type: ignore[arg-type]
    people["agents viewer"] = await rig.user("Watcher")
    await rig.admin.identity.GrantRole(GrantRoleRequest(user="Watcher", agent="planner", role=VIEWER))  # type: ignore[arg-type]
    return people


async def outcome(call: Any) -> str:
    try:
        await call
    except HoplineError as error:
        return error.reason
    return "ok"


async def test_who_may_make_tokens_for_whom(rig: Rig) -> None:
    people = await manage(rig)
    table = {}
    for name, caller in people.items():
        create = caller.identity.CreateToken
        table[name] = (
            await outcome(create(CreateTokenRequest(agent="planner"))),
            await outcome(create(CreateTokenRequest(user="Owner"))),
            await outcome(create(CreateTokenRequest(service="relay"))),
        )
    no, hidden, ok = "permission_denied", "not_found", "ok"
    assert table == {
        "nobody": (hidden, no, no),
        "viewer": (no, no, no),
        "operator": (no, no, no),
        "admin": (ok, ok, no),
        "installation": (ok, ok, ok),
        "owner": (ok, ok, no),
        "agents admin": (ok, no, no),
        "agents viewer": (no, no, no),
    }


async def test_tokens_that_a_caller_may_not_manage_are_as_if_they_were_not_there(rig: Rig) -> None:
    people = await manage(rig)
    await rig.service("relay")
    listed = (await rig.admin.identity.ListTokens(ListTokensRequest())).tokens
    subjects = {}
    for name, caller in people.items():
        found = (await caller.identity.ListTokens(ListTokensRequest())).tokens
        subjects[name] = len(found)
        hidden = [token for token in listed if token.id not in {each.id for each in found}]
        for token in hidden:
            missing = await refusal(caller.identity.RevokeToken(RevokeTokenRequest(token_id=token.id)))
            never = await refusal(caller.identity.RevokeToken(RevokeTokenRequest(token_id="tok_never")))
            assert missing.message == never.message.replace("tok_never", token.id)
    # Seven people, the agent, the service and the installation.
    assert subjects == {
        "nobody": 1,
        "viewer": 1,
        "operator": 1,
        "admin": 8,
        "installation": 10,
        "owner": 2,
        "agents admin": 2,
        "agents viewer": 1,
    }


async def test_tokens_page_in_a_stable_order(rig: Rig) -> None:
    for number in range(7):
        await rig.user(f"User {number}")
    everything = (await rig.admin.identity.ListTokens(ListTokensRequest())).tokens
    paged: list[Token] = []
    token = ""
    while True:
        page = await rig.admin.identity.ListTokens(ListTokensRequest(page_size=3, page_token=token))
        assert len(page.tokens) <= 3
        paged += page.tokens
        token = page.next_page_token
        if not token:
            break
    assert paged == list(everything)
    assert len(paged) == 8


async def test_the_installations_token_is_not_revoked_by_a_call(rig: Rig) -> None:
    boss = await rig.user("Boss", ADMIN)
    listed = (await rig.admin.identity.ListTokens(ListTokensRequest())).tokens
    (token,) = [each for each in listed if each.name == "installation"]
    request = RevokeTokenRequest(token_id=token.id)
    assert (await refusal(boss.identity.RevokeToken(request))).reason == "not_found"
    error = await refusal(rig.admin.identity.RevokeToken(request))
    assert error.reason == "failed_precondition"
    assert "admin.token" in error.message


async def test_the_token_that_an_embedded_mesh_works_with_is_not_revoked_and_the_last_one_is(
    rig: Rig,
) -> None:
    held = await rig.service("embedded")
    listed = (await rig.admin.identity.ListTokens(ListTokensRequest())).tokens
    [own] = [each for each in listed if each.kind == PRINCIPAL_KIND_SERVICE]
    error = await refusal(rig.admin.identity.RevokeToken(RevokeTokenRequest(token_id=own.id)))
    assert error.reason == "failed_precondition"
    assert "start the mesh again" in error.message
    await exchange(rig, held.token)
    rig = await rig.reopen()  # as the services of a mesh of several processes: nobody works with it now
    await rig.admin.identity.RevokeToken(RevokeTokenRequest(token_id=own.id))
    assert (await refusal(exchange(rig, held.token))).reason == "unauthenticated"
    await rig.registry.close()


async def test_a_further_token_of_the_admin_does_not_cross_workspaces(rig: Rig) -> None:
    await rig.workspace("other")
    made = await rig.admin.identity.CreateToken(CreateTokenRequest(user="admin"))
    assert made.info.kind == PRINCIPAL_KIND_USER
    assert (await refusal(exchange(rig, made.token, "other"))).reason == "unauthenticated"
    plain = rig.caller(made.token)
    error = await refusal(plain.workspaces.CreateWorkspace(CreateWorkspaceRequest(name="third")))
    assert error.reason == "permission_denied"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "subject"),
        ({"service": "Relay!"}, "service"),
        ({"user": "admin", "name": "two\nlines"}, "name"),
        ({"user": "admin", "expires_in_seconds": 315_360_001}, "expires_in_seconds"),
    ],
)
async def test_a_bad_request_for_a_token_names_the_field(
    rig: Rig, fields: dict[str, Any], field: str
) -> None:
    error = await refusal(rig.admin.identity.CreateToken(CreateTokenRequest(**fields)))
    assert error.reason == "invalid_argument"
    assert field in error.message


async def test_a_secret_is_shown_once_and_stored_nowhere(rig: Rig) -> None:
    agent, _ = await rig.agent("Planner")
    made = await rig.admin.identity.CreateToken(CreateTokenRequest(agent=agent.id, name="ci"))
    stored = b"".join(file.read_bytes() for file in rig.folder.iterdir() if "registry" in file.name)
    assert made.token.encode() not in stored
    listed = await rig.admin.identity.ListTokens(ListTokensRequest(agent=agent.id))
    assert made.token not in str(listed)


# --- keys ------------------------------------------------------------------------------------------


async def kids(rig: Rig) -> list[str]:
    return [key.kid for key in (await rig.caller("").identity.GetKeys(GetKeysRequest())).keys]


async def test_a_new_key_is_published_before_it_signs_and_the_old_one_kept_a_while(rig: Rig) -> None:
    _, caller = await rig.agent("Planner")
    (old,) = await kids(rig)
    rotated = await rig.admin.identity.RotateKeys(RotateKeysRequest())
    assert rotated.signs_from.seconds == rig.clock.now() + 60
    assert await kids(rig) == [old, rotated.kid]
    assert signed_with(await exchange(rig, caller.token)) == old
    await rig.clock.advance(59)
    last = await exchange(rig, caller.token)
    assert signed_with(last) == old
    await rig.clock.advance(1)
    assert signed_with(await exchange(rig, caller.token)) == rotated.kid
    await rig.caller(last.assertion).visibility.GetSelf(GetSelfRequest())
    await rig.clock.advance(58)
    await rig.caller(last.assertion).visibility.GetSelf(GetSelfRequest())
    assert await kids(rig) == [old, rotated.kid]
    await until_keys_are(rig, [rotated.kid])
    await caller.visibility.GetSelf(GetSelfRequest())


def signed_with(answer: AuthenticateResponse) -> str:
    import jwt

    return str(jwt.get_unverified_header(answer.assertion)["kid"])


async def until_keys_are(rig: Rig, expected: list[str]) -> None:
    """Let time pass until the upkeep, which works on a thread in between, has come to it."""
    async with asyncio.timeout(20):
        while await kids(rig) != expected:
            await rig.clock.advance(10)


async def test_a_rotation_under_way_is_not_begun_twice(rig: Rig) -> None:
    rotations = await asyncio.gather(*(rig.admin.identity.RotateKeys(RotateKeysRequest()) for _ in range(5)))
    assert len({rotation.kid for rotation in rotations}) == 1
    assert len(await kids(rig)) == 2


async def test_a_rotation_goes_on_after_a_restart(rig: Rig) -> None:
    rotated = await rig.admin.identity.RotateKeys(RotateKeysRequest())
    await rig.clock.advance(60)
    again = await rig.reopen()
    assert signed_with(await exchange(again, rig.root)) == rotated.kid
    await until_keys_are(again, [rotated.kid])
    await again.registry.close()


async def test_keys_are_rotated_while_they_are_used(rig: Rig) -> None:
    _, caller = await rig.agent("Planner")
    mesh = await rig.service("mesh")
    guard = Guard(mesh.channel, "hopline", rig.clock)
    await guard.start()
    await rig.admin.identity.RotateKeys(RotateKeysRequest())
    for _ in range(30):
        answer = await exchange(rig, caller.token)
        assert (await guard.authenticator.principal(answer.assertion)).name == "Planner"
        await rig.clock.advance(5)
    await guard.close()


async def test_only_the_installation_rotates_keys(rig: Rig) -> None:
    boss = await rig.user("Boss", ADMIN)
    error = await refusal(boss.identity.RotateKeys(RotateKeysRequest()))
    assert error.reason == "permission_denied"


async def test_a_guarded_service_drops_a_revoked_caller_when_the_call_returns(rig: Rig) -> None:
    agent, caller = await rig.agent("Planner")
    mesh = await rig.service("mesh")
    guard = Guard(mesh.channel, "hopline", rig.clock)
    await guard.start()
    principal = await guard.authenticator.principal(caller.token)
    assert principal.id == agent.id
    token = (await rig.admin.identity.ListTokens(ListTokensRequest(agent=agent.id))).tokens[0]
    await rig.admin.identity.RevokeToken(RevokeTokenRequest(token_id=token.id))
    for credential in (caller.token, principal.assertion):
        assert (await refusal(guard.authenticator.principal(credential))).reason == "unauthenticated"
    await guard.close()


async def test_agents_call_no_write_of_the_registry(rig: Rig) -> None:
    _, planner = await rig.agent("Planner")
    for call in (
        planner.agents.GetAgent(GetAgentRequest(agent="planner")),
        planner.identity.CreateToken(CreateTokenRequest(agent="planner")),
        planner.workspaces.CreateWorkspace(CreateWorkspaceRequest(name="x")),
    ):
        assert (await refusal(call)).reason == "permission_denied"
    stream = planner.visibility.WatchChanges(WatchChangesRequest())
    assert (await refusal(stream.read())).reason == "permission_denied"
    person = rig.admin.visibility.WatchChanges(WatchChangesRequest())
    assert (await refusal(person.read())).reason == "permission_denied"
