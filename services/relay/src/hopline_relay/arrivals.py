"""What comes in by webhooks: who signed it, and the turn that it becomes.

Whatever is wrong is refused in the same words after the same work: the agents of that slug are looked for in
every workspace, their webhooks of that name are read, and the body is signed with each secret, or with ones
that nobody has. Why it was refused is for the audit log of the agent alone, after the answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Final

from hopline.relay.v1 import message_pb2
from hopline.relay.v1 import webhook_pb2 as pb
from hopline_directory import Directory
from hopline_directory.records import OPERATOR, AgentRecord
from hopline_rpc import signatures, telemetry
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal
from hopline_rpc.signatures import Signature
from sqlalchemy import Connection

from hopline_relay.asks import Asks
from hopline_relay.domain.sources import FRESH_SECONDS, Source
from hopline_relay.drafts import Draft
from hopline_relay.journal import Journal
from hopline_relay.store import webhooks as rows
from hopline_relay.store.book import Book
from hopline_relay.store.sql import Record

# So many secrets are tried of every delivery, whether there are any or not.
_LEAST_TRIED: Final = 4
_NOBODYS: Final = "whs_nobody_has_this_one_it_only_takes_its_time"
_NOWHERE: Final = ("", "")
# Refusals of one kind are noted once in so many seconds: who has no secret must not fill the disk.
_NOTED_SECONDS: Final = 60.0
_KEPT: Final = 10_000


class Arrivals:
    """Serves `DeliverWebhook`."""

    def __init__(self, journal: Journal, directory: Directory, asks: Asks, clock: Clock) -> None:
        self._journal = journal
        self._directory = directory
        self._asks = asks
        self._clock = clock
        self._noted: OrderedDict[tuple[str, str], float] = OrderedDict()

    async def deliver(self, request: pb.DeliverWebhookRequest) -> message_pb2.TurnView:
        """Give an agent what came in, once a signature."""
        agents = {(agent.workspace_id, agent.id): agent for agent in self._directory.called(request.slug)}

        def read(connection: Connection) -> list[Record]:
            # At least one look, at what there cannot be.
            found = (rows.find(connection, (*key, request.name)) for key in agents or [_NOWHERE])
            return [row for row in found if row is not None]

        hooks = await self._journal.read(read)
        signature = signatures.read(request.signature)
        row = self._signer(hooks, signature, request.body.encode())
        fresh = abs(self._clock.now() - signature.at) <= FRESH_SECONDS
        if row is None:
            self._refused(hooks, "it was not signed with its secret")
            raise no_webhook()
        if problem := self._problem(row, agents[row.workspace_id, row.agent_id], fresh=fresh):
            self._refused([row], problem)
            raise no_webhook()
        return await self._asks.ask(_draft(row, request, signature), request.wait_seconds)

    def _signer(self, hooks: Sequence[Record], signature: Signature, body: bytes) -> Record | None:
        """Return the webhook with whose secret a body was signed."""
        now = self._clock.now()
        tried: list[tuple[Record | None, str]] = [(row, row.secret) for row in hooks]
        tried += [(row, row.old_secret) for row in hooks if row.old_until is not None and row.old_until > now]
        tried += [(None, _NOBODYS)] * (_LEAST_TRIED - len(tried))
        found = None
        for row, secret in tried:
            if signatures.matches(signature, secret, body) and row is not None:
                found = row
        return found

    def _problem(self, row: Record, agent: AgentRecord, *, fresh: bool) -> str:
        """Return why what was signed well is not taken, empty if it is."""
        if not fresh:
            return f"its time is more than {FRESH_SECONDS:g} s away from ours"
        if agent.state != "active":
            return f"the agent is {agent.state}"
        if agent.is_subagent:
            return "the agent is a subagent"
        if self._directory.role_on_agent(row.author_id, agent) < OPERATOR:
            return "who added it or last rotated its secret is no longer operator of the agent"
        return ""

    def _refused(self, hooks: Sequence[Record], reason: str) -> None:
        """Have the agents' people find out why; nobody waits for that."""
        now = self._clock.monotonic()
        for row in hooks:
            key = (row.id, reason)
            noted = self._noted.get(key)
            if noted is not None and noted + _NOTED_SECONDS > now:
                continue
            self._noted[key] = now
            self._noted.move_to_end(key)
            if len(self._noted) > _KEPT:
                self._noted.popitem(last=False)
            self._journal.along(partial(_note, row=row, reason=reason))


def _note(book: Book, row: Record, reason: str) -> None:
    actor = Source("webhook", row.id, row.name, row.author_id).actor
    details = {"code": "not_found", "message": reason}
    book.note(row.workspace_id, "webhook.refused", actor, agent_id=row.agent_id, details=details)


def _draft(row: Record, request: pb.DeliverWebhookRequest, signature: Signature) -> Draft:
    return Draft(
        principal=Principal(kind="user", id=row.author_id, workspace_id=row.workspace_id),
        kind="prompt",
        text=request.body,
        to=(row.agent_id,),
        subject=row.name,
        # What was signed alike is the same delivery; its time keeps it from being taken after a day.
        request_id=signature.digest,
        traceparent=telemetry.current_traceparent(),
        source=Source("webhook", row.id, row.name, row.author_id),
    )


def no_webhook() -> HoplineError:
    """Return the one answer to what was not signed by a webhook's secret, just now, for an active agent."""
    return HoplineError("not_found", "no webhook takes this: its address, signature or time is not right")
