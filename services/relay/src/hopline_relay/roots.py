"""Roots: what one act outside the mesh may start, whose it is, and that only people let it start more."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any, Final

from hopline.relay.v1 import delegation_pb2 as pb
from hopline_directory import ADMIN, VIEWER, Directory, needs_role
from hopline_rpc.clock import to_timestamp
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import IdMaker
from hopline_rpc.paging import Pager, page_size
from hopline_rpc.principals import Principal
from hopline_store import after_commit
from sqlalchemy import Connection

from hopline_relay.admission import Admission
from hopline_relay.callers import actor_of, no_turn
from hopline_relay.domain.values import MESH
from hopline_relay.journal import Journal
from hopline_relay.outbox import Outbox
from hopline_relay.store import outbox, requests
from hopline_relay.store import roots as rows
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import turns
from hopline_relay.store.sql import Record
from hopline_relay.view import Views

_NOTED_KEPT: Final = 10_000


class Roots:
    """One method an RPC, and what is done where one is exhausted."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        admission: Admission,
        posts: Outbox,
        views: Views,
        pager: Pager,
        ids: IdMaker,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._admission = admission
        self._outbox = posts
        self._views = views
        self._pager = pager
        self._ids = ids
        # Roots that are noted as exhausted already, until they are extended.
        self._noted: OrderedDict[tuple[str, str], None] = OrderedDict()

    def exhausted(self, principal: Principal, root_id: str) -> None:
        """Note, once, that a root was refused turns: its owner finds it in the log and in the list."""
        key = (principal.workspace_id, root_id)
        if key in self._noted:
            return
        self._noted[key] = None
        if len(self._noted) > _NOTED_KEPT:
            self._noted.popitem(last=False)
        notice_id = self._ids.new_id("ntc")
        self._journal.along(lambda book: self._note(book, principal, root_id, notice_id))

    def _note(self, book: Book, principal: Principal, root_id: str, notice_id: str) -> None:
        workspace_id = principal.workspace_id
        first = rows.first_turn(book.connection, workspace_id, root_id)
        if first is None:
            return  # it was refused its very first turns: there is nothing yet that could go on
        agent_id = rows.began_with(first)
        if not rows.exhaust(book, workspace_id, root_id, agent_id):
            return
        agent = self._directory.agent(workspace_id, agent_id)
        details: dict[str, Any] = {
            "root_id": root_id,
            "turns": rows.count(book.connection, workspace_id, root_id),
            "owner_id": agent.owner_id if agent is not None else "",
            "refused_id": principal.id,
        }
        book.note(workspace_id, "root.exhausted", MESH, agent_id=agent_id, details=details)
        owner = self._directory.user(workspace_id, agent.owner_id) if agent is not None else None
        if owner is not None and owner.has_webhook:
            key = (workspace_id, notice_id)
            outbox.add(book.connection, key, outbox.ROOT, root_id, owner.id, book.now)
            after_commit(book.connection, self._outbox.wake)

    async def get(self, principal: Principal, request: pb.GetRootRequest) -> pb.Root:
        """Return a root that the person may see."""
        first = await self._find(principal, request)
        return await self._shown(principal, first)

    async def extend(self, principal: Principal, request: pb.ExtendRootRequest) -> pb.Root:
        """Grant a root more turns."""
        first = await self._find(principal, request)
        agent = self._directory.agent(principal.workspace_id, rows.began_with(first))
        if agent is None or self._directory.role_on_agent(principal.id, agent) < ADMIN:
            name = agent.name if agent is not None else "the agent that it began with"
            raise needs_role(ADMIN, f"{name}, with which the root began")
        await self._journal.write(lambda book: self._extend(book, principal, first, request))
        self._noted.pop((first.workspace_id, first.root_id), None)
        # Told again by a call that is repeated, since the first may have died in between.
        kept = await self._journal.read(
            lambda connection: rows.find(connection, first.workspace_id, first.root_id)
        )
        extra = kept.extra_turns if kept is not None else 0
        await self._admission.extend_root(first.workspace_id, first.root_id, extra)
        return await self._shown(principal, first)

    def _extend(self, book: Book, principal: Principal, first: Record, request: pb.ExtendRootRequest) -> None:
        request_id = request.request_id.lower()
        content = f"extend root\0{first.root_id}\0{request.turns}"
        digest = hashlib.blake2b(content.encode(), digest_size=16).digest()
        if request_id and requests.was_made(book, principal, request_id, digest, first.root_id):
            return
        agent_id = rows.began_with(first)
        rows.extend(book, first.workspace_id, first.root_id, agent_id, request.turns)
        book.note(
            first.workspace_id,
            "root.extended",
            actor_of(self._directory, principal),
            agent_id=agent_id,
            details={"root_id": first.root_id, "turns": request.turns},
        )

    async def list_exhausted(
        self, principal: Principal, request: pb.ListExhaustedRootsRequest
    ) -> pb.ListExhaustedRootsResponse:
        """Return exhausted roots of the agents that the person owns or administers, the latest first."""
        size = page_size(request.page_size)
        query = ("exhausted roots", principal.workspace_id, principal.id)
        position = self._pager.position(query, request.page_token)
        before = (float(position[0] or 0), str(position[1])) if position else None
        workspace_id = principal.workspace_id
        agents = [agent.id for agent in self._directory.for_person(principal, ADMIN).ordered]

        def read(connection: Connection) -> list[tuple[Record, int]]:
            found = rows.exhausted(connection, workspace_id, agents, before, size + 1)
            return [(row, rows.count(connection, workspace_id, row.id)) for row in found]

        found = await self._journal.read(read)
        page = found[:size]
        response = pb.ListExhaustedRootsResponse(
            roots=[self._view(principal, row.id, row.agent_id, row, used) for row, used in page]
        )
        if len(found) > size:
            last = page[-1][0]
            response.next_page_token = self._pager.token(query, [last.exhausted_at, last.id])
        return response

    async def _find(self, principal: Principal, request: pb.GetRootRequest | pb.ExtendRootRequest) -> Record:
        """Return the first turn of the root that is named, if the person may look at it."""
        workspace_id, turn_id = principal.workspace_id, request.turn_id

        def read(connection: Connection) -> tuple[Record | None, Record | None]:
            turn = by_id(connection, turns, {(workspace_id, turn_id)}).get((workspace_id, turn_id))
            # A root is looked for whether there is a turn or not: both take as long.
            root_id = request.root_id or (turn.root_id if turn is not None else turn_id)
            return turn, rows.first_turn(connection, workspace_id, root_id)

        turn, first = await self._journal.read(read)
        agents = [rows.began_with(first)] if first is not None else []
        if turn is not None:
            agents.append(turn.agent_id)
        if first is None or not any(self._sees(principal, agent_id) for agent_id in agents):
            raise no_turn(turn_id) if turn_id else _no_root(request.root_id)
        return first

    def _sees(self, principal: Principal, agent_id: str) -> bool:
        agent = self._directory.agent(principal.workspace_id, agent_id)
        return agent is not None and self._directory.role_on_agent(principal.id, agent) >= VIEWER

    async def _shown(self, principal: Principal, first: Record) -> pb.Root:
        workspace_id, root_id = first.workspace_id, first.root_id

        def read(connection: Connection) -> tuple[Record | None, int]:
            return rows.find(connection, workspace_id, root_id), rows.count(connection, workspace_id, root_id)

        kept, used = await self._journal.read(read)
        return self._view(principal, root_id, rows.began_with(first), kept, used)

    def _view(
        self, principal: Principal, root_id: str, agent_id: str, kept: Record | None, used: int
    ) -> pb.Root:
        extra = kept.extra_turns if kept is not None else 0
        root = pb.Root(
            id=root_id,
            agent=self._views.party(principal, "agent", agent_id),
            turns=used,
            limit=self._directory.policy(principal.workspace_id).root_turns + extra,
            extra_turns=extra,
        )
        if kept is not None and kept.exhausted_at is not None:
            root.exhausted_at.CopyFrom(to_timestamp(kept.exhausted_at))
        return root


def _no_root(root_id: str) -> HoplineError:
    return HoplineError("not_found", f"there is no root {root_id!r}", details={"root_id": root_id})
