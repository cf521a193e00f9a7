"""a2a-sdk over gRPC: blocking `SendMessage` from a bare stub, so that the client costs little."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import grpc.aio
from a2a.helpers import new_text_message
from a2a.types.a2a_pb2 import Role, SendMessageRequest, TaskState
from a2a.types.a2a_pb2_grpc import A2AServiceStub

from tests.bench.load.serve import closed_loop, configuration, run, serve

TEXT: Final = "x" * 1024


async def main() -> None:
    async with grpc.aio.insecure_channel(configuration()["target"]) as channel:
        stub = A2AServiceStub(channel)

        async def ask(number: int) -> None:
            message = new_text_message(TEXT, role=Role.ROLE_USER)
            answer = await stub.SendMessage(
                SendMessageRequest(message=message), metadata=(("a2a-version", "1.0"),)
            )
            if answer.task.status.state != TaskState.TASK_STATE_COMPLETED:
                raise RuntimeError(f"not completed: {answer}")

        async def play(request: Mapping[str, Any]) -> Mapping[str, Any]:
            return await closed_loop(ask, request["outstanding"], request["seconds"])

        await serve(play)


if __name__ == "__main__":
    run(main)
