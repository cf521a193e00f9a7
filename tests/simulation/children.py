"""What agents hand on without waiting: children and their reports, words to colleagues and into sessions."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import delegation_pb2 as pb

from tests.simulation.actions import Actions


class Children:
    """Actions of agents that start others."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._rng = actions.rng
        # Sessions of children, with who has started them and who runs them.
        self._started: list[tuple[str, str, str]] = []

    def start(self) -> None:
        """Start a child, now and then a copy, from a session or none."""
        actions = self._actions
        agent, memory = actions.mind("sessions")
        peer = actions.peer(agent)
        common: dict[str, Any] = {
            "task": f"task {self._rng.randint(1, 9)}",
            "is_fire_and_forget": self._rng.random() < 0.2,
            "caller_session_id": actions.some(memory.sessions) if self._rng.random() < 0.5 else "",
        }
        if self._rng.random() < 0.2:
            work = agent.turns.StartSelfSubagent(pb.StartSelfSubagentRequest(**common))
        else:
            work = agent.turns.StartSubagent(pb.StartSubagentRequest(agent=peer.id, **common))
        actions.call(
            agent.name, f"starts {peer.name}, or a copy", work, lambda a: self._seen(agent.id, a.start)
        )

    def _seen(self, parent_id: str, start: pb.ChildStart) -> None:
        self._actions.story.did[f"start {pb.StartOutcome.Name(start.outcome)[14:].lower()}"] += 1
        if not start.session_id:
            return
        self._started = [*self._started[-30:], (start.session_id, parent_id, start.agent.id)]
        self._actions.memories[start.agent.id].sessions.append(start.session_id)
        memory = self._actions.memories[parent_id]
        memory.keep(memory.peer_sessions, start.session_id)
        memory.keep(memory.asked, start.turn_id)

    def _one(self, whose: int) -> tuple[Any, str]:
        """Draw a child, and an agent: mostly who has started it (1), or who runs it (2)."""
        members = {member.id: member for member in self._actions.cast}
        drawn = self._rng.choice(self._started) if self._started else ("nothing_there", "", "")
        agent = members.get(drawn[whose])
        if agent is None or self._rng.random() < 0.1:
            agent = self._actions.one()
        return agent, drawn[0]

    def report(self) -> None:
        """Report, mostly from the session of a child."""
        agent, session_id = self._one(2)
        request = pb.ReportToCallerRequest(text="report", caller_session_id=session_id)
        self._actions.call(agent.name, "reports", agent.turns.ReportToCaller(request))

    def say(self) -> None:
        """Say something in a session of a child."""
        agent, session_id = self._one(1)
        request = pb.SendMessageToSessionRequest(session_id=session_id, text="and?")
        self._actions.call(agent.name, "says more", agent.turns.SendMessageToSession(request))

    def talk(self) -> None:
        """Write to a colleague in their conversation."""
        agent = self._actions.one()
        peer = self._actions.peer(agent)
        request = pb.MessageAgentRequest(agent=peer.id, text="what do you think?")
        self._actions.call(agent.name, f"talks to {peer.name}", agent.turns.MessageAgent(request))

    def close(self) -> None:
        """Close a child."""
        agent, session_id = self._one(1)
        request = pb.CloseSubagentRequest(session_id=session_id)
        self._actions.call(agent.name, "closes a child", agent.turns.CloseSubagent(request))
