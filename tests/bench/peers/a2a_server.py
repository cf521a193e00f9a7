"""a2a-sdk over gRPC: an agent that makes a task of each message and completes it with an answer."""

from __future__ import annotations

from typing import Any

import grpc.aio
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import DatabaseTaskStore, InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCard
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from sqlalchemy.ext.asyncio import create_async_engine

from tests.bench.load.serve import configuration, idle, run, serve


class Answerer(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: Any) -> None:
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.add_artifact([new_text_part(context.get_user_input())])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: Any) -> None:
        raise NotImplementedError


async def main() -> None:
    database = configuration().get("database")
    store = InMemoryTaskStore()
    if database:
        store = DatabaseTaskStore(create_async_engine(f"sqlite+aiosqlite:///{database}"))
        await store.initialize()
    card = AgentCard(name="answerer", default_input_modes=["text"], default_output_modes=["text"])
    handler = DefaultRequestHandler(agent_executor=Answerer(), task_store=store, agent_card=card)
    server = grpc.aio.server()
    add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await serve(idle, {"target": f"127.0.0.1:{port}"})
    await server.stop(None)


if __name__ == "__main__":
    run(main)
