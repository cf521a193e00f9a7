"""`hopline model`: the workspace's catalogue of models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopline_cli.output import Output
from hopline_cli.verbs import Cursor, Limit, command

if TYPE_CHECKING:
    from hopline.registry.v1 import agent_pb2
    from hopline.registry.v1 import model_pb2 as pb

    from hopline_cli.mesh import Mesh

model = typer.Typer(help="The models that agents run, and their prices.", no_args_is_help=True)

Ref = Annotated[str, typer.Argument(metavar="MODEL", help="Its id or identifier.")]
Title = Annotated[str | None, typer.Option("--name", help="How people call it.", show_default=False)]
Input = Annotated[
    str | None, typer.Option("--input", metavar="USD", help="For a million tokens in; none: unknown.")
]
OutputPrice = Annotated[
    str | None, typer.Option("--output", metavar="USD", help="For a million tokens out; none: unknown.")
]
Cached = Annotated[
    str | None, typer.Option("--cached", metavar="USD", help="For a million cached tokens; none: unknown.")
]

_NONE = "none"


@command(model, "add")
async def add_model(
    mesh: Mesh,
    out: Output,
    identifier: Annotated[str, typer.Argument(help="What its provider calls it; workers are told this.")],
    name: Title = None,
    input_price: Input = None,
    output_price: OutputPrice = None,
    cached_price: Cached = None,
    default: Annotated[bool, typer.Option("--default", help="Agents without a model run it.")] = False,
) -> None:
    """Add a model to the catalogue."""
    from hopline.registry.v1 import model_pb2 as pb

    from hopline_cli import crew_shapes

    wanted = pb.Model(model_identifier=identifier, display_name=name or "", is_default=default)
    _set_prices(wanted, input_price, output_price, cached_price)
    made = (await mesh.models.CreateModel(pb.CreateModelRequest(model=wanted))).model
    said = f"model {made.model_identifier} added ({made.id})" + (", the default" if made.is_default else "")
    out.result(crew_shapes.model(made), said)


@command(model, "list")
async def list_models(mesh: Mesh, out: Output, limit: Limit = 50, cursor: Cursor = "") -> None:
    """List the catalogue, with prices in US dollars for a million tokens."""
    from hopline.registry.v1 import model_pb2 as pb

    from hopline_cli import crew_shapes
    from hopline_cli.mesh import pages

    async def read(size: int, at: str) -> tuple[list[Any], str]:
        page = await mesh.models.ListModels(pb.ListModelsRequest(page_size=size, page_token=at))
        return [crew_shapes.model(each) for each in page.models], page.next_page_token

    items, rest = await pages(read, limit, cursor)
    columns = [("MODEL", "model_identifier"), ("NAME", "display_name"), ("DEFAULT", "is_default")]
    columns += [("INPUT", "input_usd_per_1m"), ("OUTPUT", "output_usd_per_1m")]
    columns += [("CACHED", "cached_usd_per_1m"), ("ID", "id")]
    out.rows("models", items, columns, rest)


@command(model, "set")
async def set_model(
    mesh: Mesh,
    out: Output,
    ref: Ref,
    identifier: Annotated[
        str | None, typer.Option(help="What its provider calls it from now on.", show_default=False)
    ] = None,
    name: Title = None,
    input_price: Input = None,
    output_price: OutputPrice = None,
    cached_price: Cached = None,
) -> None:
    """Change a model; what you leave out stays as it is."""
    from google.protobuf.field_mask_pb2 import FieldMask
    from hopline.registry.v1 import model_pb2 as pb

    from hopline_cli import crew_shapes

    wanted = pb.Model()
    paths = _set_prices(wanted, input_price, output_price, cached_price)
    for field, value in (("model_identifier", identifier), ("display_name", name)):
        if value is not None:
            setattr(wanted, field, value)
            paths.append(field)
    if not paths:
        raise typer.BadParameter("nothing to change: give at least one option")
    request = pb.UpdateModelRequest(model_ref=ref, model=wanted, update_mask=FieldMask(paths=paths))
    made = (await mesh.models.UpdateModel(request)).model
    out.result(crew_shapes.model(made), f"model {made.model_identifier} changed: {', '.join(paths)}")


@command(model, "default")
async def set_default(
    mesh: Mesh,
    out: Output,
    ref: Annotated[str, typer.Argument(metavar="[MODEL]", help="Its id or identifier.")] = "",
    none: Annotated[bool, typer.Option("--none", help="Have no default: workers choose.")] = False,
) -> None:
    """Say what agents without a model of their own run."""
    from hopline.registry.v1 import model_pb2 as pb

    from hopline_cli import crew_shapes

    if bool(ref) == none:
        raise typer.BadParameter("name a model, or give --none", param_hint="MODEL")
    made = await mesh.models.SetDefaultModel(pb.SetDefaultModelRequest(model=ref))
    if none:
        out.result({"default": None}, "there is no default model: workers choose")
        return
    out.result(crew_shapes.model(made.model), f"{made.model.model_identifier} is the default")


@command(model, "remove")
async def remove_model(
    mesh: Mesh,
    out: Output,
    ref: Ref,
    force: Annotated[
        bool, typer.Option("--force", help="Also if agents have it: they take the default.")
    ] = False,
) -> None:
    """Take a model out of the catalogue."""
    from hopline.registry.v1 import model_pb2 as pb

    await mesh.models.DeleteModel(pb.DeleteModelRequest(model=ref, force=force))
    out.result({"model": ref, "removed": True}, f"model {ref} removed")


async def told_to_run(mesh: Mesh, agent: agent_pb2.Agent) -> str | None:
    """Return what an agent's worker is told to run: its own model, else the default; None for neither."""
    from hopline.registry.v1 import model_pb2 as pb

    from hopline_cli.mesh import PAGE

    catalogue = (await mesh.models.ListModels(pb.ListModelsRequest(page_size=PAGE))).models
    if agent.model_id:
        own = (each.model_identifier for each in catalogue if each.id == agent.model_id)
        return next(own, agent.model_id)
    return next((each.model_identifier for each in catalogue if each.is_default), None)


def _set_prices(wanted: pb.Model, *prices: str | None) -> list[str]:
    """Set the prices that were given, and return their fields; `none` stands for one that is not known."""
    paths = []
    fields = ("input_usd_per_1m", "output_usd_per_1m", "cached_usd_per_1m")
    for field, price in zip(fields, prices, strict=True):
        if price is None:
            continue
        paths.append(field)
        if price != _NONE:
            setattr(wanted, field, price)
    return paths
