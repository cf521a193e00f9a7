"""The workspaces' catalogues of models."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from hopline_directory import ModelRecord
from hopline_directory.convert import price_text
from sqlalchemy import ColumnElement, Connection, Row, delete, select

from hopline_registry.store.schema import models

_PLAIN: Final = ("id", "workspace_id", "model_identifier", "display_name", "is_default", "created_at")
_PRICES: Final = ("input_usd_per_1m", "output_usd_per_1m", "cached_usd_per_1m")


def _values(model: ModelRecord) -> dict[str, Any]:
    return {
        **{name: getattr(model, name) for name in _PLAIN},
        **{name: price_text(getattr(model, name)) for name in _PRICES},
    }


def _record(row: Row[Any]) -> ModelRecord:
    values: dict[str, Any] = {name: getattr(row, name) for name in _PLAIN}
    for name in _PRICES:
        text = getattr(row, name)
        values[name] = None if text is None else Decimal(text)
    return ModelRecord(**values)


def add_model(conn: Connection, model: ModelRecord) -> None:
    """Store a new model."""
    conn.execute(models.insert().values(_values(model)))


def save_model(conn: Connection, model: ModelRecord) -> None:
    """Replace what is known of a model."""
    conn.execute(models.update().where(_is(model)).values(_values(model)))


def drop_model(conn: Connection, model: ModelRecord) -> None:
    """Take a model out of the catalogue."""
    conn.execute(delete(models).where(_is(model)))


def models_of(conn: Connection, workspace_id: str) -> Sequence[ModelRecord]:
    """Return a workspace's catalogue, in order of identifier."""
    query = select(models).where(models.c.workspace_id == workspace_id)
    return sorted(map(_record, conn.execute(query)), key=lambda model: model.model_identifier)


def all_models(conn: Connection) -> Sequence[ModelRecord]:
    """Return the models of all workspaces."""
    return [_record(row) for row in conn.execute(select(models))]


def _is(model: ModelRecord) -> ColumnElement[bool]:
    return (models.c.workspace_id == model.workspace_id) & (models.c.id == model.id)
