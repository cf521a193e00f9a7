"""What agents have sent and received: put in order in the background, and shown to people."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from hopline.relay.v1 import exchange_pb2 as pb
from hopline_directory import Directory
from hopline_directory.records import VIEWER, AgentRecord
from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock, from_timestamp
from hopline_rpc.errors import HoplineError
from hopline_rpc.paging import Pager, fit, page_size
from hopline_rpc.principals import Principal
from sqlalchemy import Connection

from hopline_relay.domain.search import Term, matches, terms
from hopline_relay.journal import Journal
from hopline_relay.store import exchanges
from hopline_relay.store.bulk import by_id
from hopline_relay.store.copies import copies_of
from hopline_relay.store.exchanges import Place
from hopline_relay.store.schema import messages
from hopline_relay.store.sql import Record
from hopline_relay.view import DELIVERY_STATES, Views

log = logging.getLogger("hopline.relay.exchanges")

# How long messages lie before they are put in, unless somebody looks.
_LAG_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 5.0
# Between two transactions others get to write.
_PAUSE_SECONDS: Final = 0.01
# So many transactions a look waits for; an old record that is being put in takes longer and is shown as far
# as it is.
_MOST_BATCHES: Final = 20
# So many messages one page looks at.
_LOOKED_AT: Final = 1000
_CHUNK: Final = 200
_END: Final = 2**62
_STATE_NAMES: Final = {number: name for name, number in DELIVERY_STATES.items()}


class Indexer:
    """Puts what was committed in, by workspace."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._grown: set[str] = set()
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        journal.on_audit(self._on_growth)

    def start(self) -> None:
        """Begin, with what an earlier process has left."""
        self._task = detach(self._run(), name="exchange indexer")

    async def close(self) -> None:
        """Stop; what is left is put in after the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def catch_up(self, workspace_id: str, most: int = _MOST_BATCHES) -> bool:
        """Put in what was committed so far, so many batches at most; tells whether that was all."""
        async with self._turn:
            for _ in range(most):
                if not await self._journal.write(
                    partial(exchanges.put_in, workspace_id=workspace_id), within=[workspace_id]
                ):
                    return True
        return False

    def _on_growth(self, workspaces: list[str]) -> None:
        self._grown.update(workspaces)
        self._news.set()

    async def _run(self) -> None:
        await self._again(self._find_old)
        while True:
            await self._news.wait()
            await self._clock.sleep(_LAG_SECONDS)
            self._news.clear()
            grown, self._grown = self._grown, set()
            for workspace_id in sorted(grown):
                await self._again(partial(self._all_of, workspace_id))

    async def _find_old(self) -> None:
        self._on_growth(await self._journal.read(exchanges.workspaces_behind))

    async def _all_of(self, workspace_id: str) -> None:
        while not await self.catch_up(workspace_id, 1):
            await self._clock.sleep(_PAUSE_SECONDS)

    async def _again(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except HoplineError as error:
                log.warning("messages are put in order later: %s", error.message)
            except Exception:
                log.exception("messages could not be put in order; it is tried again")
            else:
                return
            await self._clock.sleep(_RETRY_SECONDS)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a list is narrowed to."""

    direction: int
    peer_id: str
    state: str
    kind: str
    since: float
    until: float


class Exchanges:
    """Serves ExchangeService."""

    def __init__(
        self, journal: Journal, directory: Directory, indexer: Indexer, views: Views, pager: Pager
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._indexer = indexer
        self._views = views
        self._pager = pager

    async def list_exchanges(
        self, principal: Principal, request: pb.ListExchangesRequest
    ) -> pb.ListExchangesResponse:
        """Return what an agent has sent and received."""
        agent = self._directory.resolve_for_person(principal, request.agent, VIEWER)
        wanted = terms(request.query)
        if request.query.strip() and not wanted:
            raise HoplineError("invalid_argument", "query: there is no word in it to look for")
        wish = self._wish(principal, request)
        size = page_size(request.page_size)
        query = ("exchanges", principal.id, agent.id, request.query, *(str(each) for each in _of(wish)))
        position = self._pager.position(query, request.page_token)
        before = int(position[0]) if position and isinstance(position[0], int) else _END
        await self._indexer.catch_up(agent.workspace_id)
        key = (agent.workspace_id, agent.id)
        rows, copies, reached = await self._journal.read(
            lambda connection: _read(connection, key, wanted, wish, before, size)
        )
        shown = [
            self._shown(principal, agent, row, copies[agent.workspace_id, row.id]) for row in rows[:size]
        ]
        page = fit(shown)
        # Found by what was written: where a hook has made other words of it, these have to fit too.
        told = [each for each in page if not wanted or matches(wanted, _words_of(each))]
        response = pb.ListExchangesResponse(exchanges=told)
        if len(rows) > len(page):
            response.next_page_token = self._pager.token(query, [rows[len(page) - 1].ordinal])
        elif reached:
            response.next_page_token = self._pager.token(query, [reached])
        return response

    def _wish(self, principal: Principal, request: pb.ListExchangesRequest) -> _Wish:
        since = from_timestamp(getattr(request, "from")) if request.HasField("from") else 0.0
        until = from_timestamp(request.until) if request.HasField("until") else float("inf")
        peer = self._peer(principal, request.peer) if request.peer else ""
        state = _STATE_NAMES.get(request.state, "") if request.state else ""
        return _Wish(request.direction, peer, state, request.kind, since, until)

    def _peer(self, principal: Principal, ref: str) -> str:
        """Return the id of whoever is meant; with one the reader may not know nothing is found."""
        for agent in self._directory.agents(principal.workspace_id):
            if ref in (agent.id, agent.slug, agent.name) and self._directory.may_know(principal, agent.id):
                return agent.id
        user = self._directory.person(principal.workspace_id, ref)
        return user.id if user is not None else "nobody"

    def _shown(
        self, reader: Principal, agent: AgentRecord, row: Record, copies: Sequence[Record]
    ) -> pb.Exchange:
        sent = row.from_id == agent.id
        own = next((copy for copy in copies if copy.recipient_id == agent.id), None)
        other = copies[0] if sent and copies else None
        mine = row.from_session_id if sent else (own.session_id if own is not None else "")
        theirs, who = (
            (other.session_id, other.recipient_id)
            if sent and other is not None
            else (row.from_session_id, row.from_id)
        )
        turn_id = row.from_turn_id if sent else (own.turn_id if own is not None else "")
        return pb.Exchange(
            message=self._views.message(reader, row, copies),
            direction=pb.EXCHANGE_DIRECTION_SENT if sent else pb.EXCHANGE_DIRECTION_RECEIVED,
            kind=row.kind,
            session_id=mine,
            linked_session_id=theirs if self._directory.may_know(reader, who) else "",
            turn_id=turn_id,
            trace_id=row.traceparent[3:35],
        )


def _words_of(exchange: pb.Exchange) -> str:
    return f"{exchange.message.subject} {exchange.message.body}"


def _of(wish: _Wish) -> tuple[object, ...]:
    return (wish.direction, wish.peer_id, wish.state, wish.kind, wish.since, wish.until)


def _read(
    connection: Connection,
    key: tuple[str, str],
    wanted: Sequence[Term],
    wish: _Wish,
    before: int,
    size: int,
) -> tuple[list[Record], dict[tuple[str, str], list[Record]], int]:
    """Return what fits, one more than asked for where there is more; and where a bounded look has stopped."""
    found: list[Record] = []
    copies: dict[tuple[str, str], list[Record]] = {}
    looked = 0
    while looked < _LOOKED_AT:
        places = _places(connection, key, wanted, before)
        rows = by_id(connection, messages, {(key[0], place.message_id) for place in places})
        some = copies_of(connection, rows)
        for place in places:
            row = rows.get((key[0], place.message_id))
            before = place.ordinal
            if row is not None and _fits(row, some[key[0], row.id], key[1], wish):
                found.append(row)
                copies[key[0], row.id] = some[key[0], row.id]
                if len(found) > size:
                    return found, copies, 0
            if row is not None and row.created_at < wish.since - 1:
                return found, copies, 0  # the rest is older still
        looked += len(places)
        if len(places) < _CHUNK:
            return found, copies, 0
    return found, copies, before


def _places(connection: Connection, key: tuple[str, str], wanted: Sequence[Term], before: int) -> list[Place]:
    if wanted:
        return exchanges.found(connection, key, wanted, before, _CHUNK)
    return exchanges.page(connection, key, before, _CHUNK)


def _fits(row: Record, copies: Sequence[Record], agent_id: str, wish: _Wish) -> bool:
    sent = row.from_id == agent_id
    if wish.direction and sent != (wish.direction == pb.EXCHANGE_DIRECTION_SENT):
        return False
    if wish.kind and row.kind != wish.kind:
        return False
    if not wish.since <= row.created_at < wish.until:
        return False
    if (
        wish.peer_id
        and wish.peer_id != row.from_id
        and all(copy.recipient_id != wish.peer_id for copy in copies)
    ):
        return False
    return not wish.state or any(
        copy.state == wish.state for copy in copies if sent or copy.recipient_id == agent_id
    )
