"""Getting a message, an ask or a prompt ready: for whom, from where, and whether it may be said."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hopline.quota.v1 import admission_pb2 as quota_pb
from hopline_directory import Directory
from hopline_directory.records import OPERATOR, AgentRecord
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.ids import IdMaker
from hopline_rpc.principals import Principal

from hopline_relay import peers
from hopline_relay.callers import (
    Inboxes,
    Standing,
    acting,
    actor_of,
    no_session,
    no_thread,
    require_active,
    stand,
)
from hopline_relay.domain.values import PEER, POST, TASK, TOOL, Actor, sibling, title_of
from hopline_relay.drafts import Draft, Ready
from hopline_relay.store.facts import Facts
from hopline_relay.store.outgoing import Copy, Outgoing
from hopline_relay.store.sessions import SessionWish
from hopline_relay.store.sql import Record
from hopline_relay.waits import Blocked, Waits


class Starts:
    """Prepares what starts something."""

    def __init__(
        self,
        directory: Directory,
        waits: Waits,
        inboxes: Inboxes,
        ids: IdMaker,
        instance: Callable[[], str],
        places_of: Callable[[str, str], int],
        check_tool: Callable[[AgentRecord, str, str], None],
    ) -> None:
        self._directory = directory
        self._waits = waits
        self._inboxes = inboxes
        self._ids = ids
        self._instance = instance
        # How many turns at once the tunnels of an agent that are open here take; 0 without any.
        self._places_of = places_of
        # Called with an agent, the name of a tool and its arguments: raises where it cannot be called so.
        self._check_tool = check_tool

    def prepare(self, draft: Draft, facts: Facts, limits: quota_pb.Limits, now: float) -> Ready:
        """Check everything but admission; raises HoplineError."""
        principal = draft.principal
        own = require_active(self._directory, principal)
        recipients = self._resolve(draft, facts, own)
        standing = stand(principal, draft.turn_id, draft.caller_session_id, facts, self._inboxes)
        if draft.thread_id:
            self._check_thread(draft, facts, recipients)
        if draft.kind == TOOL:
            self._check_tool(recipients[0], draft.subject, draft.text)
        if draft.kind == PEER:
            peers.check_way(draft, facts, standing, recipients[0])
        policy = self._directory.policy(principal.workspace_id)
        message_id = self._ids.new_id("msg")
        outgoing = Outgoing(
            workspace_id=principal.workspace_id,
            id=message_id,
            kind=draft.kind,
            sender=self._sender(draft, own),
            session_id=standing.session_id,
            inbox=standing.inbox,
            turn_id=standing.turn.id if standing.turn is not None else "",
            subject=draft.subject,
            body=draft.text,
            payload=draft.payload,
            thread_id=draft.thread_id or sibling("thr", message_id),
            opens_thread=not draft.thread_id,
            cap=policy.messages_per_thread,
            # As far as is known before admission decides.
            depth=0,
            from_depth=standing.turn.depth if standing.turn is not None else 0,
            root_id=standing.turn.root_id if standing.turn is not None else "",
            admitted_as="person" if principal.kind == "user" else "start",
            day="",
            traceparent=draft.traceparent,
            owed=peers.is_owed(draft),
            wait_id=draft.waiter.id if draft.waiter is not None else "",
            run_seconds=draft.run_seconds,
            instance_id=self._instance(),
            queue_seconds=policy.queue_seconds,
            refuse_cycles=policy.refuse_cycles,
            # A subagent is one already, whoever asked it for what it does.
            sender_links=1 if own is not None and own.is_subagent else 0,
            most_links=policy.subagent_depth,
            request_id=draft.request_id,
            digest=draft.digest if draft.request_id else b"",
            plugin_id=draft.plugin.id if draft.plugin is not None else "",
            hook_generation=max(
                draft.hook_generation, standing.turn.hook_generation if standing.turn is not None else 0
            ),
        )
        if draft.standing:
            outgoing.own_end, outgoing.inbox = self._own_end(outgoing, recipients[0]), None
        outgoing.copies = self._copies(draft, facts, outgoing, recipients)
        if draft.waiter is not None:
            if standing.turn is not None and standing.turn.slot:
                if draft.kind != TOOL:  # that needs no place but its own
                    self._check_wait(standing.turn, standing.session_id, outgoing, recipients[0])
                draft.waiter.slot_turn_id = outgoing.wait_turn_id = standing.turn.id
                draft.waiter.session_id = standing.session_id
            self._waits.register(outgoing.workspace_id, outgoing.copies[0].turn_id, draft.waiter)
        return Ready(draft, self._item(draft, outgoing, standing, limits, now), outgoing)

    def _sender(self, draft: Draft, own: AgentRecord | None) -> Actor:
        if draft.source is not None:
            return draft.source.actor
        if own is None:
            return actor_of(self._directory, draft.principal)
        return acting(self._directory, own)

    def _check_wait(self, turn: Record, in_session: str, outgoing: Outgoing, agent: AgentRecord) -> None:
        """Refuse a wait that could never end as far as this process can see; the sweep finds the others."""
        asking, session_id = (
            Blocked(turn.id, turn.agent_id, in_session, agent.id),
            outgoing.copies[0].session_id,
        )
        if self._waits.would_never_end(outgoing.workspace_id, asking, session_id, self._places_of):
            raise HoplineError(
                "would_deadlock",
                f"{agent.name} waits, itself or through others, for the turn that this call comes from, and "
                "has no place for another: you would wait for each other for ever",
                details={"agent": agent.name},
            )

    def _resolve(self, draft: Draft, facts: Facts, own: AgentRecord | None) -> list[AgentRecord]:
        principal = draft.principal
        if draft.kind == POST:
            return [self._of_session(draft, facts)]
        if draft.kind == TASK and not draft.to:
            return [peers.itself(self._directory, principal, own)]
        if draft.kind == PEER and draft.session_id:
            return [peers.in_session(self._directory, draft, facts)]
        found: list[AgentRecord] = []
        for ref in draft.to:
            if draft.kind == "prompt":
                agent = self._prompted(draft, facts, ref)
            else:
                agent = self._directory.resolve(principal, ref)
            if any(agent.id == other.id for other in found):
                raise invalid("to", f"names {agent.name!r} twice; recipients must be distinct")
            found.append(agent)
        return found

    def _of_session(self, draft: Draft, facts: Facts) -> AgentRecord:
        """Return the agent of a session that a plugin was handed, which needs no reach to speak there."""
        workspace_id = draft.principal.workspace_id
        session = facts.sessions.get((workspace_id, draft.session_id))
        agent = self._directory.agent(workspace_id, session.agent_id) if session is not None else None
        if agent is None or agent.deleted:
            raise no_session(draft.session_id)
        if agent.state != "active":
            raise HoplineError("failed_precondition", f"the session's agent is {agent.state}")
        return agent

    def _prompted(self, draft: Draft, facts: Facts, ref: str) -> AgentRecord:
        agent = self._directory.resolve_for_person(draft.principal, ref, OPERATOR)
        if agent.state == "paused":
            raise HoplineError("failed_precondition", f"{agent.name} is paused; resume it first")
        if agent.state != "active":
            raise HoplineError("failed_precondition", f"{agent.name} is not active yet")
        session = facts.sessions.get((agent.workspace_id, draft.session_id))
        if draft.command or (session is not None and session.channel == "human"):
            return agent  # a subagent too: by a command of its plugin's, and further on in that session
        return fronted(agent)

    def _check_thread(self, draft: Draft, facts: Facts, recipients: Sequence[AgentRecord]) -> None:
        key = (draft.principal.workspace_id, draft.thread_id)
        members = facts.members[key]
        if key not in facts.threads or draft.principal.id not in members:
            raise no_thread(draft.thread_id)
        for agent in recipients:
            if agent.id not in members:
                raise HoplineError(
                    "failed_precondition",
                    f"{agent.name} takes no part in this thread; send to it without thread_id",
                    details={"agent": agent.id, "thread_id": draft.thread_id},
                )
        for debt in facts.owed[key]:
            if debt.debtor_id == draft.principal.id:
                raise peers.answer_instead(debt.message_id)

    def _copies(
        self, draft: Draft, facts: Facts, outgoing: Outgoing, recipients: Sequence[AgentRecord]
    ) -> list[Copy]:
        session_id = draft.session_id
        if draft.command and not _runs(facts, recipients[0], session_id):
            session_id = ""  # that of the chat in which it was said: what a command starts is another's
        if draft.kind == PEER and session_id:
            peers.check_open(facts, draft)
        elif session_id:
            self._check_session(draft, facts, recipients[0])
        copies: list[Copy] = []
        for agent in recipients:
            # One random id serves a message and all that it makes; a further recipient needs its own.
            mark = outgoing.id if not copies else self._ids.new_id("msg")
            copy = Copy(kind="agent", id=agent.id, turn_id=sibling("trn", mark), place=len(recipients) > 1)
            if session_id:
                copy.session_id = session_id
            else:
                copy.wish = self._wish(draft, outgoing, agent, sibling("ses", mark))
            copies.append(copy)
        return copies

    def _wish(self, draft: Draft, outgoing: Outgoing, agent: AgentRecord, fresh_id: str) -> SessionWish:
        wish = SessionWish(
            workspace_id=outgoing.workspace_id,
            fresh_id=fresh_id,
            agent_id=agent.id,
            peer_id=outgoing.sender.id,
            peer_name=outgoing.sender.name,
            opener_kind=outgoing.sender.kind,
            opener_id=outgoing.sender.id,
        )
        wish.tools, wish.standing = draft.kind == TOOL, draft.standing
        if draft.own_endpoint:
            wish.channel, wish.title = "mcp", title_of(draft.text)
        elif draft.source is not None:
            wish.channel = draft.source.kind
        elif draft.kind == "prompt":
            wish.channel, wish.title = "human", title_of(draft.text)
        elif draft.kind == TASK:
            wish.title = title_of(draft.text)
        if draft.kind == "prompt":
            wish.tells = self._told_of_sessions(outgoing.workspace_id)
        return wish

    def _told_of_sessions(self, workspace_id: str) -> tuple[str, ...]:
        """Return the plugins that are told where a person, or what a person has set up, opens a session."""
        return tuple(each.id for each in self._directory.plugins(workspace_id) if each.endpoint)

    def _own_end(self, outgoing: Outgoing, agent: AgentRecord) -> SessionWish:
        """Return the sender's end of the standing conversation that it has with an agent."""
        return SessionWish(
            workspace_id=outgoing.workspace_id,
            fresh_id=self._ids.new_id("ses"),
            agent_id=outgoing.sender.id,
            peer_id=agent.id,
            peer_name=agent.name,
            opener_kind=outgoing.sender.kind,
            opener_id=outgoing.sender.id,
            standing=True,
        )

    def _check_session(self, draft: Draft, facts: Facts, agent: AgentRecord) -> None:
        """Let a follow-up into a session of the recipient's that the caller opened."""
        principal = draft.principal
        session = facts.sessions.get((principal.workspace_id, draft.session_id))
        if session is None or session.agent_id != agent.id:
            raise no_session(draft.session_id)
        if draft.kind != POST and not _may_prompt_in(draft, session):
            # A person who may prompt the agent sees all its sessions; an agent only those it has opened.
            raise _bound(draft.session_id) if principal.kind == "user" else no_session(draft.session_id)
        if session.closed:
            raise HoplineError("session_closed", "this session is closed; start a new one")
        turn = facts.turns.get((principal.workspace_id, session.running_turn_id))
        if turn is not None:
            debt = facts.awaited.get((principal.workspace_id, turn.id, principal.id))
            if debt is not None:
                raise peers.answer_instead(debt.message_id)

    @staticmethod
    def _item(
        draft: Draft, outgoing: Outgoing, standing: Standing, limits: quota_pb.Limits, now: float
    ) -> quota_pb.AdmitItem:
        principal = draft.principal
        kind = quota_pb.ADMIT_KIND_START
        if principal.kind == "user":
            kind = quota_pb.ADMIT_KIND_SOURCE if draft.source is not None else quota_pb.ADMIT_KIND_PERSON
        handed = draft.handed
        return quota_pb.AdmitItem(
            key=f"{outgoing.workspace_id}/{outgoing.sender.id}/{draft.request_id or outgoing.id}",
            workspace_id=outgoing.workspace_id,
            kind=kind,
            sender_id=outgoing.sender.id,
            subject_assertion=assertion_of(principal, now),
            recipients=[
                quota_pb.AdmitRecipient(agent_id=copy.id, turn_id=copy.turn_id) for copy in outgoing.copies
            ],
            cause_turn_id=outgoing.turn_id,
            new_root_id=sibling("rot", outgoing.id),
            limits=limits,
            handed=None if handed is None else quota_pb.Handed(depth=handed.depth, root_ids=handed.roots),
        )


def _runs(facts: Facts, agent: AgentRecord, session_id: str) -> bool:
    """Tell whether an agent runs this session."""
    session = facts.sessions.get((agent.workspace_id, session_id))
    return session is not None and session.agent_id == agent.id


def fronted(agent: AgentRecord) -> AgentRecord:
    """Return an agent that people, their schedules and their webhooks may talk to."""
    if agent.is_subagent:
        raise HoplineError(
            "failed_precondition", f"{agent.name} is a subagent; people talk to its lead instead"
        )
    return agent


def assertion_of(principal: Principal, now: float) -> str:
    """Return the caller's assertion, or nothing when its minute is over: a tunnel outlives it."""
    return principal.assertion if principal.expires_at > now + 1.0 else ""


def _may_prompt_in(draft: Draft, session: Record) -> bool:
    """Tell whether a caller with the right to start something on the agent may do so in this session."""
    opened = bool(session.opened_by_id == draft.principal.id)
    if draft.own_endpoint or session.channel == "mcp":
        return opened and session.channel == "mcp"
    return session.channel in ("human", "relay") if draft.principal.kind == "user" else opened


def _bound(session_id: str) -> HoplineError:
    return HoplineError(
        "permission_denied",
        f"the session {session_id!r} is not one that you may prompt in here: it is bound to whoever opened "
        "it, or to another way in; leave it out to open one of your own",
        details={"session_id": session_id},
    )
