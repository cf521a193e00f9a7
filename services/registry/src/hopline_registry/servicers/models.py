"""ModelService."""

# ruff: noqa: D102 - what each method does stands in the contract

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import Any, Final

from hopline.registry.v1 import model_pb2 as pb
from hopline.registry.v1.model_pb2_grpc import ModelServiceServicer
from hopline_directory.convert import model_message, model_record
from hopline_rpc.auth import current_principal
from hopline_rpc.paging import Pager, page_size

from hopline_registry.models import Models
from hopline_registry.servicers.masks import chosen, overlay

_UPDATABLE: Final = (
    "model_identifier",
    "display_name",
    "input_usd_per_1m",
    "output_usd_per_1m",
    "cached_usd_per_1m",
    "is_default",
)
_FIXED: Final = {"id": "is given by the mesh", "created_at": "is given by the mesh"}


class ModelServicer(ModelServiceServicer):
    """Serves the catalogue of models."""

    def __init__(self, models: Models, pager: Pager) -> None:
        self._models = models
        self._pager = pager

    async def CreateModel(self, request: pb.CreateModelRequest, context: Any) -> pb.CreateModelResponse:
        caller = current_principal()
        wish = model_record(caller.workspace_id, request.model)
        model = await self._models.create(caller, request, wish)
        return pb.CreateModelResponse(model=model_message(model))

    async def ListModels(self, request: pb.ListModelsRequest, context: Any) -> pb.ListModelsResponse:
        caller = current_principal()
        query = ["models", caller.workspace_id]
        catalogue = self._models.list(caller)
        (after,) = self._pager.position(query, request.page_token) or [""]
        start = bisect_right(catalogue, str(after), key=lambda model: model.model_identifier)
        page = catalogue[start : start + page_size(request.page_size)]
        more = start + len(page) < len(catalogue)
        return pb.ListModelsResponse(
            models=map(model_message, page),
            next_page_token=self._pager.token(query, [page[-1].model_identifier]) if more else "",
        )

    async def UpdateModel(self, request: pb.UpdateModelRequest, context: Any) -> pb.UpdateModelResponse:
        caller = current_principal()
        paths = chosen(request.update_mask, _UPDATABLE, _FIXED)
        checked = overlay(pb.Model(model_identifier="-"), request.model, paths)
        wish = model_record(caller.workspace_id, checked)
        # What stands in for a name that is empty is the model's own identifier, not the wish's.
        wish = replace(wish, display_name=checked.display_name)
        model = await self._models.update(caller, request.model_ref, wish, paths)
        return pb.UpdateModelResponse(model=model_message(model))

    async def SetDefaultModel(
        self, request: pb.SetDefaultModelRequest, context: Any
    ) -> pb.SetDefaultModelResponse:
        model = await self._models.set_default(current_principal(), request.model)
        return pb.SetDefaultModelResponse(model=None if model is None else model_message(model))

    async def DeleteModel(self, request: pb.DeleteModelRequest, context: Any) -> pb.DeleteModelResponse:
        await self._models.delete(current_principal(), request.model, force=request.force)
        return pb.DeleteModelResponse()
