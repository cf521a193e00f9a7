"""Hooks on what sessions leave to themselves: todos that are added, timers that are set and that come due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hopline.hooks.v1 import hook_pb2 as pb
from hopline_directory import Directory, PluginRecord
from hopline_rpc import telemetry
from hopline_rpc.clock import to_timestamp
from hopline_rpc.ids import IdMaker

from hopline_relay.hooks.items import DELIVERED, SCHEDULED, TODO, Item, Origin, Shaped, Words
from hopline_relay.hooks.messages import hook_agent
from hopline_relay.hooks.noting import Notes
from hopline_relay.hooks.runner import Hooks
from hopline_relay.left import Seat
from hopline_relay.store.sql import Record

# As the contract has it for what is noted itself.
MAX_TODO_BYTES: Final = 4096
MAX_TIMER_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is left: a session of an agent, and the turn that leaves it, if one runs there.

    `depth` and `generation`: at what it counts at least, where a plugin leaves it.
    """

    workspace_id: str
    agent_id: str
    session_id: str
    turn: Record = None
    depth: int = 0
    generation: int = 0


class LeftHooks:
    """Asks hooks about todos and timers."""

    def __init__(self, hooks: Hooks, directory: Directory, notes: Notes, ids: IdMaker) -> None:
        self._hooks = hooks
        self._directory = directory
        self._notes = notes
        self._ids = ids

    def left_from(self, seat: Seat) -> Place:
        """Return where a call leaves something."""
        principal, standing = seat.principal, seat.standing
        place = Place(principal.workspace_id, principal.id, standing.session_id, standing.turn)
        if seat.by is None:
            return place
        handed = seat.by.standing
        return replace(place, depth=handed.depth, generation=handed.generation + 1)

    def concern(self, workspace_id: str, kind: str) -> bool:
        """Tell whether there is a hook of this kind."""
        return self._hooks.active and self._hooks.concerns(workspace_id, kind)

    async def todos(self, place: Place, texts: Sequence[str]) -> list[Shaped]:
        """Return what hooks make of todos that are being added, each by itself."""

        def request(plugin: PluginRecord, context: pb.HookContext, words: Words) -> Any:
            agent = self._agent(plugin, place)
            return pb.TodoAddedRequest(context=context, agent=agent, text=words.text)

        return list(
            await asyncio.gather(*(self._run(TODO, place, text, MAX_TODO_BYTES, request) for text in texts))
        )

    async def timer(self, place: Place, text: str, fire_at: float) -> Shaped:
        """Return what hooks make of a timer that is being set."""

        def request(plugin: PluginRecord, context: pb.HookContext, words: Words) -> Any:
            return pb.NotifyScheduledRequest(
                context=context,
                agent=self._agent(plugin, place),
                text=words.text,
                fire_at=to_timestamp(fire_at),
            )

        return await self._run(SCHEDULED, place, text, MAX_TIMER_BYTES, request)

    async def due(self, row: Record, turn: Record | None) -> Shaped:
        """Return what hooks make of a timer that has come due; `turn` has set it."""
        place = Place(row.workspace_id, row.agent_id, row.session_id, turn, row.depth, row.hook_generation)

        def request(plugin: PluginRecord, context: pb.HookContext, words: Words) -> Any:
            return pb.NotifyDeliveredRequest(
                context=context, agent=self._agent(plugin, place), text=words.text, timer_id=row.id
            )

        return await self._run(DELIVERED, place, row.body, MAX_TIMER_BYTES, request)

    async def _run(
        self,
        kind: str,
        place: Place,
        text: str,
        most: int,
        request: Callable[[PluginRecord, pb.HookContext, Words], Any],
    ) -> Shaped:
        turn = place.turn
        origin = Origin(
            workspace_id=place.workspace_id,
            session_id=place.session_id,
            agent_id=place.agent_id,
            depth=max(turn.depth if turn is not None else 0, place.depth),
            root_id=turn.root_id if turn is not None else "",
            generation=max(turn.hook_generation if turn is not None else 0, place.generation),
            traceparent=telemetry.current_traceparent(),
        )
        item = Item(kind, self._ids.new_id("evt"), origin, Words(text), most, request)
        shaped = await self._hooks.run(item)
        turn_id = turn.id if turn is not None else ""
        self._notes.along(item, shaped.notes, agent_id=place.agent_id, turn_id=turn_id)
        return shaped

    def _agent(self, plugin: PluginRecord, place: Place) -> pb.HookAgent:
        agent = self._directory.agent(place.workspace_id, place.agent_id)
        turn_id = place.turn.id if place.turn is not None else ""
        return hook_agent(plugin, agent, place.agent_id, place.session_id, turn_id)
