"""Closing a child: for good, with whatever goes on for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from hopline.relay.v1 import delegation_pb2 as pb
from hopline_directory import Directory, needs_role
from hopline_directory.records import OPERATOR, VIEWER
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal
from sqlalchemy import Connection

from hopline_relay.callers import actor_of, no_session, require_active
from hopline_relay.cancel import Cancels
from hopline_relay.domain.values import MESH, Actor, Fault
from hopline_relay.inbox import Inbox
from hopline_relay.journal import Journal
from hopline_relay.store import closing, queues
from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import children, sessions
from hopline_relay.store.sql import Record
from hopline_relay.whole import Whole

_ROUNDS: Final = 20


class Closings:
    """Closes children."""

    def __init__(self, journal: Journal, directory: Directory, cancels: Cancels, inbox: Inbox) -> None:
        self._journal = journal
        self._directory = directory
        self._cancels = cancels
        self._inbox = inbox
        self._whole = Whole("close")

    async def close(
        self, principal: Principal, session_id: str, *, from_session_id: str = "", from_turn_id: str = ""
    ) -> pb.CloseSubagentResponse:
        """Close a child's session, and those of its own children; a caller that goes away stops nothing."""
        self._inbox.touch(principal)
        require_active(self._directory, principal)
        child = await self._check(principal, session_id)
        if from_turn_id:
            key = (principal.workspace_id, from_turn_id)
            rows = await self._journal.read(lambda connection: queues.find(connection, {key}))
            if (row := rows.get(key)) is not None:
                from_session_id = row.run_session_id or row.session_id
        # Who started it and closes it need not be told; a copy that closes itself is not who started it.
        knows = principal.id == child.parent_agent_id and (
            child.agent_id != principal.id or from_session_id == child.parent_session_id
        )
        actor = actor_of(self._directory, principal)
        work = self._close(
            principal.workspace_id, session_id, actor, knows=child.parent_session_id if knows else ""
        )
        canceled = await self._whole.run(work, lambda done: done.cancelled() or done.exception())
        return pb.CloseSubagentResponse(state="closed", canceled=canceled)

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        await self._whole.drained()

    async def resume(self, workspace_ids: Sequence[str]) -> None:
        """Complete what a process that died had begun to close."""
        for workspace_id in workspace_ids:
            for session_id in await self._journal.read(partial(closing.left_over, workspace_id=workspace_id)):
                await self._close(workspace_id, session_id, MESH)

    async def _check(self, principal: Principal, session_id: str) -> Record:
        """Return the child, if the caller may close it."""
        key = (principal.workspace_id, session_id)

        def read(connection: Connection) -> tuple[Record | None, Record | None]:
            session = by_id(connection, sessions, {key}).get(key)
            return session, by_id(connection, children, {key}, children.c.session_id).get(key)

        session, child = await self._journal.read(read)
        if session is None:
            raise no_session(session_id)
        if principal.kind == "user":
            agent = self._directory.agent(principal.workspace_id, session.agent_id)
            role = self._directory.role_on_agent(principal.id, agent) if agent is not None else 0
            if role < VIEWER:
                raise no_session(session_id)
            if role < OPERATOR:
                raise needs_role(OPERATOR, "the agent that runs this session")
        elif principal.id not in (session.opened_by_id, child.parent_agent_id if child is not None else ""):
            raise no_session(session_id)
        if child is None:
            raise HoplineError(
                "failed_precondition",
                "this session was not started by start_subagent; cancel ends what runs in it",
                details={"session_id": session_id},
            )
        return child

    async def _close(self, workspace_id: str, session_id: str, actor: Actor, *, knows: str = "") -> int:
        """Let nothing more come in, then end what is there; what slipped in meanwhile is looked for again.

        Sessions that are closed with it could be told nothing, and that which `knows` need not be.
        """
        closed = await self._journal.write(lambda book: closing.close(book, workspace_id, session_id, actor))
        fault = Fault("canceled", f"closed by {actor.name or actor.id}")
        canceled = 0
        for _ in range(_ROUNDS):
            find = partial(closing.live, workspace_id=workspace_id, session_ids=closed)
            rows = await self._journal.read(find)
            if not rows:
                break
            outcomes = await asyncio.gather(
                *(
                    self._cancels.cancel(
                        workspace_id,
                        row.id,
                        fault,
                        actor,
                        tell=row.creditor_session_id not in (*closed, knows)
                        and (row.caused_by_id != actor.id or row.agent_id == actor.id),
                    )
                    for row in rows
                )
            )
            canceled += sum(outcome.canceled for outcome in outcomes)
        else:
            return canceled  # whatever comes on and on is withdrawn when it is claimed
        await self._journal.write(lambda book: closing.closed(book, workspace_id, closed))
        return canceled
