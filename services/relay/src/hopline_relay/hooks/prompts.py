"""Hooks on system prompts: what a turn's model is told of itself, before its worker gets the turn."""

from __future__ import annotations

from typing import Any, Final

from hopline.hooks.v1 import hook_pb2 as pb
from hopline_directory import AgentRecord, Directory, PluginRecord
from hopline_rpc.clock import Clock
from hopline_rpc.ids import IdMaker

from hopline_relay.held import ClaimedTurn
from hopline_relay.hooks.items import SYSTEM_PROMPT, Item, Origin, Words
from hopline_relay.hooks.messages import hook_agent
from hopline_relay.hooks.noting import Notes
from hopline_relay.hooks.runner import Hooks, within

# Of all hooks together: no turn is held up for longer.
SECONDS: Final = 5.0
MAX_BYTES: Final = 256 * 1024


class PromptHooks:
    """Asks hooks about system prompts."""

    def __init__(self, hooks: Hooks, directory: Directory, notes: Notes, ids: IdMaker, clock: Clock) -> None:
        self._hooks = hooks
        self._directory = directory
        self._notes = notes
        self._ids = ids
        self._clock = clock

    def concern(self, workspace_id: str) -> bool:
        """Tell whether there is a hook on system prompts."""
        return self._hooks.active and self._hooks.concerns(workspace_id, SYSTEM_PROMPT)

    async def shape(self, turn: ClaimedTurn) -> str:
        """Return the system prompt as hooks leave it; empty where they leave it alone, or take too long."""
        agent = self._directory.agent(turn.workspace_id, turn.agent_id)
        if agent is None or turn.known is None:
            return ""
        item = self._item(turn, agent)
        try:
            shaped = await within(self._clock, SECONDS, self._hooks.run(item))
        except TimeoutError:
            return ""
        failed = [note for note in shaped.notes if note.outcome == "failed"]
        self._notes.along(item, failed, agent_id=agent.id, turn_id=turn.turn_id)
        return "" if shaped.words == item.words else shaped.words.text

    def _item(self, turn: ClaimedTurn, agent: AgentRecord) -> Item:
        row = turn.known.turn if turn.known is not None else None
        origin = Origin(
            workspace_id=turn.workspace_id,
            session_id=turn.session_id,
            agent_id=turn.agent_id,
            channel=turn.channel,
            depth=turn.depth,
            root_id=turn.root_id,
            generation=row.hook_generation if row is not None else 0,
            traceparent=turn.traceparent,
        )

        def request(plugin: PluginRecord, context: pb.HookContext, words: Words) -> Any:
            return pb.SystemPromptRequest(
                context=context,
                agent=hook_agent(plugin, agent, agent.id, turn.session_id, turn.turn_id),
                channel=turn.channel,
                cause=turn.cause,
                text=words.text,
            )

        text = "\n\n".join(part for part in (agent.soul, agent.instructions) if part)
        return Item(SYSTEM_PROMPT, self._ids.new_id("evt"), origin, Words(text), MAX_BYTES, request)
