"""The floor and the trees of delegations, for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hopline.relay.v1 import floor_pb2 as pb
from hopline_directory import Directory
from hopline_directory.records import VIEWER, AgentRecord
from hopline_rpc.clock import Clock, to_timestamp
from hopline_rpc.paging import Pager, page_size
from hopline_rpc.principals import Principal
from sqlalchemy import Connection

from hopline_relay.callers import no_turn
from hopline_relay.hooks.runner import Hooks
from hopline_relay.journal import Journal
from hopline_relay.store import floor
from hopline_relay.store.floor import MOST_NODES, MOST_RUNNING, Count, Open
from hopline_relay.store.sql import Record
from hopline_relay.view import Views
from hopline_relay.whys import Room, Whys, held

_EXCERPT: Final = 200


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was read for a floor, on one snapshot."""

    running: dict[str, Sequence[Record]]
    first_queued: dict[str, Record]
    # How many run for each agent of the page, and how many wait for each of the workspace.
    runs: dict[str, Count]
    waits: dict[str, Count]
    used: int
    # When the oldest of all that wait came; None where none does.
    oldest: float | None
    open: Open


class Floor:
    """Serves FloorService."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        hooks: Hooks,
        views: Views,
        pager: Pager,
        clock: Clock,
        places: Callable[[str, str], int],
        presence: Callable[[AgentRecord], str],
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._hooks = hooks
        self._views = views
        self._pager = pager
        self._clock = clock
        self._places = places
        self._presence = presence
        self._whys = Whys(directory, places)

    async def get_floor(self, principal: Principal, request: pb.GetFloorRequest) -> pb.GetFloorResponse:
        """Return a page of agents with what they do."""
        size = page_size(request.page_size)
        query = ("floor", principal.id, request.agent)
        position = self._pager.position(query, request.page_token)
        after = (str(position[0]), str(position[1])) if position else ("", "")
        if request.agent:
            seen = [self._directory.resolve_for_person(principal, request.agent, VIEWER)]
        else:
            seen = sorted(self._directory.for_person(principal, VIEWER).ordered, key=_place)
        agents = [agent for agent in seen if _place(agent) > after][: size + 1]
        page = agents[:size]
        workspace_id = principal.workspace_id
        everyone = [each.id for each in self._directory.agents(workspace_id)]
        found = await self._journal.read(
            lambda connection: _read(connection, workspace_id, [each.id for each in page], everyone)
        )
        limit = self._directory.policy(workspace_id).concurrent_runs
        response = pb.GetFloorResponse(
            agents=[self._agent(principal, each, found, limit) for each in page],
            runs_used=found.used,
            runs_limit=limit,
            queued_count=sum(each.found for each in found.waits.values()),
            hooks=self._slow_hooks(principal),
        )
        if found.oldest is not None:
            response.oldest_queued_at.CopyFrom(to_timestamp(found.oldest))
        if len(agents) > size:
            response.next_page_token = self._pager.token(query, list(_place(page[-1])))
        return response

    def _agent(self, principal: Principal, agent: AgentRecord, found: _Seen, limit: int) -> pb.FloorAgent:
        now = self._clock.now()
        queued, running = found.waits.get(agent.id), found.runs.get(agent.id)
        plugin = self._directory.plugin(agent.workspace_id, agent.plugin_id) if agent.plugin_id else None
        shown = pb.FloorAgent(
            agent=self._views.party(principal, "agent", agent.id),
            presence=agent.state if agent.state != "active" else self._presence(agent),
            running_count=running.found if running else 0,
            queued_count=queued.found if queued else 0,
            is_subagent=agent.is_subagent,
            plugin_name=plugin.name if plugin is not None else "",
            description=agent.description[:_EXCERPT],
        )
        for row in found.running.get(agent.id, ()):
            turn = self._views.turn(
                principal, row, asks_owner=(row.batch_id or row.id) in found.open.escalations
            )
            shown.running.add(turn=turn, wait=self._whys.running(row, found.open, now))
        first = found.first_queued.get(agent.id)
        if first is not None:
            shown.oldest_queued_at.CopyFrom(to_timestamp(first.created_at))
            room = self._room(agent, running.found if running else 0, found.used, limit)
            shown.queued_wait.CopyFrom(self._whys.queued(first, found.open, room))
        return shown

    def _room(self, agent: AgentRecord, running: int, used: int, limit: int) -> Room:
        return Room(self._presence(agent), self._places(agent.workspace_id, agent.id), running, used, limit)

    def _slow_hooks(self, principal: Principal) -> list[pb.FloorHook]:
        """Return the hooks that are asked for long, and those that keep failing, to who may see hooks."""
        found: list[pb.FloorHook] = []
        if self._directory.workspace_role(principal.workspace_id, principal.id) < VIEWER:
            return found
        for state in self._hooks.states(principal.workspace_id):
            plugin, hook = state.point
            asked = self._hooks.asked_for(plugin.id, hook.kind)
            breaker = state.breaker
            closed = hook.fail_mode == "fail_closed"
            if breaker.is_open or breaker.failures:
                effect = "what it has to see is canceled" if closed else "it is passed over"
                rest = "; it is left alone for a while" if breaker.is_open else ""
                text = f"the hook {hook.kind} of {plugin.name} fails ({breaker.problem}): {effect}{rest}"
            elif asked:
                text = f"the hook {hook.kind} of {plugin.name} has been asked for {asked:.1f} s"
            else:
                continue
            wait = pb.Wait(
                reason=pb.WAIT_REASON_HOOK, text=text, remedy=f"hopline plugin uninstall {plugin.key}"
            )
            found.append(
                pb.FloorHook(plugin_id=plugin.id, plugin_name=plugin.name, kind=hook.kind, wait=wait)
            )
        return found

    # --- trees ------------------------------------------------------------------------------------

    async def get_tree(self, principal: Principal, request: pb.GetTreeRequest) -> pb.GetTreeResponse:
        """Return the tree that a turn is in."""
        key = (principal.workspace_id, request.turn_id)
        # By itself: what is hidden takes as long as what never was, however much hangs on it.
        row = await self._journal.read(lambda connection: floor.turn(connection, key))
        if row is None or not self._may_see(principal, row):
            raise no_turn(request.turn_id)
        everyone = [each.id for each in self._directory.agents(principal.workspace_id)]
        root_id = row.root_id

        def read(connection: Connection) -> tuple[Sequence[Record], Open, dict[str, str], int]:
            rows = floor.tree(connection, key[0], root_id)
            return (
                rows,
                floor.open_of(connection, key[0], rows),
                floor.excerpts(connection, rows[:MOST_NODES]),
                floor.slots_used(connection, key[0], everyone),
            )

        rows, found, texts, used = await self._journal.read(read)
        visible = [each for each in rows[:MOST_NODES] if self._may_see(principal, each)]
        limit = self._directory.policy(principal.workspace_id).concurrent_runs
        response = pb.GetTreeResponse(is_truncated=len(rows) > MOST_NODES)
        running: dict[str, int] = {}
        for each in rows:
            if each.state == "running":
                running[each.agent_id] = running.get(each.agent_id, 0) + 1
        for level, each in _walk(visible, {one.id: one.parent_turn_id for one in rows}):
            node = response.nodes.add(
                turn=self._views.turn(
                    principal, each, asks_owner=(each.batch_id or each.id) in found.escalations
                ),
                level=level,
                excerpt=" ".join(texts.get(each.message_id, "").split())[:_EXCERPT],
            )
            wait = self._wait(each, found, running.get(each.agent_id, 0), used, limit)
            if wait is not None:
                node.wait.CopyFrom(wait)
        return response

    def _wait(self, row: Record, found: Open, running: int, used: int, limit: int) -> pb.Wait | None:
        hold = found.holds.get(row.id)
        if hold is not None:
            return held(hold)
        if row.state == "running":
            return self._whys.running(row, found, self._clock.now())
        if row.state != "queued":
            return None
        agent = self._directory.agent(row.workspace_id, row.agent_id)
        if agent is None:
            return None
        return self._whys.queued(row, found, self._room(agent, running, used, limit))

    def _may_see(self, principal: Principal, row: Record) -> bool:
        agent = self._directory.agent(row.workspace_id, row.agent_id)
        role = self._directory.role_on_agent(principal.id, agent) if agent is not None else 0
        return row.caused_by_id == principal.id or role >= VIEWER


def _place(agent: AgentRecord) -> tuple[str, str]:
    return agent.name.casefold(), agent.id


def _read(
    connection: Connection, workspace_id: str, agent_ids: Sequence[str], everyone: Sequence[str]
) -> _Seen:
    runs = floor.counts(connection, workspace_id, agent_ids, "running")
    waits = floor.counts(connection, workspace_id, everyone, "queued")
    running = {
        agent_id: floor.first(connection, workspace_id, agent_id, "running", MOST_RUNNING)
        for agent_id in runs
    }
    longest = min(waits, key=lambda agent_id: waits[agent_id].first, default="")
    heads = {
        agent_id: rows[0]
        for agent_id in dict.fromkeys([*agent_ids, longest])
        if agent_id in waits and (rows := floor.first(connection, workspace_id, agent_id, "queued", 1))
    }
    queued = {agent_id: row for agent_id, row in heads.items() if agent_id in agent_ids}
    rows = [*(row for some in running.values() for row in some), *queued.values()]
    return _Seen(
        running,
        queued,
        runs,
        waits,
        floor.slots_used(connection, workspace_id, everyone),
        heads[longest].created_at if longest in heads else None,
        floor.open_of(connection, workspace_id, rows),
    )


def _walk(rows: Sequence[Record], parents: dict[str, str]) -> list[tuple[int, Record]]:
    """Return turns in the order of a walk, with their level; what is not seen is passed over."""
    seen = {row.id for row in rows}
    below: dict[str, list[Record]] = {}
    for row in rows:
        above = row.parent_turn_id
        passed = 0
        while above and above not in seen and passed < len(parents):
            above, passed = parents.get(above, ""), passed + 1
        below.setdefault(above if above in seen else "", []).append(row)
    found: list[tuple[int, Record]] = []
    stack = [(0, row) for row in reversed(below.get("", []))]
    while stack:
        level, row = stack.pop()
        found.append((level, row))
        stack += [(level + 1, each) for each in reversed(below.get(row.id, []))]
    return found
