"""The floor under every call: a bare grpc.aio server that returns what it was sent."""

from __future__ import annotations

from typing import Any

import grpc.aio
from hopline.relay.v1.message_pb2 import SendRequest

from tests.bench.load.serve import idle, run, serve

SERVICE = "bench.Echo"


async def echo(request: SendRequest, context: grpc.aio.ServicerContext[Any, Any]) -> SendRequest:
    return request


async def main() -> None:
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(
        echo, request_deserializer=SendRequest.FromString, response_serializer=SendRequest.SerializeToString
    )
    server.add_registered_method_handlers(SERVICE, {"Echo": handler})
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await serve(idle, {"target": f"127.0.0.1:{port}"})
    await server.stop(None)


if __name__ == "__main__":
    run(main)
