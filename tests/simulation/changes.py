"""What people change while agents work, and what somebody of another workspace tries."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from hopline.registry.v1 import agent_pb2
from hopline.relay.v1 import delegation_pb2 as turns_pb
from hopline.relay.v1 import message_pb2 as pb
from hopline.relay.v1 import session_pb2
from hopline_rpc.errors import HoplineError

from tests.simulation.actions import Actions, Memory
from tests.simulation.world import CAST, CREW, PLUGGED, Member

# What a stranger may be told: that there is no such thing, or that nothing can be told just now.
# `unauthenticated`: a clock that was set on ends what was just signed.
_SAID_TO_STRANGERS = {"not_found", "unavailable", "deadline_exceeded", "overloaded", "unauthenticated"}
# For how many looks a list counts after it was replaced: what was resolved by it may be under way.
_LOOKS = 3


class Changes:
    """Deletes and makes agents, changes their reach, and crosses workspaces."""

    def __init__(self, actions: Actions, stranger: Member) -> None:
        self._actions = actions
        self._world = actions.world
        self._rng = actions.rng
        self._stranger = stranger
        # The lists of an agent that have counted lately, the newest last, and since which look.
        self.reaches: dict[str, list[tuple[int, frozenset[str]]]] = {}
        self._looks = 0
        # The agents that a plugin has brought, by id, and those that went with theirs.
        self._brought: dict[str, str] = {}
        self.uninstalled: set[str] = set()

    # -- agents ------------------------------------------------------------------------------------

    def recreate(self) -> None:
        """Delete an agent, and make another of the same name."""
        agent = self._rng.choice([one for one in self._actions.cast if one.name not in CREW])
        self._actions.call("the person", f"recreates {agent.name}", self._recreate(agent))

    def replug(self) -> None:
        """Delete an agent, or end the plugin that has brought it, and have a plugin bring another."""
        agent = self._rng.choice([one for one in self._actions.cast if one.name in PLUGGED])
        self._actions.call("the person", f"replugs {agent.name}", self._replug(agent))

    async def _recreate(self, agent: Member) -> None:
        await self._remove(agent)
        made = await self._world.agent(agent.name, **CAST[agent.name])
        self._replace(agent, Member(self._world, agent.name, made.id, made.token))

    async def _replug(self, agent: Member) -> None:
        await self._remove(agent)
        made = await self._world.plugged(f"of-{agent.name}", agent.name)
        self._brought[made.id] = f"of-{agent.name}"
        self._replace(agent, Member(self._world, agent.name, made.id, made.token))

    async def _remove(self, agent: Member) -> None:
        plugin = self._brought.get(agent.id)
        try:
            if plugin is None:
                await self._world.delete(agent)
            else:
                await self._world.uninstall(plugin)
        except HoplineError as error:
            if error.reason != "not_found":  # an attempt before this one came so far
                raise
        if plugin is not None:
            self.uninstalled.add(agent.id)

    def _replace(self, agent: Member, new: Member) -> None:
        actions = self._actions
        actions.memories[new.id], actions.names[new.id] = Memory(), agent.name
        actions.cast[[one.name for one in actions.cast].index(agent.name)] = new
        for worker in actions.workers:
            if worker.agent is agent:
                worker.forget()
                worker.agent = new

    def change_reach(self) -> None:
        """Let an agent reach everyone, or a few only."""
        agent, cast = self._actions.one(), self._actions.cast
        few = self._rng.sample(cast, self._rng.choice((0, 0, 3, 5)))
        reach = [one.id for one in few]
        request = agent_pb2.UpdateAgentRequest(agent_ref=agent.id, agent=agent_pb2.Agent(reach=reach))
        request.update_mask.paths.append("reach")
        what = f"lets {agent.name} reach {' '.join(one.name for one in few) or 'everyone'}"
        self._actions.call("the person", what, self._update(agent, request))

    async def _update(self, agent: Member, request: Any) -> None:
        lists = self.reaches.setdefault(agent.id, [(0, frozenset())])
        lists.append((self._looks, frozenset(request.agent.reach)))
        try:
            await self._world.admin.agents.UpdateAgent(request)
        except BaseException:
            # Whether it was written is not known: from now on nothing is required of this agent.
            self.reaches[agent.id] = [(self._looks, frozenset())]
            raise

    def looked(self) -> None:
        """Forget the lists that count no more."""
        self._looks += 1
        for lists in self.reaches.values():
            while len(lists) > 1 and lists[1][0] + _LOOKS < self._looks:
                del lists[0]

    def may_reach(self, sender: str, recipient: str) -> bool:
        """Tell whether any list that has counted lately lets one reach the other."""
        lists = self.reaches.get(sender, ())
        return not lists or any(not reach or recipient in reach for _, reach in lists)

    # -- workspaces --------------------------------------------------------------------------------

    def cross(self) -> None:
        """Have a stranger name what is somebody's here, or somebody here name the stranger."""
        rng, stranger = self._rng, self._stranger
        peer = self._actions.one()
        if rng.random() < 0.3:
            to = rng.choice((stranger.id, stranger.name))
            work = rng.choice((peer.messages.Send(pb.SendRequest(to=[to], text="hello")), None))
            work = work or peer.messages.Ask(pb.AskRequest(agent=to, text="hello", wait_seconds=0))
            self._try(peer.name, f"addresses {to}", work, own=True)
            return
        memory = self._actions.memories[peer.id]
        to = rng.choice((peer.id, peer.name))
        some = self._actions.some
        sessions: Any = stranger.sessions
        tries: list[tuple[Any, Any]] = [
            (stranger.messages.Send, pb.SendRequest(to=[to], text="hello")),
            (stranger.messages.Ask, pb.AskRequest(agent=to, text="hello", wait_seconds=0)),
            (stranger.messages.Check, pb.CheckRequest(turn_id=some(memory.asked, 0), wait_seconds=3)),
            (stranger.messages.Reply, pb.ReplyRequest(message_id=some(memory.inbox, 0), text="so")),
            (stranger.messages.Done, pb.DoneRequest(message_id=some(memory.inbox, 0))),
            (stranger.messages.ListMessages, pb.ListMessagesRequest(thread_id=some(memory.threads, 0))),
            (sessions.ReadSession, session_pb2.ReadSessionRequest(session_id=some(memory.sessions, 0))),
            (stranger.turns.GetTurn, turns_pb.GetTurnRequest(turn_id=some(memory.asked, 0))),
            (stranger.turns.Cancel, turns_pb.CancelRequest(turn_id=some(memory.asked, 0))),
        ]
        method, request = rng.choice(tries)
        self._try(stranger.name, f"tries {type(request).__name__} on what is {peer.name}'s", method(request))

    def _try(self, who: str, what: str, work: Awaitable[Any], *, own: bool = False) -> None:
        async def hidden() -> None:
            try:
                answer = await work
            except HoplineError as error:
                # What somebody may not do at all is said of anyone.
                if not own and error.reason not in _SAID_TO_STRANGERS:
                    self._actions.broken.append(f"{who} {what} and is told: {error.reason}")
                raise
            self._actions.broken.append(f"{who} {what} and is answered: {answer}")

        self._actions.call(who, what, hidden())
