"""Who calls, and from where: the caller's own state, its session and the turn it calls from."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from hopline_directory import Directory
from hopline_directory.records import AgentRecord
from hopline_rpc.errors import HoplineError, unauthenticated
from hopline_rpc.ids import IdMaker
from hopline_rpc.principals import Principal
from sqlalchemy import Connection

from hopline_relay.domain.values import Actor
from hopline_relay.journal import Journal
from hopline_relay.store import queues
from hopline_relay.store.facts import Facts, Names, look_up
from hopline_relay.store.sessions import SessionWish
from hopline_relay.store.sql import Record

_INBOXES_KEPT: Final = 50_000


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a call is made from. Without a session of its own it comes from the agent's inbox session.

    `turn` is the running turn it is made from, where the mesh knows it.
    """

    session_id: str = ""
    inbox: SessionWish | None = None
    turn: Record | None = None


def require_active(directory: Directory, principal: Principal) -> AgentRecord | None:
    """Return the calling agent (None for a person); refuse one that is paused or not there yet."""
    if principal.kind != "agent":
        return None
    agent = directory.agent(principal.workspace_id, principal.id)
    if agent is None:
        raise HoplineError("unavailable", "the calling agent is not known here yet; try again")
    if agent.deleted:
        raise unauthenticated()
    if agent.state == "paused":
        raise HoplineError("agent_paused", "this agent is paused and may only read; its owner resumes it")
    if agent.state != "active":
        raise HoplineError("failed_precondition", "this agent is not active yet")
    return agent


def actor_of(directory: Directory, principal: Principal) -> Actor:
    """Return how the record names the caller."""
    return named(directory, principal.workspace_id, principal.kind, principal.id)


def named(directory: Directory, workspace_id: str, kind: str, identifier: str) -> Actor:
    """Return a party with its name, as far as it is known."""
    if kind == "agent":
        agent = directory.agent(workspace_id, identifier)
        return Actor(kind, identifier) if agent is None else acting(directory, agent)
    if kind == "plugin":
        plugin = directory.plugin(workspace_id, identifier)
        return Actor(kind, identifier, plugin.name if plugin is not None else "")
    user = directory.user(workspace_id, identifier)
    return Actor(kind, identifier, user.name if user is not None else "")


def acting(directory: Directory, agent: AgentRecord) -> Actor:
    """Return an agent as the record names it: what it does, it does in its owner's name."""
    owner = directory.user(agent.workspace_id, agent.owner_id)
    return Actor("agent", agent.id, agent.name, owner.name if owner is not None else "")


class Inboxes:
    """The inbox sessions that are known: each is there for good, so that it need not be looked up again."""

    def __init__(self, ids: IdMaker) -> None:
        self._ids = ids
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()

    def standing(self, workspace_id: str, agent_id: str) -> Standing:
        """Return where calls without a session of their own come from; made where it is missing."""
        known = self._known.get((workspace_id, agent_id))
        if known is not None:
            return Standing(known)
        return Standing(
            inbox=SessionWish(
                workspace_id=workspace_id,
                fresh_id=self._ids.new_id("ses"),
                agent_id=agent_id,
                channel="mcp",
                opener_kind="agent",
                opener_id=agent_id,
            )
        )

    def remember(self, wish: SessionWish | None) -> None:
        """Keep what was found or made for a wish."""
        if wish is not None:
            self._known[wish.workspace_id, wish.agent_id] = wish.id
            if len(self._known) > _INBOXES_KEPT:
                self._known.popitem(last=False)


def stand(principal: Principal, turn_id: str, session_id: str, facts: Facts, inboxes: Inboxes) -> Standing:
    """Work out where a call is made from, or refuse what is not the caller's."""
    if principal.kind != "agent":
        return Standing()
    workspace_id = principal.workspace_id
    if turn_id:
        turn = facts.turns.get((workspace_id, turn_id))
        if turn is None or turn.agent_id != principal.id:
            raise no_turn(turn_id)
        if turn.state != "running":
            raise HoplineError("failed_precondition", "the turn that this call comes from has ended")
        return Standing(turn.run_session_id or turn.session_id, None, turn)
    if session_id:
        session = facts.sessions.get((workspace_id, session_id))
        if session is None or session.agent_id != principal.id:
            raise no_session(session_id)
        # A pull runs several turns in a session: which of them a call belongs to is not known.
        turn = facts.turns.get((workspace_id, session.running_turn_id))
        return Standing(session_id, None, turn if turn is not None and not turn.run_session_id else None)
    return inboxes.standing(workspace_id, principal.id)


async def standing_of(
    journal: Journal, inboxes: Inboxes, principal: Principal, session_id: str, turn_id: str
) -> Standing:
    """Look up where a call comes from that names a session or a turn, or neither."""
    names = Names()
    if turn_id:
        names.turns.add((principal.workspace_id, turn_id))
    if session_id:
        names.sessions.add((principal.workspace_id, session_id))
    facts = await journal.read(lambda connection: look_up(connection, names))
    return stand(principal, turn_id, session_id, facts, inboxes)


def cause_of(connection: Connection, principal: Principal, standing: Standing, since: float) -> Record | None:
    """Return the turn that a call belongs to: the one it comes from, else the deepest that its agent runs.

    Or ran: those count that have ended `since` then.
    """
    if standing.turn is not None:
        return standing.turn
    running = queues.running_of(connection, principal.workspace_id, principal.id)
    here = [row for row in running if (row.run_session_id or row.session_id) == standing.session_id]
    if not running:
        return queues.deepest_ended(connection, principal.workspace_id, principal.id, since)
    return max(here or running, key=lambda row: (row.depth, row.ordinal))


def no_session(session_id: str) -> HoplineError:
    """Return the one answer for a session that does not exist or that the caller may not know of."""
    return HoplineError(
        "not_found", f"there is no session {session_id!r}", details={"session_id": session_id}
    )


def no_message(message_id: str) -> HoplineError:
    """Return the one answer for a message that does not exist or was not delivered to the caller."""
    return HoplineError(
        "not_found", f"there is no message {message_id!r}", details={"message_id": message_id}
    )


def no_thread(thread_id: str) -> HoplineError:
    """Return the one answer for a thread that does not exist or that the caller takes no part in."""
    return HoplineError("not_found", f"there is no thread {thread_id!r}", details={"thread_id": thread_id})


def no_turn(turn_id: str) -> HoplineError:
    """Return the one answer for a turn that does not exist or that the caller may not know of."""
    return HoplineError("not_found", f"there is no turn {turn_id!r}", details={"turn_id": turn_id})


def no_escalation(escalation_id: str) -> HoplineError:
    """Return the one answer for a question that does not exist or that the caller may not know of."""
    return HoplineError(
        "not_found", f"there is no question {escalation_id!r}", details={"escalation_id": escalation_id}
    )
