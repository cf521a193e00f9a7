"""AutoGen Core's distributed runtime: the host that agents' runtimes connect to."""

from __future__ import annotations

import socket

from autogen_ext.runtimes.grpc import GrpcWorkerAgentRuntimeHost

from tests.bench.load.serve import idle, run, serve


async def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    host = GrpcWorkerAgentRuntimeHost(address=address)
    host.start()
    await serve(idle, {"target": address})
    await host.stop(0)


if __name__ == "__main__":
    run(main)
