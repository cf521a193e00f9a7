"""VisibilityService: the same view and the same rules that the other services go by."""

# ruff: noqa: D102 - what each method does stands in the contract

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

from hopline.registry.v1 import visibility_pb2 as pb
from hopline.registry.v1.visibility_pb2_grpc import VisibilityServiceServicer
from hopline_directory import AgentRecord, Directory
from hopline_directory.convert import (
    agent_message,
    kind_number,
    policy_message,
    relation_number,
    role_number,
    user_message,
    workspace_message,
)
from hopline_rpc.auth import current_principal
from hopline_rpc.errors import HoplineError
from hopline_rpc.paging import Pager, page_size
from hopline_rpc.principals import Principal

from hopline_registry.feed import Feed

log = logging.getLogger("hopline.registry")


class VisibilityServicer(VisibilityServiceServicer):
    """Serves who sees whom, and the feed."""

    def __init__(self, directory: Directory, feed: Feed, pager: Pager, *, has_public_url: bool) -> None:
        self._directory = directory
        self._feed = feed
        self._pager = pager
        self._has_public_url = has_public_url

    async def ListPeers(self, request: pb.ListPeersRequest, context: Any) -> pb.ListPeersResponse:
        caller = current_principal()
        query = ["peers", caller.workspace_id, caller.id]
        (after,) = self._pager.position(query, request.page_token) or [""]
        page, more = self._directory.peers_after(caller, str(after), page_size(request.page_size))
        return pb.ListPeersResponse(
            peers=[self._peer(caller, agent) for agent in page],
            next_page_token=self._pager.token(query, [page[-1].slug]) if more else "",
        )

    async def Resolve(self, request: pb.ResolveRequest, context: Any) -> pb.ResolveResponse:
        caller = current_principal()
        try:
            agent = self._directory.resolve(caller, request.agent)
        except HoplineError:
            if log.isEnabledFor(logging.DEBUG):
                context.add_done_callback(lambda _: self._explain(caller, request.agent))
            raise
        return pb.ResolveResponse(peer=self._peer(caller, agent))

    async def ListConnections(
        self, request: pb.ListConnectionsRequest, context: Any
    ) -> pb.ListConnectionsResponse:
        caller = current_principal()
        query = ["connections", caller.workspace_id, caller.id]
        (after,) = self._pager.position(query, request.page_token) or [""]
        found = [
            pb.PeerConnection(
                name=connection.name, peer=self._peer(caller, peer), description=connection.description
            )
            for connection, peer in self._directory.connections(caller, has_public_url=self._has_public_url)
            if connection.name > str(after)
        ]
        page = found[: page_size(request.page_size)]
        more = len(page) < len(found)
        return pb.ListConnectionsResponse(
            connections=page, next_page_token=self._pager.token(query, [page[-1].name]) if more else ""
        )

    async def GetSelf(self, request: pb.GetSelfRequest, context: Any) -> pb.GetSelfResponse:
        caller = current_principal()
        directory, home = self._directory, caller.workspace_id
        agent = directory.agent(home, caller.id) if caller.kind == "agent" else None
        owner = directory.user(home, agent.owner_id if agent is not None else caller.id)
        workspace = directory.workspace(home)
        return pb.GetSelfResponse(
            agent=None if agent is None else agent_message(agent),
            owner=None if owner is None else user_message(owner),
            workspace=None if workspace is None else workspace_message(workspace),
            policy=policy_message(directory.policy(home)),
            workspace_role=role_number(directory.workspace_role(home, caller.id)),
        )

    async def WatchChanges(
        self, request: pb.WatchChangesRequest, context: Any
    ) -> AsyncIterator[pb.WatchChangesResponse]:
        async for response in self._feed.watch(request.from_seq):
            yield response

    def _peer(self, caller: Principal, agent: AgentRecord) -> pb.Peer:
        own = self._directory.agent(caller.workspace_id, caller.id)
        relation = "peer" if own is None else self._directory.relation(own, agent)
        return pb.Peer(
            id=agent.id,
            slug=agent.slug,
            name=agent.name,
            description=agent.description,
            relation=relation_number(relation),
            kind=kind_number(agent.kind),
            plugin_id=agent.plugin_id,
            plugin_name=self._directory.plugin_name(agent),
        )

    def _explain(self, caller: Principal, ref: str) -> None:
        """Say in the log why a look-up missed; the answer is out by then."""
        log.debug("%s may not address %r: %s", caller.id, ref, self._directory.why_hidden(caller, ref))
