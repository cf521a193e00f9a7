"""What agents offer: the tools of their workers and of their definitions, and whether one can be called."""

from __future__ import annotations

from typing import Any, Final

from hopline.relay.v1 import tool_pb2
from hopline_directory import Directory
from hopline_directory.records import AgentRecord
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.paging import Pager, fit, page_size
from hopline_rpc.principals import Principal

from hopline_relay.tool_runs import ToolRuns
from hopline_relay.tool_schemas import arguments_of, described

# How many names a refusal holds.
_NAMED: Final = 20


class ToolOffers:
    """What agents offer, and whether it can be called."""

    def __init__(self, directory: Directory, runs: ToolRuns, pager: Pager) -> None:
        self._directory = directory
        self._runs = runs
        self._pager = pager

    def list_tools(
        self, principal: Principal, request: tool_pb2.ListServerToolsRequest
    ) -> tool_pb2.ListServerToolsResponse:
        """Return a page of an agent's tools, in order of their names."""
        agent = self._directory.resolve(principal, request.agent)
        size = page_size(request.page_size)
        query = ("tools", principal.id, agent.id)
        position = self._pager.position(query, request.page_token)
        after = str(position[0]) if position else ""
        offered = self._runs.offered(agent.workspace_id, agent.id)
        named = {
            each.name: described(each.name, each.description, each.input_schema)
            for each in agent.server_tools
        }
        found = [each for name, each in sorted((named | offered).items()) if name > after]
        page = fit(
            tool_pb2.ServerTool(
                name=each.name,
                description=each.description,
                input_schema_json=each.input_json,
                output_schema_json=each.output_json,
                available=each.name in offered,
            )
            for each in found[:size]
        )
        response = tool_pb2.ListServerToolsResponse(tools=page)
        if len(found) > len(page):
            response.next_page_token = self._pager.token(query, [page[-1].name])
        return response

    def check(self, agent: AgentRecord, name: str, arguments: str) -> None:
        """Raise what is wrong with a call of this tool, as far as can be told here."""
        offered = self._runs.offered(agent.workspace_id, agent.id)
        if (tool := offered.get(name)) is not None:
            tool.check(arguments_of(arguments))
            return
        named = {each.name for each in agent.server_tools}
        details: dict[str, Any] = {"agent": agent.name, "tool": name}
        if name in named or not self._runs.attached(agent.workspace_id, agent.id):
            text = (
                f"{agent.name} is away: no worker that offers {name!r} is attached just now; try again later"
            )
            raise HoplineError("unavailable", text, details=details)
        names = sorted(named | offered.keys())
        if not names:
            raise HoplineError("failed_precondition", f"{agent.name} offers no tools", details=details)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        raise invalid("name", f"{agent.name} has no tool {name!r}; it has {', '.join(names[:_NAMED])}{more}")
