"""Hooks on what agents say to each other: what they are asked about a message, once for each recipient."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hopline.hooks.v1 import hook_pb2 as pb
from hopline_directory import AgentRecord, Directory, PluginRecord
from hopline_rpc.ids import IdMaker

from hopline_relay.domain.values import MAX_ANSWER_BYTES
from hopline_relay.drafts import Draft
from hopline_relay.hooks.items import MESSAGE, Item, Origin, Shaped, Words
from hopline_relay.hooks.runner import Hooks

# What one agent's session sends into another's; the first task of a subagent is not among it.
KINDS: Final = frozenset({"message", "ask", "reply", "answer", "peer", "report"})
MAX_MESSAGE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Said:
    """A message as hooks are asked about it, but for whom it is to."""

    origin: Origin
    kind: str
    sender_id: str
    turn_id: str
    words: Words
    thread_id: str = ""
    in_reply_to: str = ""
    reply_expected: bool = False
    # Of what answers something: what kind of message that was.
    asked_kind: str = ""


@dataclass(frozen=True, slots=True)
class Addressee:
    """An agent that a message goes to; its session may be yet to be opened."""

    agent_id: str
    session_id: str = ""


class MessageHooks:
    """Asks hooks about messages."""

    def __init__(self, hooks: Hooks, directory: Directory, ids: IdMaker) -> None:
        self._hooks = hooks
        self._directory = directory
        self._ids = ids

    @property
    def active(self) -> bool:
        """Whether there is any hook at all."""
        return self._hooks.active

    def concern(self, workspace_id: str, kind: str) -> bool:
        """Tell whether a message of this kind goes through hooks."""
        return kind in KINDS and self._hooks.concerns(workspace_id, MESSAGE)

    def concern_draft(self, draft: Draft) -> bool:
        """Tell whether a draft goes through hooks, as far as is known before it is looked at."""
        return draft.principal.kind == "agent" and self.concern(draft.principal.workspace_id, draft.kind)

    async def shape(self, said: Said, *addressees: Addressee) -> Mapping[str, Shaped]:
        """Return what hooks make of a message for each of its recipients, by id."""
        items = [self._item(said, each) for each in addressees]
        shaped = await asyncio.gather(*(self._hooks.run(each) for each in items))
        return {each.agent_id: found for each, found in zip(addressees, shaped, strict=True)}

    def _item(self, said: Said, to: Addressee) -> Item:
        workspace_id = said.origin.workspace_id
        sender = self._directory.agent(workspace_id, said.sender_id)
        recipient = self._directory.agent(workspace_id, to.agent_id)
        # A copy of the caller itself has it for its lead, whatever it is a subagent of.
        leads = to.agent_id in ("" if sender is None else sender.parent_agent_id, said.sender_id)
        is_report = said.kind == "report" or (
            said.kind in ("reply", "answer") and (said.asked_kind == "task" or leads)
        )

        def request(plugin: PluginRecord, context: pb.HookContext, words: Words) -> Any:
            asked = pb.InterAgentMessageRequest(
                context=context,
                to=hook_agent(plugin, recipient, to.agent_id, to.session_id),
                kind=said.kind,
                is_subagent_report=is_report,
                text=words.text,
                subject=words.subject,
                payload_json=words.payload,
                thread_id=said.thread_id,
                in_reply_to=said.in_reply_to,
                reply_expected=said.reply_expected,
            )
            # `from` is a word of Python's.
            getattr(asked, "from").CopyFrom(
                hook_agent(plugin, sender, said.sender_id, said.origin.session_id, said.turn_id)
            )
            return asked

        return Item(
            kind=MESSAGE,
            event_id=self._ids.new_id("evt"),
            origin=said.origin,
            words=said.words,
            most=MAX_ANSWER_BYTES if said.kind == "answer" else MAX_MESSAGE_BYTES,
            request=request,
            is_report=is_report,
        )


def hook_agent(
    plugin: PluginRecord, agent: AgentRecord | None, agent_id: str, session_id: str = "", turn_id: str = ""
) -> pb.HookAgent:
    """Return an agent as a hook of this plugin is told of it: the key only of the plugin's own."""
    found = pb.HookAgent(id=agent_id, session_id=session_id, turn_id=turn_id)
    if agent is not None:
        found.slug, found.name = agent.slug, agent.name
        if agent.plugin_id == plugin.id:
            found.key = agent.key
    return found
