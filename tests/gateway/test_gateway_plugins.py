"""Plugins at the gateway: at the endpoints of their own agents, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.builders import LEGACY, Rig, call_body, era_headers


async def own(rig: Rig) -> str:
    """Give a plugin an agent, and return the plugin's token."""
    token = rig.registry.plugin("shop")
    rig.registry.agent("weather", plugin_id="plg_shop", key="weather")
    rig.registry.agent("radar")
    await rig.clock.advance(0.3)
    return token


async def post(rig: Rig, token: str, path: str, body: Any = None) -> Any:
    content = body if body is not None else call_body("ask", {"message": "Oslo?"})
    async with rig.http(token) as client:
        return await client.post(path, content=content, headers=era_headers(LEGACY))


async def test_a_plugin_asks_its_own_agent_at_its_endpoint(rig: Rig) -> None:
    token = await own(rig)
    answer = await post(rig, token, "/weather/v1/mcp")
    assert answer.status_code == 200
    assert answer.json()["result"]["structuredContent"]["reply"] == "sunny"
    seen = rig.relay.acted
    assert (seen.method, seen.principal.kind, seen.principal.id) == ("Ask", "plugin", "plg_shop")
    assert (seen.request.agent, seen.request.own_endpoint) == ("agt_weather", True)


async def test_and_by_the_sessions_api(rig: Rig) -> None:
    token = await own(rig)
    async with rig.http(token) as client:
        made = await client.post("/weather/v1/sessions", json={"message": "Oslo?"})
        listed = await client.get("/weather/v1/sessions")
    assert made.json()["reply"] == "sunny"
    assert listed.status_code == 200


@pytest.mark.parametrize("path", ["/radar/v1/mcp", "/nobody/v1/mcp"])
async def test_the_slug_of_any_other_agent_is_one_that_was_never_given_out(rig: Rig, path: str) -> None:
    token = await own(rig)
    answer = await post(rig, token, path)
    assert answer.status_code == 404
    name = path.split("/")[1]
    assert answer.json()["error"]["message"] == f"there is no agent '{name}'"


@pytest.mark.parametrize(
    "path", ["/mcp", "/weather", "/weather/v1/webhook", "/v1/x/mcp", "/weather/v1/mcp/x"]
)
async def test_everywhere_else_plugins_are_not_served(rig: Rig, path: str) -> None:
    token = await own(rig)
    answer = await post(rig, token, path)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "permission_denied"
