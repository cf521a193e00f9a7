"""Server tools: typed functions that other agents may call, without a turn of the model."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, get_type_hints, overload

from hopline.runtime.v1 import tunnel_pb2 as pb

if TYPE_CHECKING:
    from hopline_client.tool_threads import ToolThreads
    from hopline_client.turn import TurnMesh

_RESULT_BYTES: Final = 256 * 1024
_NAMED: Final = 5
Function = Callable[..., Any]


class ToolFailed(Exception):  # noqa: N818 - the call failed, not the worker
    """Raised in a tool: the call fails, and its caller gets exactly this text as the reason."""


class ToolRefusal(Exception):  # noqa: N818 - the arguments were refused
    """The arguments do not fit what the function takes; it was not called."""


class ToolContext:
    """Who calls a tool, and the way back to the mesh: a parameter of this type is filled in, not asked for.

    What is done through `mesh` counts as this call's: one deeper in its chain of delegations.
    """

    def __init__(self, call: pb.ToolCall, mesh: TurnMesh) -> None:
        self.name = call.name
        self.turn_id = call.turn_id
        self.session_id = call.session_id
        self.root_id = call.root_id
        self.depth = call.depth
        self.traceparent = call.traceparent
        # In unix seconds: by then nobody waits for the result any more.
        self.deadline = call.deadline.ToMicroseconds() / 1_000_000
        # `planner (for Alice)`.
        self.from_: str = getattr(call, "from")
        self.mesh = mesh


class ServerTool:
    """A function as a server tool: its schemas come from its annotations, its description from its text.

    A plain function runs in a thread, where it cannot be stopped; an async one is cancelled where it waits.
    """

    def __init__(
        self, function: Function, *, name: str = "", description: str = "", context: Any = None
    ) -> None:
        context = ToolContext if context is None else context
        self.function = function
        self.name = name or getattr(function, "__name__", "")
        self.description = description or inspect.getdoc(function) or ""
        self._is_async = inspect.iscoroutinefunction(function)
        hints = get_type_hints(function, include_extras=True)
        # What calls it fills in, and which argument that is, if any.
        self._context_type = context
        self._context = ""
        self._names: dict[str, str] = {}
        self._arguments = self._model(hints)
        self._result = _adapter(hints.get("return", Any))

    def _model(self, hints: dict[str, Any]) -> Any:
        """Build what checks the arguments; each field stands under a name that collides with nothing."""
        from pydantic import ConfigDict, Field, create_model

        fields: dict[str, Any] = {}
        for index, each in enumerate(inspect.signature(self.function).parameters.values()):
            hint = hints.get(each.name, Any)
            if hint is self._context_type:
                self._context = each.name
                continue
            if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
                raise TypeError(f"the tool {self.name}: arguments have names, {each} cannot be given by one")
            default = ... if each.default is each.empty else each.default
            self._names[f"argument_{index}"] = each.name
            fields[f"argument_{index}"] = (hint, Field(default, alias=each.name, title=each.name))
        return create_model(self.name, __config__=ConfigDict(extra="forbid"), **fields)

    def definition(self) -> pb.ToolDefinition:
        """Return how the mesh gets to know it."""
        shape = self._result.json_schema(mode="serialization")
        says = bool(shape) and shape.get("type") != "null"
        return pb.ToolDefinition(
            name=self.name,
            description=self.description,
            input_schema_json=json.dumps(self._arguments.model_json_schema(), ensure_ascii=False),
            output_schema_json=json.dumps(shape, ensure_ascii=False) if says else "",
        )

    async def run(self, arguments_json: str, context: Any, threads: ToolThreads) -> str:
        """Check the arguments, call the function and return its result as JSON text."""
        from pydantic import ValidationError

        try:
            given = self._arguments.model_validate_json(arguments_json)
        except ValidationError as error:
            raise ToolRefusal(_problems(error.errors())) from None
        arguments = {name: getattr(given, field) for field, name in self._names.items()}
        if self._context:
            arguments[self._context] = context
        try:
            if self._is_async:
                result = await self.function(**arguments)
            else:
                result = await threads.run(self.function, arguments)
        except SystemExit as error:
            # Parsers of command lines do it; it is one call that has failed, not the worker.
            raise ToolFailed(f"it tried to end its process (SystemExit: {error})") from error
        return self._written(result)

    def _written(self, result: Any) -> str:
        try:
            text: str = self._result.dump_json(result, warnings="error").decode()
        except (TypeError, ValueError) as error:
            raise ToolFailed(f"its result is not what it says it returns ({type(error).__name__})") from error
        if len(text.encode()) > _RESULT_BYTES:
            raise ToolFailed(f"its result is over {_RESULT_BYTES // 1024} KiB")
        return text


@overload
def tool(function: Function, *, name: str = "", description: str = "") -> ServerTool: ...


@overload
def tool(
    function: None = None, *, name: str = "", description: str = ""
) -> Callable[[Function], ServerTool]: ...


def tool(
    function: Function | None = None, *, name: str = "", description: str = ""
) -> ServerTool | Callable[[Function], ServerTool]:
    """Make a function a server tool, as a decorator or by a call; for `Worker(..., tools=[...])`."""
    if function is not None:
        return ServerTool(function, name=name, description=description)
    return lambda each: ServerTool(each, name=name, description=description)


def by_name(tools: Iterable[ServerTool | Function]) -> dict[str, ServerTool]:
    """Return tools by name; plain functions become tools."""
    found: dict[str, ServerTool] = {}
    for each in tools:
        made = each if isinstance(each, ServerTool) else ServerTool(each)
        if made.name in found:
            raise ValueError(f"there are two tools {made.name!r}")
        found[made.name] = made
    return found


def _adapter(hint: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(hint)


def _problems(errors: list[Any]) -> str:
    """Say what is wrong with arguments, each by its name."""
    said = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}".removeprefix(": ") for each in errors]
    more = f"; and {len(said) - _NAMED} more" if len(said) > _NAMED else ""
    return "; ".join(said[:_NAMED]) + more
