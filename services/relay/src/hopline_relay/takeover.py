"""Takes what the registry says of its own changes over into the audit log, each change once.

How far it got stands in the record and moves in the same transaction, so that a change is never written
twice, whoever was stopped where.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

import grpc.aio
from google.protobuf import json_format
from hopline.registry.v1.visibility_pb2 import Change, WatchChangesRequest, WatchChangesResponse
from hopline.registry.v1.visibility_pb2_grpc import VisibilityServiceStub
from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock, from_timestamp
from hopline_rpc.errors import HoplineError

from hopline_relay.domain.values import Actor
from hopline_relay.journal import Journal
from hopline_relay.store import audit
from hopline_relay.store.book import Book

log = logging.getLogger("hopline.relay.takeover")

SOURCE: Final = "registry"
_RETRY_SECONDS: Final = 0.5
# The first change of all is the installation itself; 0 would ask for a snapshot, which says nothing of
# how things came about.
_BEGINNING: Final = 1


class TakeOver:
    """Follows the registry for the audit log."""

    def __init__(self, channel: grpc.aio.Channel, journal: Journal, clock: Clock) -> None:
        self._stub = VisibilityServiceStub(channel)
        self._journal = journal
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow."""
        self._task = detach(self._run(), name="audit take-over")

    async def close(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
            except HoplineError as error:
                log.debug("the stream of changes ended: %s", error.message)
            except Exception:
                log.exception("changes cannot be taken over into the audit log")
            await self._clock.sleep(_RETRY_SECONDS)

    async def _follow(self) -> None:
        seen = await self._journal.read(lambda connection: audit.source_seq(connection, SOURCE))
        call = self._stub.WatchChanges(WatchChangesRequest(from_seq=max(seen, _BEGINNING)))
        try:
            async for response in call:
                seen = await self._take(seen, response)
        finally:
            call.cancel()

    async def _take(self, seen: int, response: WatchChangesResponse) -> int:
        """Take one answer over; returns how far that got."""
        if response.snapshot:
            # What came in between is gone at the registry; go on from here.
            upto, news = (response.head_seq if response.snapshot_end else seen), []
        else:
            news = [change for change in response.changes if change.seq > seen]
            upto = news[-1].seq if news else seen
        if upto == seen:
            return seen

        def op(book: Book) -> bool:
            if not audit.advance_source(book, SOURCE, seen, upto):
                return False
            _write(book, news)
            return True

        if await self._journal.write(op):
            return upto
        return await self._journal.read(lambda connection: audit.source_seq(connection, SOURCE))


def _write(book: Book, changes: Sequence[Change]) -> None:
    for change in changes:
        # What concerns no workspace (the signing keys) has no log to stand in.
        if not change.HasField("audit") or not change.workspace_id:
            continue
        note = change.audit
        book.note(
            change.workspace_id,
            note.action,
            Actor(note.actor_kind, note.actor_id, note.actor_name),
            agent_id=_agent_of(change),
            details=_details(note),
            at=from_timestamp(change.at),
        )


def _agent_of(change: Change) -> str:
    """Return the agent that a change is about, if it is about one."""
    kind = change.WhichOneof("entity")
    if kind == "agent":
        return change.agent.id
    if kind == "agent_deleted":
        return change.agent_deleted
    if kind in ("role_granted", "role_revoked"):
        return str(getattr(change, kind).agent_id)
    if kind in ("token_created", "token_revoked"):
        return str(getattr(change, kind).subject_id)
    return ""


def _details(note: Any) -> dict[str, Any]:
    details: dict[str, Any] = json_format.MessageToDict(note.details)
    return details
