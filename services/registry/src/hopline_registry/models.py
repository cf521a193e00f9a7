"""The workspaces' catalogues of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Final

from hopline.registry.v1.model_pb2 import CreateModelRequest
from hopline_directory import ADMIN, AgentRecord, ModelRecord
from hopline_directory.convert import agent_message, model_message
from hopline_directory.plugins import MODELS_READ
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.principals import Principal

from hopline_registry.core import Core, Tx
from hopline_registry.domain.models import MAX_MODELS, named
from hopline_registry.domain.names import name_problem
from hopline_registry.store import agents as agent_rows
from hopline_registry.store import models as rows

_SHOWN: Final = 20


class Models:
    """One method an RPC."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def create(self, caller: Principal, request: CreateModelRequest, wish: ModelRecord) -> ModelRecord:
        """Add a model to the catalogue."""

        def op(tx: Tx) -> ModelRecord:
            tx.require(ADMIN)
            catalogue = rows.models_of(tx.conn, wish.workspace_id)
            earlier = tx.earlier(request, request.request_id)
            if earlier is not None and (known := named(catalogue, earlier)):
                return known
            if len(catalogue) >= MAX_MODELS:
                raise HoplineError(
                    "limit_reached",
                    f"the catalogue holds {len(catalogue)} models, as many as it may; remove one",
                )
            _check(wish, catalogue)
            model = replace(wish, id=tx.ids.new_id("mdl"), created_at=tx.now)
            if model.is_default:
                _demote(tx, catalogue)
            rows.add_model(tx.conn, model)
            _changed(tx, model, "model.created")
            tx.made(request, request.request_id, model.id)
            return model

        return await self._core.write(caller, op)

    def list(self, caller: Principal) -> Sequence[ModelRecord]:
        """Return the catalogue, in order of identifier; a plugin needs to be allowed to read it."""
        if caller.kind == "plugin":
            self._core.directory.plugin_for(caller, MODELS_READ)
        return self._core.directory.models(caller.workspace_id)

    async def update(
        self, caller: Principal, ref: str, wish: ModelRecord, names: Sequence[str]
    ) -> ModelRecord:
        """Take the named fields from `wish`, which have been checked one by one."""

        def op(tx: Tx) -> ModelRecord:
            tx.require(ADMIN)
            catalogue = rows.models_of(tx.conn, caller.workspace_id)
            before = _found(catalogue, ref)
            values = {name: getattr(wish, name) for name in names}
            if before.display_name == before.model_identifier:
                values.setdefault("display_name", "")  # it was called by its identifier, and is
            model = replace(before, **values)
            model = replace(model, display_name=model.display_name or model.model_identifier)
            _check(model, catalogue)
            if model.is_default and not before.is_default:
                _demote(tx, catalogue)
            _save(tx, before, model)
            return model

        return await self._core.write(caller, op)

    async def set_default(self, caller: Principal, ref: str) -> ModelRecord | None:
        """Make a model the default, or have none."""

        def op(tx: Tx) -> ModelRecord | None:
            tx.require(ADMIN)
            catalogue = rows.models_of(tx.conn, caller.workspace_id)
            if not ref:
                _demote(tx, catalogue)
                return None
            before = _found(catalogue, ref)
            model = replace(before, is_default=True)
            if not before.is_default:
                _demote(tx, catalogue)
                _save(tx, before, model)
            return model

        return await self._core.write(caller, op)

    async def delete(self, caller: Principal, ref: str, *, force: bool) -> None:
        """Take a model out of the catalogue; with `force` the agents that have it take the default."""

        def op(tx: Tx) -> None:
            tx.require(ADMIN)
            model = _found(rows.models_of(tx.conn, caller.workspace_id), ref)
            users = agent_rows.agents_with(tx.conn, caller.workspace_id, model_id=model.id)
            if users and not force:
                raise _in_use(model, users)
            for agent in users:
                freed = replace(agent, model_id="")
                agent_rows.save_agent(tx.conn, freed)
                details = {"slug": agent.slug, "name": agent.name, "fields": ["model_id"]}
                tx.changed(agent.workspace_id, "agent.updated", details, agent=agent_message(freed))
            rows.drop_model(tx.conn, model)
            tx.changed(model.workspace_id, "model.deleted", _details(model), model_deleted=model.id)

        await self._core.write(caller, op)


def model_id_for(tx: Tx, ref: str) -> str:
    """Return the id of the model that an agent is to have; any text goes while there is no catalogue."""
    catalogue = rows.models_of(tx.conn, tx.actor.workspace_id) if ref else ()
    if not catalogue:
        return ref
    found = named(catalogue, ref)
    if found is None:
        there = ", ".join(each.model_identifier for each in catalogue[:_SHOWN])
        raise invalid("agent.model_id", f"there is no model {ref!r} in the catalogue; there are: {there}")
    return found.id


def _found(catalogue: Sequence[ModelRecord], ref: str) -> ModelRecord:
    model = named(catalogue, ref)
    if model is None:
        raise HoplineError("not_found", f"there is no model {ref!r}", details={"model": ref})
    return model


def _check(model: ModelRecord, catalogue: Sequence[ModelRecord]) -> None:
    for field in ("model_identifier", "display_name"):
        if problem := name_problem(getattr(model, field)):
            raise invalid(f"model.{field}", problem)
    there = named(catalogue, model.model_identifier)
    if there is not None and there.id != model.id:
        raise HoplineError(
            "failed_precondition",
            f"there is a model {model.model_identifier!r} already; change that one",
            violations=(("model.model_identifier", "is taken"),),
        )


def _demote(tx: Tx, catalogue: Sequence[ModelRecord]) -> None:
    """There is one default at most: the earlier one stops being it."""
    for earlier in catalogue:
        _save(tx, earlier, replace(earlier, is_default=False))


def _save(tx: Tx, before: ModelRecord, model: ModelRecord) -> None:
    changed = [each.name for each in fields(model) if getattr(before, each.name) != getattr(model, each.name)]
    if changed:
        rows.save_model(tx.conn, model)
        _changed(tx, model, "model.updated", changed)


def _changed(tx: Tx, model: ModelRecord, action: str, names: Sequence[str] = ()) -> None:
    details = {**_details(model), "fields": list(names)}
    tx.changed(model.workspace_id, action, details, model=model_message(model))


def _details(model: ModelRecord) -> dict[str, str]:
    return {"model": model.id, "model_identifier": model.model_identifier}


def _in_use(model: ModelRecord, users: Sequence[AgentRecord]) -> HoplineError:
    shown = ", ".join(each.slug for each in users[:_SHOWN])
    return HoplineError(
        "failed_precondition",
        f"{len(users)} agents have the model {model.model_identifier!r}: {shown}; give them another first, or"
        " force it: then they take the default",
        details={"model": model.id, "agents": len(users)},
    )
