"""What MCP clients say: calls of every tool by its schema, other methods, both eras, and their headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hopline_gateway.tools import TOOLS
from hypothesis import strategies as st

from tests.fuzz.jsons import STRANGE, TEXTS, VALUES, mutated

MODERN: Final = "2026-07-28"
VERSIONS: Final = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN]
METHODS: Final = [
    "initialize",
    "ping",
    "tools/list",
    "tools/call",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "resources/list",
    "resources/read",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
    "subscriptions/listen",
    "server/discover",
    "tasks/get",
    "sampling/createMessage",
]
TRACE: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

Known = Mapping[str, list[str]]


def _field(name: str, schema: Mapping[str, Any], known: Known) -> st.SearchStrategy[Any]:
    """Return what fits one argument of a tool, or nearly."""
    if name == "wait_seconds":
        return st.just(0)
    if name in known:
        one: st.SearchStrategy[Any] = st.sampled_from(known[name]) | TEXTS
        return one | st.lists(one, max_size=11) if "anyOf" in schema else one
    match schema.get("type"):
        case "string":
            return TEXTS | st.uuids().map(str) if name == "request_id" else TEXTS
        case "integer":
            return st.integers(0, 300)
    return VALUES


def arguments(tool: str, known: Known) -> st.SearchStrategy[dict[str, Any]]:
    """Return what fits a tool's arguments by its schema."""
    spec = TOOLS[tool]
    fields = {name: _field(name, schema, known) for name, schema in spec.properties.items()}
    always = {name: fields[name] for name in fields if name in spec.required or name == "wait_seconds"}
    return st.fixed_dictionaries(always, optional={n: f for n, f in fields.items() if n not in always})


def metas(*, modern: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Return a request's `_meta`, as a client of that era writes it."""
    always: dict[str, st.SearchStrategy[Any]] = {}
    if modern:
        always = {
            "io.modelcontextprotocol/protocolVersion": st.just(MODERN),
            "io.modelcontextprotocol/clientCapabilities": st.just({}),
            "io.modelcontextprotocol/clientInfo": st.just({"name": "fuzz", "version": "1"}),
        }
    more = {
        "progressToken": st.integers(0, 9) | TEXTS | STRANGE,
        "traceparent": st.just(TRACE) | TEXTS | STRANGE,
    }
    return st.fixed_dictionaries(always, optional=more)


@st.composite
def calls(draw: st.DrawFn, known: Known, *, modern: bool = False, most: int = 3) -> dict[str, Any]:
    """Draw a `tools/call`, or another request, with up to `most` things wrong with it; none waits."""
    tool = draw(st.sampled_from(sorted(TOOLS)))
    method = draw(st.just("tools/call") | st.just("tools/call") | st.sampled_from(METHODS))
    params: dict[str, Any] = {"name": tool, "arguments": draw(arguments(tool, known))}
    if modern or draw(st.booleans()):
        params["_meta"] = draw(metas(modern=modern))
    if method == "initialize":
        params |= {"protocolVersion": draw(st.sampled_from(VERSIONS)), "capabilities": {}}
        params["clientInfo"] = {"name": "fuzz", "version": "1"}
    envelope = {"jsonrpc": "2.0", "id": draw(st.integers(0, 99) | TEXTS), "method": method, "params": params}
    found: dict[str, Any] = draw(mutated(st.just(envelope), most))
    return _hurried(found)


def _hurried(envelope: dict[str, Any]) -> dict[str, Any]:
    """Let a call wait for nothing: what waiting does is tested elsewhere."""
    params = envelope.get("params")
    given = params.get("arguments") if isinstance(params, dict) else None
    if isinstance(params, dict) and params.get("name") in ("ask", "check", "read_inbox"):
        if not isinstance(given, dict):
            given = params["arguments"] = {}
        seconds = given.get("wait_seconds", 0)
        if "wait_seconds" not in given or (isinstance(seconds, (int, float)) and not seconds <= 0):
            given["wait_seconds"] = 0
    return envelope


def headers(known: Known) -> st.SearchStrategy[dict[str, str]]:
    """Return headers that a client may get wrong; any value a header can carry."""
    word = st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=80)
    return st.fixed_dictionaries(
        {},
        optional={
            "MCP-Protocol-Version": st.sampled_from(VERSIONS) | word,
            "Mcp-Method": st.sampled_from(METHODS) | word,
            "Mcp-Name": st.sampled_from(sorted(TOOLS)) | word,
            "Mcp-Session-Id": word,
            "Last-Event-ID": word,
            "traceparent": st.just(TRACE) | st.just(TRACE[:-1]) | word,
            "Hopline-Session": st.sampled_from(known["session_id"]) | word,
            "Hopline-Workspace": word,
            "Accept": st.sampled_from(["*/*", "text/event-stream", "application/json", "text/*;q=0"]) | word,
            "Content-Type": st.sampled_from(["application/json; charset=utf-16", "text/plain", ""]) | word,
            "Content-Encoding": st.sampled_from(["gzip", "identity", "br"]),
        },
    )
