"""Tells owners of the questions of their agents, by the webhooks that were set for them.

What is to be told is written with the question and goes once it was told, so that a restart loses none; it is
tried again, ever more slowly, for about an hour, and not once the question has ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import grpc.aio
from hopline.registry.v1.identity_pb2 import GetUserWebhookRequest, GetUserWebhookResponse
from hopline.registry.v1.identity_pb2_grpc import IdentityServiceStub
from hopline_directory import Directory
from hopline_rpc import signatures
from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock, rfc3339
from hopline_rpc.errors import HoplineError

from hopline_relay.domain.notices import MAX_ATTEMPTS, pause
from hopline_relay.domain.values import MESH
from hopline_relay.escalation_ends import note_escalation
from hopline_relay.journal import Journal
from hopline_relay.posting import Poster
from hopline_relay.store import escalating, noticing
from hopline_relay.store.book import Book
from hopline_relay.store.escalating import options_of
from hopline_relay.store.sql import Record

log = logging.getLogger("hopline.relay.notices")

# At once; and how often is looked whether there is anything to tell that nobody has spoken of.
_MOST: Final = 8
_LOOK_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 5.0


class OwnerNotices:
    """Sends notices."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        registry: grpc.aio.Channel,
        post: Poster,
        clock: Clock,
        chance: Callable[[], float],
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._stub = IdentityServiceStub(registry)
        self._post = post
        self._clock = clock
        self._chance = chance
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to send."""
        self._task = detach(self._run(), name="owner notices")

    async def close(self) -> None:
        """Stop; what was not told is told by the next process."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._post.close()

    def wake(self) -> None:
        """Say that there is something to tell."""
        self._news.set()

    async def _run(self) -> None:
        while True:
            self._news.clear()
            seconds = _RETRY_SECONDS
            try:
                await self.tell()
                seconds = await self._rest()
            except HoplineError as error:
                log.warning("owners are told later: %s", error.message)
            except Exception:
                log.exception("owners cannot be told just now")
            timer = self._clock.call_later(seconds, self._news.set)
            try:
                await self._news.wait()
            finally:
                timer.cancel()

    async def _rest(self) -> float:
        """Return how long there is nothing to do."""
        due = await self._journal.read(noticing.next_due)
        return _LOOK_SECONDS if due is None else min(_LOOK_SECONDS, max(0.0, due - self._clock.now()))

    async def tell(self) -> None:
        """Tell whatever is due."""
        while True:
            now = self._clock.now()
            rows = await self._journal.read(partial(noticing.due, now=now, most=_MOST))
            if not rows:
                return
            await asyncio.gather(*(self._tell(row) for row in rows))

    async def _tell(self, notice: Record) -> None:
        key = (notice.workspace_id, notice.escalation_id)
        row = await self._journal.read(lambda connection: escalating.find(connection, key))
        webhook = await self._webhook(notice)
        if row is None or row.state != "pending" or row.owner_id != notice.owner_id or webhook is None:
            await self._journal.write(lambda book: noticing.remove(book.connection, notice))
            return
        body = json.dumps(self._body(notice, row), ensure_ascii=False).encode()
        headers = {
            "Content-Type": "application/json",
            "Hopline-Delivery": notice.id,
            signatures.HEADER: signatures.sign(webhook.secret, body, int(self._clock.now())),
        }
        problem = await self._post(webhook.url, body, headers)
        await self._journal.write(partial(self._settle, notice=notice, row=row, problem=problem))

    def _settle(self, book: Book, notice: Record, row: Record, problem: str) -> None:
        """Note that an owner was told, or have it tried again, or give it up."""
        attempts = notice.attempts + 1
        if not problem:
            if noticing.remove(book.connection, notice):
                note_escalation(book, row, "escalation.notified", MESH, {})
        elif attempts >= MAX_ATTEMPTS:
            if noticing.remove(book.connection, notice):
                note_escalation(book, row, "escalation.not_notified", MESH, {"reason": problem})
        else:
            noticing.put_off(book.connection, notice, attempts, book.now + pause(attempts, self._chance()))

    async def _webhook(self, notice: Record) -> GetUserWebhookResponse | None:
        """Return where the owner is told; None when that was taken away."""
        request = GetUserWebhookRequest(workspace_id=notice.workspace_id, user_id=notice.owner_id)
        try:
            found: GetUserWebhookResponse = await self._stub.GetUserWebhook(request)
        except HoplineError as error:
            if error.reason == "not_found":
                return None
            raise
        return found

    def _body(self, notice: Record, row: Record) -> dict[str, Any]:
        agent = self._directory.agent(row.workspace_id, row.agent_id)
        owner = self._directory.user(row.workspace_id, row.owner_id)
        workspace = self._directory.workspace(row.workspace_id)
        return {
            "event": "escalation.asked",
            "delivery_id": notice.id,
            "workspace": {"id": row.workspace_id, "name": workspace.name if workspace is not None else ""},
            "escalation": {
                "id": row.id,
                "agent": {"id": row.agent_id, "name": agent.name if agent is not None else ""},
                "owner": {"id": row.owner_id, "name": owner.name if owner is not None else ""},
                "question": row.question,
                "options": options_of(row),
                "created_at": rfc3339(row.created_at),
                "expires_at": rfc3339(row.expires_at),
            },
            "answer_with": f"hopline answer {row.id} TEXT",
        }
