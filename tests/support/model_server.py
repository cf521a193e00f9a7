"""A model for harnesses, over OpenAI's chat completions: what it says is written down in a script.

A script looks at the conversation so far and either says something or uses a tool, as a model would.
Requests that offer no tools (a harness asks for titles) get a fixed answer and are not kept.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Say:
    """The model's last word."""

    text: str


@dataclass(frozen=True)
class Use:
    """A call of a tool."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


Script = Callable[[Messages], Say | Use]


def text_of(message: dict[str, Any]) -> str:
    """Return a message's text, whichever way it is written."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def delegating(tool: str, **arguments: Any) -> Script:
    """Use a tool once, then say what it gave."""

    def script(messages: Messages) -> Say | Use:
        last = messages[-1]
        return Say(f"I was told: {text_of(last)}") if last["role"] == "tool" else Use(tool, arguments)

    return script


class ModelServer:
    """Serves models by name, each with its script; `requests` has what they were sent."""

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        self.requests: list[dict[str, Any]] = []
        self.url = ""
        self.app = Starlette(routes=[Route("/v1/chat/completions", self._complete, methods=["POST"])])

    def heard(self, model: str) -> list[Messages]:
        """Return the conversations that a model was sent, in order."""
        return [request["messages"] for request in self.requests if request["model"] == model]

    async def _complete(self, request: Request) -> Response:
        asked = await request.json()
        if asked.get("tools"):
            self.requests.append(asked)
            said = self.scripts[asked["model"]](asked["messages"])
        else:
            said = Say("a title")
        if asked.get("stream"):
            return StreamingResponse(_stream(asked["model"], said), media_type="text/event-stream")
        message, reason = _message(said)
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return JSONResponse({**_head(asked["model"], "chat.completion"), "choices": [choice]})


def _head(model: str, kind: str) -> dict[str, Any]:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": model, "usage": usage}


def _message(said: Say | Use) -> tuple[dict[str, Any], str]:
    if isinstance(said, Say):
        return {"role": "assistant", "content": said.text}, "stop"
    function = {"name": said.tool, "arguments": json.dumps(said.arguments)}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"


def _stream(model: str, said: Say | Use) -> Iterator[str]:
    message, reason = _message(said)
    for delta, finish in ((message, None), ({}, reason)):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {**_head(model, "chat.completion.chunk"), "choices": [choice]}
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"


@contextlib.contextmanager
def model_server() -> Iterator[ModelServer]:
    """Serve models on a free port of loopback, in a thread of their own."""
    models = ModelServer()
    listening = socket.create_server(("127.0.0.1", 0))
    models.url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    server = uvicorn.Server(uvicorn.Config(models.app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield models
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
