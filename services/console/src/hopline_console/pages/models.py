"""`/models`: the catalogue of models, their prices, and what agents without a model of their own run."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import model_pb2 as pb
from hopline_rpc.errors import HoplineError
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.blocks import Ask, Block, Cell, Code, Facts, Link, Links, Press, State, Table
from hopline_console.context import ConsoleContext
from hopline_console.forms import Field, Filled, Form
from hopline_console.nav import Item
from hopline_console.page import PAGE_SIZE as PAGE
from hopline_console.visit import Visit, routed
from hopline_console.words import ADMIN

NAV: Final = (Item("Set up", "Models", "/models"),)

_PRICES: Final = ("input_usd_per_1m", "output_usd_per_1m", "cached_usd_per_1m")
_MOST: Final = 200
_HINT: Final = "US dollars for a million tokens, such as 3 or 0.25; empty: unknown."
_FIELDS: Final = tuple(
    each.within(pb.Model.DESCRIPTOR)
    for each in (
        Field("model_identifier", "Identifier", hint="What its provider calls it; workers are told this."),
        Field("display_name", "Name", hint="What people read; empty: the identifier."),
        Field("input_usd_per_1m", "Price of input", hint=_HINT),
        Field("output_usd_per_1m", "Price of output", hint=_HINT),
        Field("cached_usd_per_1m", "Price of cached input", hint=_HINT),
    )
)
_NEW: Final = Form("/models", "A further model", "Add", _FIELDS, folded=True)


def routes(context: ConsoleContext) -> list[Route]:
    """Return the pages of models."""
    return [
        *routed(context, "/models", get=show, post=create),
        *routed(context, "/models/default", post=set_default),
        *routed(context, "/models/{model}", get=show_one, post=change),
        *routed(context, "/models/{model}/delete", post=delete),
    ]


async def show(visit: Visit) -> Response:
    """List the catalogue."""
    return await _page(visit, _NEW.empty())


async def _page(visit: Visit, filled: Filled) -> Response:
    request = pb.ListModelsRequest(page_size=PAGE, page_token=visit.asked("page"))
    page = await visit.mesh.models.ListModels(request)
    may = visit.role >= ADMIN
    rows = [_row(each, may=may) for each in page.models]
    columns = ("Name", "Identifier", "Input", "Output", "Cached", "Default")
    empty = "The catalogue is empty: agents may have any model, and their workers choose."
    blocks: list[Block] = [Table("Models", columns, rows, empty, more=page.next_page_token)]
    if may:
        if any(each.is_default for each in page.models):
            press = Press("/models/default", "Have no default", "", {"model": ""})
            blocks.append(Facts("", [("Let workers choose where an agent has no model", press)]))
        blocks.append(Ask(filled))
    lead = "Prices are in US dollars for a million tokens."
    return await visit.page("Models", blocks, lead=lead, filled=filled)


def _row(model: pb.Model, *, may: bool) -> list[Cell]:
    name: Cell = Link(model.display_name, f"/models/{model.id}") if may else model.display_name
    default: Cell = "no"
    if model.is_default:
        default = State("default", "good")
    elif may:
        default = Press("/models/default", "Make it the default", model.display_name, {"model": model.id})
    prices: list[Cell] = [_price(model, each) or "unknown" for each in _PRICES]
    return [name, Code(model.model_identifier), *prices, default]


def _price(model: pb.Model, name: str) -> str:
    return str(getattr(model, name)) if model.HasField(name) else ""  # type: ignore[arg-type]


def _values(model: pb.Model) -> dict[str, Any]:
    return {
        "model_identifier": model.model_identifier,
        "display_name": model.display_name,
        **{name: _price(model, name) for name in _PRICES},
    }


def _model(values: dict[str, Any], names: list[str]) -> pb.Model:
    """Return a model with the named values; a price that is left empty is unknown."""
    return pb.Model(**{name: values[name] for name in names if name not in _PRICES or values[name]})


async def create(visit: Visit) -> Response:
    """Add a model."""
    visit.require(visit.role, ADMIN)
    filled = _NEW.read(await visit.posted())

    async def act() -> Response:
        model = _model(filled.values, list(filled.values))
        made = await visit.mesh.models.CreateModel(pb.CreateModelRequest(model=model, request_id=filled.once))
        return visit.done("/models", f"{made.model.display_name} is added.")

    return await visit.answer(filled, act, lambda: _page(visit, filled))


async def _found(visit: Visit) -> pb.Model:
    visit.require(visit.role, ADMIN)
    page = await visit.mesh.models.ListModels(pb.ListModelsRequest(page_size=_MOST))
    for each in page.models:
        if each.id == visit.path("model"):
            return each
    raise HoplineError("not_found", "there is no such model")


def _form(model: pb.Model) -> Form:
    return Form(f"/models/{model.id}", "This model", "Save", _FIELDS, sees=True)


async def show_one(visit: Visit) -> Response:
    """Show a model to be changed."""
    model = await _found(visit)
    return await _one_page(visit, model, _form(model).empty(**_values(model)))


async def _one_page(visit: Visit, model: pb.Model, filled: Filled) -> Response:
    warning = "Agents that have it take the default from now on."
    press = Press(f"/models/{model.id}/delete", "Remove", model.display_name, warning=warning)
    blocks: list[Block] = [
        Links("Models", [Link("All models", "/models")]),
        Ask(filled),
        Facts("", [("Take it out of the catalogue", press)]),
    ]
    return await visit.page(model.display_name, blocks, filled=filled)


async def change(visit: Visit) -> Response:
    """Change what the person changed of a model."""
    posted = await visit.posted()
    model = await _found(visit)
    filled = _form(model).read(posted)
    filled.hold_against(_values(model))

    async def act() -> Response:
        changed = filled.changed()
        if changed:
            mask = FieldMask(paths=changed)
            wanted = _model(filled.values, changed)
            await visit.mesh.models.UpdateModel(
                pb.UpdateModelRequest(model_ref=model.id, model=wanted, update_mask=mask)
            )
        return visit.done("/models", "The model is changed." if changed else "Nothing was changed.")

    return await visit.answer(filled, act, lambda: _one_page(visit, model, filled))


async def set_default(visit: Visit) -> Response:
    """Say what agents without a model of their own run."""
    posted = await visit.posted()
    made = await visit.mesh.models.SetDefaultModel(
        pb.SetDefaultModelRequest(model=str(posted.get("model", "")))
    )
    said = (
        f"{made.model.display_name} is the default." if made.HasField("model") else "There is no default now."
    )
    return visit.done("/models", said)


async def delete(visit: Visit) -> Response:
    """Take a model out of the catalogue."""
    await visit.posted()
    await visit.mesh.models.DeleteModel(pb.DeleteModelRequest(model=visit.path("model"), force=True))
    return visit.done("/models", "The model is removed.")
