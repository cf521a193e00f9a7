"""HTTP: who is let in, what a body may be, and what else there is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hopline_gateway.body import MAX_BODY
from hopline_rpc.principals import Principal, new_token

from tests.gateway.builders import LEGACY, MODERN, WORKSPACE, Rig, call_body, era_headers, running

PATHS = ["/mcp", "/mcp/", "/", "/weather/v1/mcp", "/nothing", "/endpoints/", "/healthz/x", "/../mcp"]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT"])
async def test_without_a_valid_credential_every_path_answers_the_same(rig: Rig, method: str) -> None:
    answers = set()
    for token in (new_token("agent"), "nonsense", "Bearer", "x" * 5000):
        async with rig.http(token=token) as client:
            for path in PATHS:
                response = await client.request(method, path, content=b"{}")
                kept = {name: value for name, value in response.headers.items() if name != "date"}
                answers.add((response.status_code, response.content, json.dumps(kept)))
    [(status, body, headers)] = answers
    assert status == 401
    assert json.loads(body)["error"]["code"] == "unauthenticated"
    assert json.loads(headers)["www-authenticate"] == "Bearer"


async def test_a_request_without_any_authorization_header_is_refused_too(rig: Rig) -> None:
    async with rig.http() as client:
        del client.headers["Authorization"]
        assert (await client.post("/mcp")).status_code == 401


async def test_a_token_is_exchanged_once_and_refused_as_soon_as_it_is_revoked(rig: Rig) -> None:
    body = call_body("whoami", {})
    async with rig.http(**era_headers(LEGACY)) as client:
        for _ in range(3):
            assert (await client.post("/mcp", content=body)).status_code == 200
        assert rig.registry.exchanges == 1
        await rig.registry.revoke(rig.token)
        assert (await client.post("/mcp", content=body)).status_code == 401


async def test_an_expired_assertion_is_refused_and_a_valid_one_accepted(rig: Rig) -> None:
    principal = Principal("agent", "agt_me", WORKSPACE, "me", "tok_x")
    assertion = rig.registry.signer.sign(principal)
    async with rig.http(assertion, **era_headers(LEGACY)) as client:
        assert (await client.post("/mcp", content=call_body("whoami", {}))).status_code == 200
        await rig.clock.advance(61)
        assert (await client.post("/mcp", content=call_body("whoami", {}))).status_code == 401


@pytest.mark.parametrize("kind", ["service", "plugin"])
async def test_services_and_plugins_are_not_served(rig: Rig, kind: str) -> None:
    assertion = rig.registry.signer.sign(Principal(kind, "x", WORKSPACE, "x", "t"))  # type: ignore[arg-type]
    async with rig.http(assertion) as client:
        response = await client.post("/mcp")
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "permission_denied"


@pytest.mark.parametrize(
    "claim",
    [
        {"Hopline-Agent": "agt_other"},
        {"Hopline-Subject": "agt_other"},
        {"X-Forwarded-User": "agt_other"},
        {"Hopline-Workspace": "another"},
    ],
)
async def test_no_header_makes_a_caller_someone_else(rig: Rig, claim: dict[str, str]) -> None:
    async with rig.http(**era_headers(LEGACY), **claim) as client:
        response = await client.post("/mcp", content=call_body("done", {"message_id": "msg_1"}))
    if response.status_code == 200:
        assert rig.relay.last.principal.id == "agt_me"
        assert rig.relay.last.principal.workspace_id == WORKSPACE
    else:
        assert "Hopline-Subject" in claim
        assert response.status_code in {401, 403}


async def test_no_argument_makes_a_caller_someone_else(rig: Rig) -> None:
    arguments = {"agent": "weather", "text": "hi", "from": "agt_other"}
    response = await rig.post(call_body("send_message", arguments))
    assert "from: unknown argument" in response.json()["result"]["content"][0]["text"]


async def test_the_session_header_binds_a_session(rig: Rig) -> None:
    await rig.post(call_body("done", {"message_id": "msg_1"}), **{"Hopline-Session": "ses_7"})
    assert rig.relay.last.request.caller_session_id == "ses_7"
    await rig.post(call_body("done", {"message_id": "msg_1"}))
    assert rig.relay.last.request.caller_session_id == ""


@pytest.mark.parametrize(
    ("session", "status"), [("s" * 64, 200), ("s" * 65, 400), ("ses\t1", 400), ("é", 400)]
)
async def test_a_session_header_that_is_no_id_is_refused(rig: Rig, session: str, status: int) -> None:
    async with rig.http(**era_headers(LEGACY)) as client:
        headers = {"Hopline-Session": session.encode()}
        response = await client.post(
            "/mcp",
            content=call_body("done", {"message_id": "m"}),
            headers=headers,  # type: ignore[arg-type]
        )
    assert response.status_code == status
    if status == 400:
        assert "Hopline-Session" in response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/mcp", "/endpoints", "/healthz", "/nothing"])
async def test_a_foreign_host_or_origin_is_refused_on_every_path(rig: Rig, path: str) -> None:
    async with rig.http() as client:
        host = await client.post(path, headers={"Host": "evil.example"})
        origin = await client.post(path, headers={"Origin": "https://evil.example"})
    assert (host.status_code, origin.status_code) == (421, 403)


@pytest.mark.parametrize("origin", ["http://127.0.0.1:7404", "http://localhost", "https://mesh.example.org"])
async def test_loopback_and_the_public_url_are_accepted(origin: str) -> None:
    async with running({"public_url": "https://mesh.example.org"}) as rig, rig.http() as client:
        headers = {"Host": origin.partition("//")[2], "Origin": origin}
        assert (await client.get("/healthz", headers=headers)).status_code == 200


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH"])
async def test_mcp_is_posted_and_nothing_else(rig: Rig, method: str) -> None:
    async with rig.http(Accept="text/event-stream") as client:
        response = await client.request(method, "/mcp")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"


async def test_an_unknown_path_is_not_found_for_whoever_is_let_in(rig: Rig) -> None:
    async with rig.http() as client:
        response = await client.get("/nothing")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


DEEP = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":' + "[" * 149 + "]" * 149 + "}}"


BAD_BODIES = [
    (b"", "not JSON"),
    (b"hello", "not JSON"),
    (b'{"jsonrpc": "2.0", "id": 1', "not JSON"),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', "NaN is no JSON value"),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"9" * 5000 + b"}}", "too many digits"),
    (b"\xff\xfe{}", "not UTF-8 (byte 0)"),
    (b'{"x": "\xed\xa0\x80"}', "not UTF-8"),
    (b"[" * 100_000, "nested deeper"),
    (DEEP.encode(), "nested deeper than 150 levels"),
    (b"[]", "one JSON-RPC object; batches are not served"),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', "batches are not served"),
    (b'"text"', "one JSON-RPC object"),
    (b'{"id":1,"method":"ping"}', 'jsonrpc must be "2.0"'),
    (b'{"jsonrpc":"2.0","id":1}', "method must be a string"),
    (b'{"jsonrpc":"2.0","id":1,"method":7}', "method must be a string"),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', "id must be"),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', "id must be"),
    (b'{"jsonrpc":"2.0","id":1,"result":{}}', "takes no responses"),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', "params must be an object"),
]


async def test_a_bad_body_is_an_error_in_our_words(rig: Rig, mode: str) -> None:
    for body, says in BAD_BODIES:
        response = await rig.post(body, mode)
        assert response.status_code == 400
        error = response.json()["error"]
        assert says in error["message"]
        assert error["code"] in {-32700, -32600}
        assert "pydantic" not in response.text


async def test_a_body_at_4_mib_is_read_and_one_byte_more_is_not(rig: Rig, mode: str) -> None:
    frame = call_body("whoami", {"x": ""}, mode)
    at = frame.replace('"x": ""', f'"x": "{"x" * (MAX_BODY - len(frame))}"')
    assert len(at) == MAX_BODY
    assert (await rig.post(at, mode, "whoami")).status_code == 200
    assert (await rig.post(at + " ", mode, "whoami")).status_code == 413


async def test_a_chunked_body_is_cut_off_at_the_same_limit(rig: Rig) -> None:
    async def endless() -> Any:
        for _ in range(100):
            yield b" " * 65_536

    async with rig.http(**era_headers(LEGACY)) as client:
        response = await client.post("/mcp", content=endless())
    assert response.status_code == 413
    assert "4 MiB" in response.json()["error"]["message"]


async def test_a_body_that_does_not_come_is_given_up() -> None:
    async with running({"body_seconds": "0.05"}) as rig:
        port = int(rig.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {rig.token}\r\n"
            "Content-Type: application/json\r\nAccept: */*\r\nContent-Length: 10\r\n\r\n{"
        )
        writer.write(head.encode())
        status = await asyncio.wait_for(reader.readline(), 5)
        writer.close()
    assert b"408" in status


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize(("header", "status"), [("Content-Type", 415), ("Accept", 406)])
async def test_a_body_or_an_answer_that_is_no_json_is_refused_by_name(
    rig: Rig, header: str, status: int, version: str
) -> None:
    async with rig.http(**{**era_headers(version, "whoami"), header: "text/plain"}) as client:
        response = await client.post("/mcp", content=call_body("whoami", {}, version))
    assert response.status_code == status
    assert header in response.json()["error"]["message"]


async def test_refusals_outside_mcp_are_json_with_a_code_too(rig: Rig) -> None:
    async with rig.http() as client:
        method = await client.put("/mcp")
        host = await client.post("/mcp", headers={"Host": "evil.example"})
        origin = await client.post("/mcp", headers={"Origin": "https://evil.example"})
    codes = [found.json()["error"]["code"] for found in (method, host, origin)]
    assert codes == ["failed_precondition", "permission_denied", "permission_denied"]
    assert (method.status_code, method.headers["Allow"]) == (405, "POST")


async def test_a_modern_header_that_contradicts_the_body_is_refused(rig: Rig) -> None:
    response = await rig.post(call_body("ask", {}, "2026-07-28"), "2026-07-28", "whoami")
    assert response.status_code == 400
    assert "error" in response.json()


async def test_an_unknown_revision_is_told_which_ones_there_are(rig: Rig) -> None:
    body = call_body("whoami", {}, MODERN).replace(MODERN, "1999-01-01")
    response = await rig.post(body, MODERN, "whoami", **{"MCP-Protocol-Version": "1999-01-01"})
    assert response.status_code == 400
    assert "2026-07-28" in response.text


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_earlier_revision_is_served_without_a_session(rig: Rig, version: str) -> None:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    opened = await rig.post(json.dumps(hello), **{"MCP-Protocol-Version": version})
    assert opened.json()["result"]["protocolVersion"] == version
    assert "mcp-session-id" not in opened.headers
    called = await rig.post(call_body("whoami", {}), **{"MCP-Protocol-Version": version})
    assert called.json()["result"]["structuredContent"]["agent"]["id"] == "agt_me"


async def test_endpoints_are_public_and_come_from_the_settings() -> None:
    settings = {"registry": "r:1", "relay": "l:2", "quota": "q:3"}
    async with running(settings) as rig, rig.http(token="nonsense") as client:
        assert (await client.get("/endpoints")).json() == {
            "gateway": rig.url,
            "registry": "r:1",
            "relay": "l:2",
            "quota": "q:3",
            "console": None,
            "single": False,
        }


async def test_endpoints_say_that_paths_have_no_slug_and_not_whose_they_are() -> None:
    async with running({"single": "weather-agent"}) as rig, rig.http(token="nonsense") as client:
        answer = await client.get("/endpoints")
    assert answer.json()["single"] is True
    assert "weather-agent" not in answer.text


async def test_endpoints_follow_what_the_mesh_wrote_and_name_the_public_url(tmp_path: Path) -> None:
    async with running({"public_url": "https://mesh.example.org"}, tmp_path) as rig, rig.http() as client:
        written = {"gateway": "http://127.0.0.1:1", "relay": "127.0.0.1:9", "console": None, "pid": 7}
        (tmp_path / "endpoints.json").write_text(json.dumps(written))
        found = (await client.get("/endpoints")).json()
        assert found["relay"] == "127.0.0.1:9"
        assert found["gateway"] == "https://mesh.example.org"
        assert "pid" not in found
        (tmp_path / "endpoints.json").write_text("{")
        assert (await client.get("/endpoints")).json()["relay"] == "127.0.0.1:7402"


async def test_health_and_readiness_need_no_credential(rig: Rig) -> None:
    async with rig.http(token="nonsense") as client:
        assert (await client.get("/healthz")).text == "ok"
        assert (await client.get("/readyz")).status_code == 200


async def test_a_gateway_that_lost_the_registry_is_not_ready_and_lets_nobody_in(rig: Rig) -> None:
    async with rig.http(**era_headers(LEGACY)) as client:
        await rig.servers[0].stop()
        await rig.clock.advance(0.6)
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503
        asking = asyncio.create_task(client.post("/mcp", content=call_body("whoami", {})))
        while not asking.done():
            await rig.clock.advance(0.5)
        response = asking.result()
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "unavailable"
    assert response.headers["retry-after"] == "1"
