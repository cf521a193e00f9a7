"""The calls of its tools that a worker runs: each ends with the stream that it came by."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline_rpc.errors import HoplineError

from hopline_client.tool_threads import ToolThreads
from hopline_client.tools import ServerTool, ToolContext, ToolFailed, ToolRefusal
from hopline_client.turn import TurnMesh, Wire, readable

log = logging.getLogger("hopline.client")

_FAILURE: Final = 2000


class ToolSeat:
    """Runs tools for one agent; `put` writes to the stream there is."""

    def __init__(
        self, tools: Mapping[str, ServerTool], wire: Wire, put: Callable[[pb.WorkerItem], None]
    ) -> None:
        self._tools = dict(tools)
        self._wire = wire
        self._put = put
        self._threads = ToolThreads()
        self._running: dict[int, asyncio.Task[None]] = {}
        # Those that were told to stop, too, until they have.
        self._tasks: set[asyncio.Task[None]] = set()

    def definitions(self) -> Iterable[pb.ToolDefinition]:
        """Return what the agent offers."""
        return [each.definition() for each in self._tools.values()]

    def on_call(self, call: pb.ToolCall) -> None:
        """Run a tool."""
        task = asyncio.create_task(self._run(call), name=f"tool {call.name}")
        self._running[call.call_id] = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: self._over(call.call_id, done))

    def on_canceled(self, call_id: int) -> None:
        """Stop a call that nobody waits for any more; nothing is said of it."""
        if (task := self._running.pop(call_id, None)) is not None:
            task.cancel()

    def drop(self) -> None:
        """Stop every call: its stream has gone, and its caller has been told so."""
        for call_id in list(self._running):
            self.on_canceled(call_id)

    async def idle(self) -> None:
        """Wait until every call has ended."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _over(self, call_id: int, task: asyncio.Task[None]) -> None:
        if self._running.get(call_id) is task:
            del self._running[call_id]

    async def _run(self, call: pb.ToolCall) -> None:
        result = pb.ToolResult(attachment=call.attachment, call_id=call.call_id)
        mesh = TurnMesh(self._wire, call.turn_id, call.traceparent)
        try:
            found = self._tools.get(call.name)
            if found is None:
                raise ToolFailed(f"this worker has no tool {call.name!r}")
            result.result_json = await found.run(call.arguments_json, ToolContext(call, mesh), self._threads)
        except ToolRefusal as refusal:
            result.refusal = readable(str(refusal), _FAILURE)
        except ToolFailed as failed:
            result.failure = readable(str(failed), _FAILURE)
        except HoplineError as error:
            result.failure = readable(f"{error.reason}: {error.message}", _FAILURE)
        except asyncio.CancelledError:
            if call.call_id not in self._running:
                raise  # as told
            result.failure = "the tool was cancelled"
        except Exception as error:
            log.exception("the tool %s failed", call.name)
            result.failure = readable(f"{type(error).__name__}: {error}", _FAILURE)
        finally:
            await mesh.close()
        self._put(pb.WorkerItem(tool_result=result))
