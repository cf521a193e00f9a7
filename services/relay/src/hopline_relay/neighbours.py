"""Calls that another relay has to serve: of server tools whose worker is attached there.

A tool runs where its worker's tunnel is, and nothing of a call that waits for its place is in the record. So
the call as a whole goes to the other relay, in the caller's own name; that one serves it as if the caller had
come to it, and hands it on no further. Whoever leaves here leaves there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from hopline.relay.v1 import tool_pb2 as pb
from hopline.relay.v1.tool_pb2_grpc import ToolServiceStub
from hopline_directory import Directory
from hopline_rpc.auth import AUTHORIZATION
from hopline_rpc.channels import ClientChannel, Pairs
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal

from hopline_relay.domain.values import MAX_WAIT_SECONDS
from hopline_relay.journal import Journal
from hopline_relay.siblings import Siblings
from hopline_relay.store import queues
from hopline_relay.tool_runs import ToolRuns

if TYPE_CHECKING:
    from hopline.relay.v1.tool_pb2_grpc import ToolServiceAsyncStub

# Said with a call that was handed on.
HANDED_ON: Final = "hopline-handed-on"
_LIST_SECONDS: Final = 5.0
_MARGIN_SECONDS: Final = 5.0


class Neighbours:
    """Hands calls on."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        siblings: Siblings,
        runs: ToolRuns,
        dialled: Callable[[str], ClientChannel],
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._siblings = siblings
        self._runs = runs
        self._dial = dialled
        self._channels: dict[str, ClientChannel] = {}

    async def call_tool(
        self, principal: Principal, request: pb.CallToolRequest, turn_id: str
    ) -> pb.CallToolResponse | None:
        """Have a tool run at the relay of its worker; None where it runs here, or nowhere."""
        address = await self._where(principal, request.agent, request.name)
        if not address:
            return None
        if turn_id:
            handed = pb.CallToolRequest()
            handed.CopyFrom(request)
            handed.caller_session_id = await self._session_of(principal.workspace_id, turn_id)
            request = handed
        seconds = min(request.timeout_seconds or MAX_WAIT_SECONDS, MAX_WAIT_SECONDS) + _MARGIN_SECONDS
        return await self._stub(address, principal).CallTool(request, timeout=seconds)

    async def list_tools(
        self, principal: Principal, request: pb.ListServerToolsRequest
    ) -> pb.ListServerToolsResponse | None:
        """Have the relay of an agent's workers say what they offer; None where none is elsewhere alone."""
        addresses = self._elsewhere(principal, request.agent, "")
        if not addresses:
            return None
        return await self._stub(addresses[0], principal).ListServerTools(request, timeout=_LIST_SECONDS)

    async def close(self) -> None:
        """Close what was opened."""
        for channel in self._channels.values():
            await channel.close()

    # --- whom ---------------------------------------------------------------------------------------

    async def _where(self, principal: Principal, agent: str, name: str) -> str:
        """Return the relay at which a worker of the agent offers the tool, unless one does here."""
        addresses = self._elsewhere(principal, agent, name)
        if len(addresses) <= 1:
            return addresses[0] if addresses else ""
        for address in addresses:
            stub = self._stub(address, principal)
            request = pb.ListServerToolsRequest(agent=agent, page_size=200)
            try:
                found = await stub.ListServerTools(request, timeout=_LIST_SECONDS)
            except HoplineError:
                continue
            if any(tool.name == name and tool.available for tool in found.tools):
                return address
        return ""

    def _elsewhere(self, principal: Principal, ref: str, name: str) -> list[str]:
        """Return the relays where workers of an agent are, of whom none here offers the tool, or anything."""
        if not self._siblings.have_any:
            return []
        try:
            agent = self._directory.resolve(principal, ref)
        except HoplineError:
            return []  # said in full by whoever serves the call
        offered = self._runs.offered(agent.workspace_id, agent.id)
        if name in offered if name else offered:
            return []
        return self._siblings.addresses(agent.workspace_id, agent.id)

    async def _session_of(self, workspace_id: str, turn_id: str) -> str:
        """Return the session in which the turn runs that a call comes from."""
        key = (workspace_id, turn_id)
        row = (await self._journal.read(lambda connection: queues.find(connection, {key}))).get(key)
        return "" if row is None else str(row.run_session_id or row.session_id)

    def _stub(self, address: str, principal: Principal) -> ToolServiceAsyncStub:
        if address not in self._channels:
            self._channels[address] = self._dial(address)
        pairs: Pairs = ((AUTHORIZATION, f"Bearer {principal.assertion}"), (HANDED_ON, "1"))
        return ToolServiceStub(ClientChannel(self._channels[address], lambda: pairs))
