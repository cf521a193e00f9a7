"""HookStateService."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import hook_state_pb2 as pb
from hopline.relay.v1.hook_state_pb2_grpc import HookStateServiceServicer
from hopline_directory import VIEWER, Directory, needs_role
from hopline_rpc.auth import current_principal
from hopline_rpc.clock import Clock, to_timestamp

from hopline_relay.hooks.runner import Hooks, State


class HookStateServicer(HookStateServiceServicer):
    """The service."""

    def __init__(self, hooks: Hooks, directory: Directory, clock: Clock) -> None:
        self._hooks = hooks
        self._directory = directory
        self._clock = clock

    async def GetHooks(self, request: pb.GetHooksRequest, context: Any) -> pb.GetHooksResponse:
        """Return how the hooks do."""
        caller = current_principal()
        if self._directory.workspace_role(caller.workspace_id, caller.id) < VIEWER:
            raise needs_role(VIEWER)
        return pb.GetHooksResponse(hooks=map(self._state, self._hooks.states(caller.workspace_id)))

    def _state(self, state: State) -> pb.HookState:
        (plugin, hook), breaker = state.point, state.breaker
        message = pb.HookState(
            plugin_id=plugin.id,
            plugin_key=plugin.key,
            plugin_name=plugin.name,
            kind=hook.kind,
            order=hook.order,
            fail_mode=hook.fail_mode,
            is_suspended=breaker.is_open,
            failures=breaker.failures,
            problem=breaker.problem if breaker.failures else "",
        )
        if breaker.is_open:
            left = max(0.0, breaker.until - self._clock.monotonic())
            message.retry_at.CopyFrom(to_timestamp(self._clock.now() + left))
        return message
