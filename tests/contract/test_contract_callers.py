"""Each method, called by each kind of principal, answers as its contract declares."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from hopline_rpc.auth import Authenticator
from hopline_rpc.clock import ManualClock
from hopline_rpc.errors import from_rpc_error
from hopline_rpc.ids import seeded_ids
from hopline_rpc.inprocess import InProcessServer
from hopline_rpc.interceptors import Interceptor
from hopline_rpc.principals import (
    KINDS,
    AssertionSigner,
    AssertionVerifier,
    Principal,
    PrincipalKind,
    new_signing_key,
)
from hopline_rpc.rules import UNDECLARED
from hopline_rpc.serving import Server

from tests.contract.walk import METHODS, PATHS, SERVICES, Method, registrar
from tests.quota.mesh import Mesh

MESH = "mesh-of-tests"
each_method = pytest.mark.parametrize("method", METHODS, ids=PATHS)
each_kind = pytest.mark.parametrize("kind", KINDS)


class Callers:
    """Signs an assertion for each kind of principal."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        key = new_signing_key("key-1")
        self._signer = AssertionSigner([key], MESH, self.clock)
        verifier = AssertionVerifier({"key-1": key.public()}.get, MESH, self.clock)
        self.authenticator = Authenticator(verifier, None, self.clock)

    def assertion(self, kind: PrincipalKind) -> str:
        return self._signer.sign(Principal(kind, f"{kind}_1", "ws_1", token_id=f"tok_{kind}"))


def servicer(methods: list[Method]) -> Any:
    """Return a servicer whose methods answer with an empty response."""

    def behaviour(method: Method) -> Any:
        described = method.descriptor

        async def one(self: Any, request: Any, context: Any) -> Any:
            return method.response()

        async def many(self: Any, request: Any, context: Any) -> AsyncIterator[Any]:
            yield method.response()

        return many if described.server_streaming else one

    return type("Empty", (), {method.descriptor.name: behaviour(method) for method in methods})()


async def outcome(channel: Any, method: Method, credential: str | None) -> str:
    """Call a method with an empty request; return the reason of its refusal, `ok` when it answered."""
    described = method.descriptor
    shape = (
        "stream" if described.client_streaming else "unary",
        "stream" if described.server_streaming else "unary",
    )
    call = getattr(channel, "_".join(shape))(
        method.path, method.request.SerializeToString, method.response.FromString, _registered_method=True
    )
    metadata = (("authorization", f"Bearer {credential}"),) if credential else ()

    async def requests() -> AsyncIterator[Any]:
        yield method.request()

    request = requests() if described.client_streaming else method.request()
    running = call(request, timeout=10, metadata=metadata)
    try:
        if described.server_streaming:
            await anext(aiter(running))
            running.cancel()
        else:
            await running
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error).reason
    return "ok"


# A request that names nothing may be refused for that; its caller was let in.
LET_IN = {"ok", "invalid_argument"}


@pytest.fixture(params=["socket", "in-process"])
async def channel(request: pytest.FixtureRequest, callers: Callers) -> AsyncIterator[Any]:
    """Every service of the contracts behind one server, with nothing but the interceptor around it."""
    server = Server(
        "all", authenticator=callers.authenticator, clock=callers.clock, ids=seeded_ids(callers.clock, 1)
    )
    for service in SERVICES:
        server.add(
            registrar(service), servicer([m for m in METHODS if m.service.full_name == service.full_name])
        )
    if request.param == "socket":
        async with grpc.aio.insecure_channel(await server.start("127.0.0.1:0")) as found:
            yield found
    else:
        yield server.channel()
    await server.stop()


@pytest.fixture
def callers() -> Callers:
    return Callers()


async def test_each_kind_of_principal_is_let_in_where_declared_and_nowhere_else(
    channel: Any, callers: Callers
) -> None:
    for method in METHODS:
        for kind in KINDS:
            found = await outcome(channel, method, callers.assertion(kind))
            if method.rules.public or kind in method.allowed:
                assert found in LET_IN, (method.path, kind)
            else:
                assert found == "permission_denied", (method.path, kind)


@pytest.mark.parametrize("credential", [None, "hpl_a_unknown", "eyJhbGciOiJub25lIn0.e30."])
async def test_without_a_good_credential_only_public_methods_answer(
    channel: Any, credential: str | None
) -> None:
    for method in METHODS:
        found = await outcome(channel, method, credential)
        assert found in LET_IN if method.rules.public else found == "unauthenticated", method.path


@each_kind
async def test_a_method_that_declares_nothing_is_refused_to_everyone(
    callers: Callers, kind: PrincipalKind
) -> None:
    method = next(m for m in METHODS if m.descriptor.name == "GetUsage")

    async def answer(request: Any, context: Any) -> Any:
        return method.response()

    handler: Any = grpc.unary_unary_rpc_method_handler(answer)
    server = InProcessServer(Interceptor("bare", callers.authenticator, seeded_ids(callers.clock, 1)))
    server.add_service(method.service.full_name, {"GetUsage": handler}, {"GetUsage": UNDECLARED})
    assert await outcome(server.channel(), method, callers.assertion(kind)) == "permission_denied"


# -- the real services -------------------------------------------------------------------------------


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    mesh = await Mesh.open(tmp_path)
    yield mesh
    await mesh.close()


@pytest.mark.parametrize("package", ["hopline.registry.v1", "hopline.quota.v1"])
async def test_the_services_themselves_refuse_an_agent_whatever_is_not_an_agents(
    mesh: Mesh, package: str
) -> None:
    _, token = await mesh.agent("planner")
    credentials = (token, await mesh.assertion(token))
    server = mesh.registry.server if package == "hopline.registry.v1" else mesh.quota.server
    inner = [m for m in METHODS if m.service.file.package == package and not m.rules.public]
    refused = [m for m in inner if "agent" not in m.allowed]
    assert refused
    for method in refused:
        for credential in credentials:
            assert await outcome(server.channel(), method, credential) == "permission_denied", method.path
        assert await outcome(server.channel(), method, None) == "unauthenticated", method.path


async def test_the_change_feed_and_admission_answer_a_service(mesh: Mesh) -> None:
    watch = next(m for m in METHODS if m.descriptor.name == "WatchChanges")
    assert await outcome(mesh.registry.server.channel(), watch, mesh.tokens["relay"]) == "ok"
    for method in METHODS:
        if method.service.name == "AdmissionService":
            assert await outcome(mesh.quota.server.channel(), method, mesh.tokens["relay"]) == "ok", (
                method.path
            )
