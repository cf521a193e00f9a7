"""What plugins contribute to agents: tools, called here, and skills, whose text is given out.

For every active standard agent of the workspace, as far as its own `tools` setting does not leave it out. A
call is checked against the tool's schema, handed to the plugin with the session it comes from, and told apart
by how it ends; it is no delegation: no turn, nothing charged.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from hopline.hooks.v1 import extension_pb2 as hooks_pb
from hopline.hooks.v1.extension_pb2_grpc import ExtensionServiceStub
from hopline.relay.v1 import plugin_tool_pb2 as pb
from hopline_directory import AgentRecord, Directory, PluginRecord, PluginSkillRecord, PluginToolRecord
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.ids import IdMaker
from hopline_rpc.principals import Principal
from sqlalchemy import Connection

from hopline_relay.callers import Standing, actor_of, require_active
from hopline_relay.domain.handing import Handed
from hopline_relay.domain.payloads import payload_problem
from hopline_relay.domain.values import MAX_ANSWER_BYTES, MAX_WAIT_SECONDS
from hopline_relay.inbox import Inbox
from hopline_relay.journal import Journal
from hopline_relay.plugins.calling import CallFailed, PluginCalls
from hopline_relay.plugins.grants import Grants
from hopline_relay.plugins.showing import shown_session
from hopline_relay.store import queues
from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import sessions
from hopline_relay.store.sql import Record
from hopline_relay.tool_schemas import arguments_of, described

# Between a plugin's key, which has no underscore, and the name of what it contributes.
SEPARATOR: Final = "__"
USE_SKILL: Final = "use_skill"
_NAMED: Final = 20
_MAX_WORDS: Final = 2000


class _Place(NamedTuple):
    """Where a call comes from."""

    handed: Handed
    turn_id: str
    channel: str


class Contributed:
    """Serves PluginToolService."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        inbox: Inbox,
        calls: PluginCalls,
        grants: Grants,
        ids: IdMaker,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._inbox = inbox
        self._calls = calls
        self._grants = grants
        self._ids = ids
        self._clock = clock

    # --- tools ------------------------------------------------------------------------------------

    async def call(
        self, principal: Principal, request: pb.CallPluginToolRequest
    ) -> pb.CallPluginToolResponse:
        """Run a tool of a plugin for an agent; cancelling this cancels it there."""
        agent = self._agent(principal, request.tool)
        plugin, tool = self._tool(principal.workspace_id, request.tool)
        arguments = _arguments(request, tool)
        self._inbox.touch(principal)
        standing = await self._inbox.standing(principal, request.caller_session_id, "")
        place = await self._place(principal, standing)
        shown = self._grants.hand(plugin, place.handed) if place.handed.session_id else None
        call = hooks_pb.CallToolRequest(
            call_id=self._ids.new_id("call"),
            workspace_id=plugin.workspace_id,
            plugin_id=plugin.id,
            name=tool.name,
            arguments_json=arguments,
        )
        session = shown_session(
            self._directory, plugin, place.handed, shown, agent_id=agent.id, channel=place.channel
        )
        if session is not None and session.session_id:
            call.session.CopyFrom(session)
            call.turn_id = place.turn_id
        await self._note(principal, agent, plugin, tool, call.call_id, place)
        return await self._answered(plugin, request, call)

    async def _answered(
        self, plugin: PluginRecord, request: pb.CallPluginToolRequest, call: hooks_pb.CallToolRequest
    ) -> pb.CallPluginToolResponse:
        seconds = min(request.timeout_seconds or MAX_WAIT_SECONDS, MAX_WAIT_SECONDS)
        try:
            answer: hooks_pb.CallToolResponse = await self._calls.call(
                plugin, ExtensionServiceStub, "CallTool", call, seconds=float(seconds), lane="tools"
            )
        except CallFailed as failed:
            return pb.CallPluginToolResponse(failure=_told(failed, plugin, request.tool), plugin=plugin.name)
        outcome = answer.WhichOneof("outcome")
        if outcome == "refusal":
            raise invalid("arguments", _words(answer.refusal, "they do not fit"))
        if outcome == "failure":
            failure = _words(answer.failure, "the tool failed")
            return pb.CallPluginToolResponse(failure=failure, plugin=plugin.name)
        if problem := _problem(answer.result_json):
            return pb.CallPluginToolResponse(failure=f"its result {problem}", plugin=plugin.name)
        return pb.CallPluginToolResponse(result_json=answer.result_json, plugin=plugin.name)

    def _tool(self, workspace_id: str, name: str) -> tuple[PluginRecord, PluginToolRecord]:
        key, _, own = name.partition(SEPARATOR)
        for plugin in self._directory.plugins(workspace_id):
            if plugin.key == key and plugin.endpoint:
                for tool in plugin.tools:
                    if tool.name == own:
                        return plugin, tool
        known = [
            f"{plugin.key}{SEPARATOR}{tool.name}"
            for plugin in self._directory.plugins(workspace_id)
            if plugin.endpoint
            for tool in plugin.tools
        ]
        raise _unknown("tool", name, known)

    async def _place(self, principal: Principal, standing: Standing) -> _Place:
        """Return where a call comes from: the turn that it names, else the deepest that counts."""
        window = self._directory.policy(principal.workspace_id).causality_window_seconds
        since = self._clock.now() - window
        return await self._journal.read(partial(_place, principal=principal, standing=standing, since=since))

    async def _note(
        self,
        principal: Principal,
        agent: AgentRecord,
        plugin: PluginRecord,
        tool: PluginToolRecord,
        call_id: str,
        place: _Place,
    ) -> None:
        """Put the call into the audit log, before it may have had any effect."""
        actor = actor_of(self._directory, principal)
        details = {"plugin_id": plugin.id, "plugin": plugin.key, "tool": tool.name, "call_id": call_id}
        await self._journal.write(
            lambda book: book.note(
                plugin.workspace_id,
                "plugin.tool_called",
                actor,
                agent_id=agent.id,
                turn_id=place.turn_id,
                session_id=place.handed.session_id,
                details=details,
            )
        )

    # --- skills -----------------------------------------------------------------------------------

    def use_skill(self, principal: Principal, name: str) -> pb.UseSkillResponse:
        """Return the text of a skill, by its full name, or its own where only one plugin has it."""
        self._agent(principal, USE_SKILL)
        there = list(self._skills(principal.workspace_id))
        found = [each for each in there if name == each[0]] or [
            each for each in there if name == each[2].name
        ]
        if not found:
            raise _unknown("skill", name, [each[0] for each in there])
        if len(found) > 1:
            names = [each[0] for each in found]
            text = f"several plugins have a skill {name!r}; use one of {', '.join(names)}"
            raise HoplineError("ambiguous", text, details={"skill": name, "skills": names})
        full, plugin, skill = found[0]
        return pb.UseSkillResponse(text=skill.text, skill=full, plugin=plugin.name)

    def _skills(self, workspace_id: str) -> Iterator[tuple[str, PluginRecord, PluginSkillRecord]]:
        for plugin in self._directory.plugins(workspace_id):
            for skill in plugin.skills:
                yield f"{plugin.key}{SEPARATOR}{skill.name}", plugin, skill

    # --- for whom ---------------------------------------------------------------------------------

    def _agent(self, principal: Principal, name: str) -> AgentRecord:
        """Return the calling agent, if plugins contribute to it."""
        agent = require_active(self._directory, principal)
        if agent is None:
            raise HoplineError("permission_denied", "what plugins contribute is for agents")
        if agent.kind == "receive_only":
            raise HoplineError("receive_only", "this agent only receives: plugins add nothing to it")
        if agent.tools and name not in agent.tools:
            raise HoplineError("permission_denied", f"this agent's owner did not give it {name}")
        return agent


def _place(connection: Connection, principal: Principal, standing: Standing, since: float) -> _Place:
    """Return the worst of what counts where a call comes from."""
    workspace_id, session_id = principal.workspace_id, standing.session_id
    rows: list[Record] = [standing.turn] if standing.turn is not None else []
    if not rows:
        rows = list(queues.running_of(connection, workspace_id, principal.id))
    if not rows:
        ended = queues.deepest_ended(connection, workspace_id, principal.id, since)
        rows = [ended] if ended is not None else []
    deepest = max(rows, key=lambda row: row.depth, default=None)
    key = (workspace_id, session_id)
    session = by_id(connection, sessions, {key}).get(key) if session_id else None
    return _Place(
        Handed(
            session_id,
            depth=deepest.depth if deepest is not None else 0,
            root_id=deepest.root_id if deepest is not None else "",
            generation=max((row.hook_generation for row in rows), default=0),
        ),
        turn_id=standing.turn.id if standing.turn is not None else "",
        channel=session.channel if session is not None else "mcp",
    )


def _arguments(request: pb.CallPluginToolRequest, tool: PluginToolRecord) -> str:
    """Return the arguments as JSON text; raises what is wrong with them, naming the field."""
    text = request.arguments_json or "{}"
    if (problem := payload_problem(text)) is not None:
        raise invalid("arguments_json", problem)
    described(tool.name, tool.description, tool.input_schema).check(arguments_of(text))
    return text


def _told(failed: CallFailed, plugin: PluginRecord, name: str) -> str:
    """Return what a caller is told as data of a call that has failed; raises what is no outcome of a tool."""
    details: dict[str, Any] = {"tool": name, "plugin": plugin.name, "may_have_run": failed.sent}
    effect = "it may have had effects" if failed.sent else "it has not run"
    if failed.kind == "late":
        raise HoplineError("deadline_exceeded", f"{name}: {failed.words}; {effect}", details=details)
    if failed.kind == "unreachable" or not failed.sent:
        text = f"the plugin {plugin.name} did not run {name}: {failed.words}; {effect}"
        raise HoplineError("unavailable", text, details=details)
    if failed.kind == "unimplemented":
        text = f"the plugin {plugin.name} declares {name} and does not run it; tell its owner"
        raise HoplineError("failed_precondition", text, details=details)
    return _words(f"the plugin failed: {failed.words}", "the plugin failed")


def _unknown(what: str, name: str, known: list[str]) -> HoplineError:
    """Return the answer for a name that no plugin of the workspace has."""
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    there = f"there are: {', '.join(sorted(known)[:_NAMED])}{more}" if known else "there are none"
    return HoplineError("not_found", f"there is no {what} {name!r}; {there}", details={what: name})


def _problem(result: str) -> str | None:
    """Say why no caller can be given this result."""
    if len(result.encode()) > MAX_ANSWER_BYTES:
        return f"is over {MAX_ANSWER_BYTES // 1024} KiB and was not delivered"
    return payload_problem(result)


def _words(text: str, otherwise: str) -> str:
    """Return words of a plugin as an answer may hold them."""
    return text[:_MAX_WORDS].replace("\0", "\N{REPLACEMENT CHARACTER}") or otherwise
