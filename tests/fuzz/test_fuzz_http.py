"""The HTTP listener: bytes that are hardly requests, wrong paths, and connections that break off."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import verdicts
from tests.fuzz.budget import inputs
from tests.fuzz.ground import Ground, unlike
from tests.fuzz.jsons import damaged
from tests.fuzz.wire import answers, judged, said

BODY = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","arguments":{}}}'
METHODS = st.sampled_from(
    [b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"TRACE", b"CONNECT", b"PATCH", b"PRI", b"post"]
)
TARGETS = st.sampled_from(
    [
        b"/mcp",
        b"/",
        b"//mcp",
        b"/mcp/",
        b"/mcp?x=%00",
        b"/%6dcp",
        b"/../mcp",
        b"/endpoints",
        b"/healthz",
        b"/readyz",
        b"/peer/v1/mcp",
        b"/peer/v1/sessions",
        b"/peer/v1/sessions?limit=x",
        b"/peer/v1/sessions/%00",
        b"/peer/v1/sessions/" + b"a" * 99,
        b"/nobody/v1/mcp",
        b"/%00/v1/mcp",
        b"/%ff/v1/sessions",
        b"/" + b"a" * 300 + b"/v1/mcp",
        b"/peer/v1/webhooks/orders",
        b"/peer/v1/webhooks/orders?wait=1e9",
        b"/%00/v1/webhooks/%ff",
        b"//v1/webhooks/",
        b"/v1/webhooks/x",
        b"/%ff",
        b"/" + b"a" * 9000,
        b"*",
        b"http://127.0.0.1/mcp",
        b"/mcp#x",
    ]
)
HEADERS = st.sampled_from(
    [
        b"Host: example.org",
        b"Host:",
        b"Origin: https://example.org",
        b"Origin: null",
        b"Origin: http://127.0.0.1",
        b"Expect: 100-continue",
        b"Upgrade: websocket\r\nConnection: Upgrade",
        b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings",
        b"Connection: close",
        b"Authorization: Bearer",
        b"Authorization: Basic eDp5",
        b"Authorization: Bearer \xff\xfe",
        b"Authorization: Bearer hpl_a_" + b"A" * 43,
        b"Hopline-Session: \xe9",
        b"Hopline-Signature: t=1,v1=",
        b"Hopline-Signature: t=99999999999999999999,v1=" + b"a" * 64,
        b"Hopline-Signature: \xff",
        b"traceparent: 00-0-0-0",
        b"MCP-Protocol-Version: \xff",
        b"Cookie: " + b"a" * 20_000,
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: identity",
        b"Content-Length: 5",
        b"Content-Length: 99999999",
        b"Content-Length: -1",
        b"Content-Length: 0x10",
        b"Content-Length: 18446744073709551616",
        b"Content-Type: application/json; charset=utf-16",
        b"X\0: y",
        b" folded: line",
        b"no colon",
    ]
)


def request(mesh: Ground, method: bytes, target: bytes, headers: list[bytes], body: bytes) -> bytes:
    """Write a request; headers given here come after the good ones."""
    good = [f"{name}: {value}".encode() for name, value in mesh.headers().items()]
    head = b"\r\n".join([method + b" " + target + b" HTTP/1.1", b"Host: 127.0.0.1", *good, *headers])
    return head + b"\r\n\r\n" + body


def whole(mesh: Ground, body: bytes = BODY) -> bytes:
    return request(mesh, b"POST", b"/mcp", [b"Content-Length: %d" % len(body)], body)


@inputs(60)
@given(data=st.data())
def test_requests_with_anything_in_their_head_end_in_bounded_time(mesh: Ground, data: st.DataObject) -> None:
    headers = data.draw(st.lists(HEADERS, max_size=4))
    raw = request(
        mesh, data.draw(METHODS), data.draw(TARGETS), headers, data.draw(st.just(BODY) | st.just(b""))
    )
    verdicts.no_inside(unlike(said(mesh.gateway, raw)), unlike(raw))
    mesh.unharmed()


@inputs(60)
@given(data=st.data())
def test_damaged_bytes_end_in_bounded_time(mesh: Ground, data: st.DataObject) -> None:
    raw = data.draw(damaged(st.just(whole(mesh))) | st.binary(max_size=300))
    verdicts.no_inside(unlike(said(mesh.gateway, raw)), unlike(raw))
    mesh.unharmed()


@inputs(30)
@given(data=st.data())
def test_paths_and_methods_with_a_good_head_get_a_clean_answer(mesh: Ground, data: st.DataObject) -> None:
    method = data.draw(st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH"]))
    target = data.draw(TARGETS.filter(lambda each: each.startswith(b"/") and len(each) < 100))
    hosts = [b"Host: example.org", b"Origin: https://example.org", b"Authorization: Bearer x", b"X: y"]
    good = [f"{name}: {value}".encode() for name, value in mesh.headers().items()]
    lines = {
        each.partition(b":")[0]: each
        for each in [b"Host: 127.0.0.1", *good, data.draw(st.sampled_from(hosts))]
    }
    length = b"Content-Length: %d" % len(BODY)
    raw = b"\r\n".join([method + b" " + target + b" HTTP/1.1", *lines.values(), length, b"", BODY])
    [found] = answers(mesh.gateway, raw, 1)
    judged(found, unlike(raw))
    mesh.unharmed()


@inputs(15)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    end=st.sampled_from([b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n"]),
)
def test_chunked_bodies_are_read_whole(mesh: Ground, sizes: list[int], end: bytes) -> None:
    chunks, rest = [], BODY
    for size in [*sizes, len(BODY)]:
        part, rest = rest[:size], rest[size:]
        if part:
            chunks.append(b"%x\r\n%s\r\n" % (len(part), part))
    raw = request(mesh, b"POST", b"/mcp", [b"Transfer-Encoding: chunked"], b"".join(chunks) + end)
    [found] = answers(mesh.gateway, raw, 1)
    assert found.status == 200
    assert b'"isError":true' not in found.body
    mesh.unharmed()


@inputs(10)
@given(data=st.data())
def test_pipelined_requests_are_answered_each_and_in_order(mesh: Ground, data: st.DataObject) -> None:
    bodies = st.sampled_from([BODY, b"{", b"[]", b'{"jsonrpc":"2.0","id":2,"method":"ping"}'])
    drawn = data.draw(st.lists(bodies, min_size=1, max_size=20))
    found = answers(mesh.gateway, b"".join(whole(mesh, each) for each in drawn), len(drawn))
    assert [each.status for each in found] == [200 if len(body) > 5 else 400 for body in drawn]
    for each in found:
        judged(each, "")
    mesh.unharmed()


@pytest.mark.parametrize("size", [0, 1, 100, len(BODY) - 1])
def test_a_body_that_breaks_off_leaves_the_mesh_serving(mesh: Ground, size: int) -> None:
    assert said(mesh.gateway, whole(mesh)[: size - len(BODY)]) == b""
    mesh.serves()
