"""Credentials of plugins, and by which the mesh proves itself to them."""

from __future__ import annotations

import asyncio

import pytest
from hopline.common.v1.options_pb2 import PRINCIPAL_KIND_PLUGIN
from hopline.registry.v1 import plugin_pb2 as pb
from hopline.registry.v1.identity_pb2 import (
    AuthenticateRequest,
    CreateTokenRequest,
    ListTokensRequest,
    RevokeTokenRequest,
)
from hopline.registry.v1.visibility_pb2 import WatchChangesRequest
from hopline_directory import OPERATOR, VIEWER
from hopline_rpc.errors import HoplineError

from tests.registry.builders import Caller, Rig, refusal
from tests.registry.plugin_builders import Plugin, confirm, install, uninstall


async def token(caller: Caller, ref: str = "omo") -> tuple[str, str]:
    made = await caller.identity.CreateToken(CreateTokenRequest(plugin=ref, name="spare"))
    return made.info.id, made.token


async def look(caller: Caller) -> str:
    return (await caller.plugins.GetPlugin(pb.GetPluginRequest())).plugin.id


async def endpoint(rig: Rig, plugin: Plugin) -> pb.GetPluginEndpointResponse:
    request = pb.GetPluginEndpointRequest(workspace_id=plugin.answer.plugin.workspace_id, plugin_id=plugin.id)
    return await (await rig.service()).plugins.GetPluginEndpoint(request)


async def test_a_plugins_token_stands_for_the_plugin_and_no_person(rig: Rig) -> None:
    plugin = await install(rig, "oracle")
    assert plugin.caller.token.startswith("hpl_p_")
    request = AuthenticateRequest(token=plugin.caller.token)
    found = await rig.caller("").identity.Authenticate(request)
    assert (found.kind, found.principal_id, found.name) == (PRINCIPAL_KIND_PLUGIN, plugin.id, "Oh My")
    for call in (
        plugin.caller.plugins.InstallPlugin(pb.InstallPluginRequest()),
        plugin.caller.plugins.ConfirmPlugin(pb.ConfirmPluginRequest(plugin="omo")),
        plugin.caller.plugins.UninstallPlugin(pb.UninstallPluginRequest(plugin="omo")),
        plugin.caller.identity.CreateToken(CreateTokenRequest(plugin="omo")),
    ):
        assert (await refusal(call)).reason == "permission_denied"


async def test_tokens_are_rotated_without_downtime(rig: Rig) -> None:
    plugin = await install(rig)
    _, spare = await token(rig.admin)
    fresh = rig.caller(spare)
    assert await look(fresh) == await look(plugin.caller) == plugin.id
    found = await rig.admin.identity.ListTokens(ListTokensRequest(page_size=200))
    first = next(each.id for each in found.tokens if each.subject_id == plugin.id and each.name == "first")
    await rig.admin.identity.RevokeToken(RevokeTokenRequest(token_id=first))
    assert (await refusal(look(plugin.caller))).reason == "unauthenticated"
    assert await look(fresh) == plugin.id


async def test_whoever_installed_it_makes_lists_and_ends_its_tokens_and_no_other_operator_does(
    rig: Rig,
) -> None:
    alice, bob = await rig.user("alice", OPERATOR), await rig.user("bob", OPERATOR)
    plugin = await install(rig, "oracle", by=alice)
    token_id, spare = await token(alice)
    assert (await refusal(token(bob))).reason == "permission_denied"
    shown = {}
    for name, caller in (("alice", alice), ("bob", bob), ("admin", rig.admin)):
        found = (await caller.identity.ListTokens(ListTokensRequest(page_size=200))).tokens
        shown[name] = sum(each.subject_id == plugin.id for each in found)
    assert shown == {"alice": 2, "bob": 0, "admin": 2}
    missing = await refusal(bob.identity.RevokeToken(RevokeTokenRequest(token_id="tok_never")))
    error = await refusal(bob.identity.RevokeToken(RevokeTokenRequest(token_id=token_id)))
    assert error.message == missing.message.replace("tok_never", token_id)
    await alice.identity.RevokeToken(RevokeTokenRequest(token_id=token_id))
    assert (await refusal(look(rig.caller(spare)))).reason == "unauthenticated"


async def test_a_plugin_that_may_not_be_seen_gets_no_token(rig: Rig) -> None:
    await install(rig)
    stranger, viewer = await rig.user("stranger"), await rig.user("viewer", VIEWER)
    errors = [await refusal(token(stranger, ref)) for ref in ("omo", "nil")]
    assert errors[0].message.replace("omo", "nil") == errors[1].message
    assert (await refusal(token(viewer))).reason == "permission_denied"


async def test_uninstalling_ends_every_token_at_once_and_streams_with_them(rig: Rig) -> None:
    plugin = await install(rig, "oracle")
    _, spare = await token(rig.admin)
    others = [plugin.caller, rig.caller(spare)]
    for caller in others:
        await look(caller)
    await uninstall(rig.admin)
    for caller in others:
        assert (await refusal(look(caller))).reason == "unauthenticated"
    assert (await refusal(token(rig.admin))).reason == "not_found"
    again = await install(rig, "oracle")
    assert again.id != plugin.id
    assert (await refusal(look(plugin.caller))).reason == "unauthenticated"


async def test_uninstalling_races_with_calls_and_nothing_slips_through(rig: Rig) -> None:
    plugin = await install(rig, "oracle", permissions=["agents.write"])
    agent = pb.CreatePluginAgentRequest()
    agent.agent.key, agent.agent.name = "oracle", "Oracle"
    calls = [plugin.caller.plugins.CreatePluginAgent(agent) for _ in range(10)]
    found = await asyncio.gather(*calls[:5], uninstall(rig.admin), *calls[5:], return_exceptions=True)
    refused = [each for each in found if isinstance(each, BaseException)]
    assert {each.reason for each in refused if isinstance(each, HoplineError)} <= {
        "unauthenticated",
        "not_found",
    }
    assert rig.registry.directory.agents(plugin.answer.plugin.workspace_id) == ()


# -- by which the mesh proves itself ------------------------------------------------------------------


async def test_the_secret_of_an_endpoint_is_told_once_and_to_services(rig: Rig) -> None:
    plugin = await install(rig, endpoint="127.0.0.1:7500")
    secret = plugin.answer.endpoint_secret
    assert len(secret) >= 32
    found = await endpoint(rig, plugin)
    assert (found.endpoint, found.secret) == ("127.0.0.1:7500", secret)
    shown = str(await rig.admin.plugins.GetPlugin(pb.GetPluginRequest(plugin="omo")))
    assert secret not in shown
    stream = (await rig.service()).visibility.WatchChanges(WatchChangesRequest())
    told = ""
    async for part in stream:
        told += str(part)
        if part.snapshot_end:
            break
    stream.cancel()
    assert "Oh My" in told
    assert secret not in told
    request = pb.GetPluginEndpointRequest(workspace_id=plugin.answer.plugin.workspace_id, plugin_id=plugin.id)
    for caller in (rig.admin, plugin.caller):
        error = await refusal(caller.plugins.GetPluginEndpoint(request))
        assert error.reason == "permission_denied"


@pytest.mark.parametrize("how", ["without an endpoint", "not confirmed", "uninstalled", "abroad"])
async def test_what_is_not_to_be_called_has_no_endpoint(rig: Rig, how: str) -> None:
    plugin = await install(
        rig, endpoint="" if how == "without an endpoint" else "a:1", confirm=how != "not confirmed"
    )
    if how == "uninstalled":
        await uninstall(rig.admin)
    if how == "abroad":
        plugin.answer.plugin.workspace_id = "ws_other"
    assert (await refusal(endpoint(rig, plugin))).reason == "not_found"
    if how == "not confirmed":
        await confirm(rig.admin)
        assert (await endpoint(rig, plugin)).endpoint == "a:1"


async def test_a_new_secret_replaces_the_old_one(rig: Rig) -> None:
    plugin = await install(rig, endpoint="a:1")
    made = await rig.admin.plugins.RotatePluginSecret(pb.RotatePluginSecretRequest(plugin="omo"))
    assert made.endpoint_secret != plugin.answer.endpoint_secret
    assert (await endpoint(rig, plugin)).secret == made.endpoint_secret
