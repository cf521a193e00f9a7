"""What the inputs of this folder have found, each as the one input that shows it."""

from __future__ import annotations

import grpc
import pytest
from hopline.registry.v1.workspace_pb2 import Policy, UpdatePolicyRequest
from hopline.registry.v1.workspace_pb2_grpc import WorkspaceServiceStub

from tests.fuzz import verdicts
from tests.fuzz.ground import Ground
from tests.fuzz.wire import Answer, answers

BODY = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'


def posted(mesh: Ground, path: str, **headers: str) -> Answer:
    lines = {"Host": "127.0.0.1", **mesh.headers(), "Content-Length": str(len(BODY)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    [found] = answers(mesh.gateway, f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + BODY, 1)
    verdicts.http(found.status, found.kind, found.body)
    return found


def test_a_refusal_that_quotes_a_long_text_still_fits_into_its_trailer(mesh: Ground) -> None:
    metadata = (("authorization", f"Bearer {mesh.admin_token}"), ("hopline-workspace", mesh.workspace))
    request = UpdatePolicyRequest(policy=Policy(max_depth=3))
    request.update_mask.paths.append("é" * 33_000)
    channel = grpc.insecure_channel(mesh.mesh.endpoints["registry"])
    with channel, pytest.raises(grpc.RpcError) as refused:
        WorkspaceServiceStub(channel).UpdatePolicy(request, metadata=metadata)
    assert verdicts.grpc_error(refused.value) == "invalid_argument"


def test_a_foreign_host_is_refused_with_a_code(mesh: Ground) -> None:
    assert b'"permission_denied"' in posted(mesh, "/mcp", Host="example.org").body


def test_a_body_said_to_be_text_is_refused_with_a_word(mesh: Ground) -> None:
    found = posted(mesh, "/mcp", **{"Content-Type": "text/plain"})
    assert (found.status, b"Content-Type" in found.body) == (415, True)


def test_a_path_with_a_slash_too_many_leads_nowhere(mesh: Ground) -> None:
    assert posted(mesh, "/mcp/").status == 404
