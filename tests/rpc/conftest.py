"""The contract, the servicer and the two channels that the tests of calls run over."""

from __future__ import annotations

import asyncio
import importlib
import importlib.resources
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.protobuf import descriptor_pb2, duration_pb2, field_mask_pb2, timestamp_pb2
from hopline_rpc.auth import Authenticator
from hopline_rpc.channels import ClientChannel, Credentials, bearer, dial
from hopline_rpc.clock import ManualClock
from hopline_rpc.ids import seeded_ids
from hopline_rpc.principals import (
    AssertionSigner,
    AssertionVerifier,
    Principal,
    PrincipalKind,
    new_signing_key,
)
from hopline_rpc.serving import Server
from protovalidate._gen.buf.validate import validate_pb

HERE = Path(__file__).parent
PROTO = HERE.parent.parent / "proto"
MESH = "mesh-of-tests"


@dataclass
class Contract:
    """The modules generated from `echo.proto`."""

    pb2: Any
    grpc: Any

    def note(self, text: str = "", **fields: Any) -> Any:
        return self.pb2.Note(text=text, **fields)


@pytest.fixture(scope="session")
def contract(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contract]:
    """Generate the test contract with the real protoc, as `libs/contracts` does."""
    out = tmp_path_factory.mktemp("echo")
    files = descriptor_pb2.FileDescriptorSet()
    for module in (descriptor_pb2, duration_pb2, field_mask_pb2, timestamp_pb2):
        files.file.add().ParseFromString(module.DESCRIPTOR.serialized_pb)
    files.file.add().ParseFromString(validate_pb.desc().proto.to_binary())
    (out / "validate.binpb").write_bytes(files.SerializeToString())
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    arguments = [
        f"--descriptor_set_in={out / 'validate.binpb'}",
        f"-I{PROTO}",
        f"-I{HERE}",
        f"-I{well_known}",
    ]
    arguments += [f"--python_out={out}", f"--grpc_python_out={out}", "echo.proto"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True)
    sys.path.insert(0, str(out))
    yield Contract(importlib.import_module("echo_pb2"), importlib.import_module("echo_pb2_grpc"))
    sys.path.remove(str(out))


Behaviour = Callable[[Any, Any], Any]


class EchoServicer:
    """Does what the test says; echoes where it says nothing."""

    def __init__(self) -> None:
        self.echo: Behaviour | None = None
        self.watch: Behaviour | None = None
        self.collect: Behaviour | None = None
        self.chat: Behaviour | None = None
        self.pour: Behaviour | None = None

    async def Echo(self, request: Any, context: Any) -> Any:
        return request if self.echo is None else await self.echo(request, context)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        if self.watch is None:
            for number in range(request.count):
                yield type(request)(text=request.text, count=number)
            return
        async for note in self.watch(request, context):
            yield note

    async def Collect(self, requests: Any, context: Any) -> Any:
        if self.collect is not None:
            return await self.collect(requests, context)
        notes = [note async for note in requests]
        return type(notes[0])(words=[note.text for note in notes])

    async def Chat(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        if self.chat is None:
            async for note in requests:
                yield note
            return
        async for note in self.chat(requests, context):
            yield note

    async def Pour(self, request: Any, context: Any) -> None:
        if self.pour is not None:
            await self.pour(request, context)
            return
        for number in range(request.count):
            await context.write(type(request)(count=number))

    async def Open(self, request: Any, context: Any) -> Any:
        return request

    async def ServicesOnly(self, request: Any, context: Any) -> Any:
        return request

    async def Undeclared(self, request: Any, context: Any) -> Any:
        return request


@dataclass
class Registry:
    """Signs assertions and knows who is revoked."""

    clock: ManualClock
    revoked: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.key = new_signing_key("key-1")
        self.signer = AssertionSigner([self.key], MESH, self.clock)
        keys = {"key-1": self.key.public()}
        self.verifier = AssertionVerifier(
            keys.get, MESH, self.clock, lambda principal: principal.token_id in self.revoked
        )
        self.authenticator = Authenticator(self.verifier, None, self.clock)

    def assertion(self, kind: PrincipalKind = "agent", identifier: str = "ag_1", **fields: Any) -> str:
        return self.signer.sign(Principal(kind, identifier, "ws_1", token_id="tok_1", **fields))


@dataclass
class Wired:
    """A running server and the ways to reach it."""

    over: str
    server: Server
    servicer: EchoServicer
    registry: Registry
    contract: Contract
    connect: Callable[[Credentials | None], Any]

    def raw(self, channel: Any = None) -> Any:
        """A stub on the bare channel: gRPC's own errors, no metadata added."""
        return self.contract.grpc.EchoServiceStub(channel or self.connect(None)._channel)

    def stub(self, assertion: str | None = None) -> Any:
        """A stub as services use it, calling as the agent `ag_1`."""
        credential = assertion or self.registry.assertion()
        return self.contract.grpc.EchoServiceStub(self.connect(bearer(credential)))

    def auth(self, assertion: str | None = None) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {assertion or self.registry.assertion()}"),)

    def note(self, text: str = "", **fields: Any) -> Any:
        return self.contract.note(text, **fields)


@pytest.fixture(params=["socket", "in-process"])
async def wired(request: pytest.FixtureRequest, contract: Contract) -> AsyncIterator[Wired]:
    """The same server over a loopback socket and inside the process."""
    clock = ManualClock()
    registry = Registry(clock)
    servicer = EchoServicer()
    server = Server("echo", authenticator=registry.authenticator, clock=clock, ids=seeded_ids(clock, 1))
    server.add(contract.grpc.add_EchoServiceServicer_to_server, servicer)
    channels: list[grpc.aio.Channel] = []
    address = await server.start("127.0.0.1:0") if request.param == "socket" else ""

    def connect(credentials: Credentials | None) -> ClientChannel:
        if address:
            channels.append(dial(address, credentials=credentials))
        else:
            channels.append(ClientChannel(server.channel(), credentials))
        found = channels[-1]
        assert isinstance(found, ClientChannel)
        return found

    yield Wired(request.param, server, servicer, registry, contract, connect)
    for channel in channels:
        await channel.close()
    await server.stop()


async def within(awaitable: Awaitable[Any], seconds: float = 10.0) -> Any:
    """Await what must come soon; a test that would hang fails instead."""
    return await asyncio.wait_for(asyncio.ensure_future(awaitable), seconds)


class World:
    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.clock = ManualClock()
        self.registry = Registry(self.clock)
        self.is_ready = True
        self.servers: list[Server] = []

    def server(self, servicer: EchoServicer | None = None, **options: Any) -> Server:
        server = Server(
            "echo",
            authenticator=self.registry.authenticator,
            clock=self.clock,
            ids=seeded_ids(self.clock, 1),
            ready=self.ready,
            **options,
        )
        server.add(self.contract.grpc.add_EchoServiceServicer_to_server, servicer or EchoServicer())
        self.servers.append(server)
        return server

    async def ready(self) -> bool:
        return self.is_ready

    async def call(self, address: str, **dialing: Any) -> str:
        credential = bearer(self.registry.assertion())
        async with dial(address, credentials=credential, **dialing) as channel:
            stub = self.contract.grpc.EchoServiceStub(channel)
            answer = await within(stub.Echo(self.contract.note("hi"), timeout=5))
            return str(answer.text)


@pytest.fixture
async def world(contract: Contract) -> AsyncIterator[World]:
    made = World(contract)
    yield made
    for server in made.servers:
        await server.stop()
