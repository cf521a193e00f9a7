"""Whom agents may hand work to without waiting for it, and in which sessions they may say something."""

from __future__ import annotations

from hopline_directory import Directory
from hopline_directory.records import AgentRecord
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.principals import Principal

from hopline_relay.callers import Standing, no_session
from hopline_relay.domain.values import PEER, POST
from hopline_relay.drafts import Draft
from hopline_relay.store.facts import Facts
from hopline_relay.store.sql import Record


def is_owed(draft: Draft) -> bool:
    """Tell whether an answer is owed for what a draft says."""
    if draft.kind == PEER:
        return draft.standing
    return draft.kind not in ("message", POST) and not draft.fire_and_forget


def itself(directory: Directory, principal: Principal, own: AgentRecord | None) -> AgentRecord:
    """Return the calling agent, of which a copy is to run."""
    directory.check_may_start(principal)
    if own is None:
        raise HoplineError("permission_denied", "only an agent starts a copy of itself")
    return own


def in_session(directory: Directory, draft: Draft, facts: Facts) -> AgentRecord:
    """Return the agent that runs the session which a draft goes into, if its author may prompt there."""
    principal = draft.principal
    directory.check_may_start(principal)
    session = facts.sessions.get((principal.workspace_id, draft.session_id))
    agent = directory.agent(principal.workspace_id, session.agent_id) if session is not None else None
    if session is None or agent is None or not may_say_in(directory, principal, session, agent):
        raise no_session(draft.session_id)
    return agent


def may_say_in(directory: Directory, principal: Principal, session: Record, agent: AgentRecord) -> bool:
    """Tell whether an agent may say something in a session: of its own, opened by it, or led by it."""
    if session.agent_id == principal.id:
        # What came in through its own endpoint is for whoever opened that.
        return bool(session.channel != "mcp" or session.opened_by_id == principal.id)
    if not directory.may_start_on(principal, agent.id):
        return False
    opened: bool = session.opened_by_id == principal.id
    return opened or (session.channel != "mcp" and leads_in(directory, principal.id, session, agent))


def leads_in(directory: Directory, lead_id: str, session: Record, agent: AgentRecord) -> bool:
    """Tell whether a lead's subagent runs this session for the crew: another of its members opened it."""
    if agent.parent_agent_id != lead_id:
        return False
    opener = directory.agent(session.workspace_id, session.opened_by_id)
    return opener is not None and lead_id in (opener.id, opener.parent_agent_id)


def check_way(draft: Draft, facts: Facts, standing: Standing, to: AgentRecord) -> None:
    """Refuse what goes where the caller's answer goes by itself, or back into the session it comes from."""
    principal = draft.principal
    if draft.session_id and draft.session_id == standing.session_id:
        raise invalid("session_id", "is the session that you call from; go on there instead")
    turn = standing.turn
    for debt in facts.serving[principal.workspace_id, principal.id]:
        if draft.standing:
            # From another turn of its own it may; from where the mesh cannot tell, the answer comes first.
            back = debt.cause == PEER and debt.creditor_id == to.id
            goes_back = back and (turn is None or debt.turn_id in (turn.id, turn.batch_id))
        else:
            goes_back = debt.creditor_session_id == draft.session_id
        if goes_back:
            raise answer_instead(debt.message_id)


def check_open(facts: Facts, draft: Draft) -> None:
    """Refuse a session that was closed."""
    if facts.sessions[draft.principal.workspace_id, draft.session_id].closed:
        raise HoplineError("session_closed", "this session is closed; start a new one")


def answer_instead(message_id: str) -> HoplineError:
    """Return the refusal of what would go round the way back that an answer has."""
    return HoplineError(
        "answer_instead",
        f"you are answering their question {message_id}: end your turn with the answer, or use reply",
        details={"message_id": message_id},
    )
