"""AutoGen Core: agent → agent → answer over its gRPC runtime, one driver on one stream, all in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from autogen_core import AgentId, MessageContext, RoutedAgent, rpc, try_get_known_serializers_for_type
from autogen_ext.runtimes.grpc import GrpcWorkerAgentRuntime

from tests.bench.load.serve import closed_loop, configuration, run, serve

TEXT: Final = "x" * 1024


@dataclass
class Question:
    text: str


class Answerer(RoutedAgent):
    def __init__(self) -> None:
        super().__init__("answers what it was asked")

    @rpc
    async def answer(self, message: Question, ctx: MessageContext) -> Question:
        return message


async def main() -> None:
    runtime = GrpcWorkerAgentRuntime(host_address=configuration()["target"])
    runtime.add_message_serializer(try_get_known_serializers_for_type(Question))
    await runtime.start()
    await Answerer.register(runtime, "answerer", Answerer)

    async def ask(number: int) -> None:
        to = AgentId("answerer", str(number))
        answer = await runtime.send_message(Question(TEXT), to, sender=AgentId("asker", str(number)))
        if answer.text != TEXT:
            raise RuntimeError("not the answer")

    async def play(request: Mapping[str, Any]) -> Mapping[str, Any]:
        return await closed_loop(ask, request["outstanding"], request["seconds"])

    await serve(play)
    await runtime.stop()


if __name__ == "__main__":
    run(main)
