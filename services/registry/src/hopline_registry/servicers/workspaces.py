"""WorkspaceService."""

# ruff: noqa: D102 - what each method does stands in the contract

from __future__ import annotations

from typing import Any

from google.protobuf import json_format
from hopline.registry.v1 import workspace_pb2 as pb
from hopline.registry.v1.workspace_pb2_grpc import WorkspaceServiceServicer
from hopline_directory.convert import workspace_message
from hopline_rpc.auth import current_principal, subject
from hopline_rpc.paging import Pager, page_size

from hopline_registry.domain.policies import KEYS, PRESETS
from hopline_registry.servicers.masks import chosen, overlay
from hopline_registry.workspaces import Workspaces

_FIXED = {"preset": "is chosen by ApplyPreset"}


class WorkspaceServicer(WorkspaceServiceServicer):
    """Serves workspaces and policies."""

    def __init__(self, workspaces: Workspaces, pager: Pager) -> None:
        self._workspaces = workspaces
        self._pager = pager

    async def CreateWorkspace(
        self, request: pb.CreateWorkspaceRequest, context: Any
    ) -> pb.CreateWorkspaceResponse:
        workspace = await self._workspaces.create(current_principal(), request)
        return pb.CreateWorkspaceResponse(workspace=workspace_message(workspace))

    async def GetWorkspace(self, request: pb.GetWorkspaceRequest, context: Any) -> pb.GetWorkspaceResponse:
        workspace = await self._workspaces.get(_home())
        return pb.GetWorkspaceResponse(workspace=workspace_message(workspace))

    async def ListWorkspaces(
        self, request: pb.ListWorkspacesRequest, context: Any
    ) -> pb.ListWorkspacesResponse:
        caller = current_principal()
        size = page_size(request.page_size)
        query = ["workspaces", caller.workspace_id]
        (after,) = self._pager.position(query, request.page_token) or [""]
        found = await self._workspaces.list(caller, str(after), size + 1)
        return pb.ListWorkspacesResponse(
            workspaces=[workspace_message(workspace) for workspace in found[:size]],
            next_page_token=self._pager.token(query, [found[size - 1].name]) if len(found) > size else "",
        )

    async def GetPolicy(self, request: pb.GetPolicyRequest, context: Any) -> pb.GetPolicyResponse:
        return pb.GetPolicyResponse(policy=await self._workspaces.policy(_home()))

    async def UpdatePolicy(self, request: pb.UpdatePolicyRequest, context: Any) -> pb.UpdatePolicyResponse:
        paths = chosen(request.update_mask, KEYS, _FIXED)
        base = json_format.ParseDict(dict(PRESETS["default"]), pb.Policy())
        checked = overlay(base, request.policy, paths)
        wanted = {path: getattr(checked, path) for path in paths}
        expected = None
        if request.HasField("expected"):
            expected = {path: getattr(request.expected, path) for path in paths}
        policy = await self._workspaces.update_policy(current_principal(), wanted, expected)
        return pb.UpdatePolicyResponse(policy=policy)

    async def GetPresets(self, request: pb.GetPresetsRequest, context: Any) -> pb.GetPresetsResponse:
        presets = [json_format.ParseDict(dict(each), pb.Policy()) for each in PRESETS.values()]
        return pb.GetPresetsResponse(presets=presets)

    async def ApplyPreset(self, request: pb.ApplyPresetRequest, context: Any) -> pb.ApplyPresetResponse:
        policy = await self._workspaces.apply_preset(current_principal(), request.preset)
        return pb.ApplyPresetResponse(policy=policy)


def _home() -> str:
    """Return the workspace that a question is about: of whom a service asks for, else the caller's."""
    return (subject() or current_principal()).workspace_id
