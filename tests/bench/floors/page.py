"""The floor under the console's pages: a table of fifty rows by Jinja, served by Starlette behind uvicorn."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

import uvicorn
from jinja2 import DictLoader, Environment
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tests.bench.load.serve import idle, run, serve

_ROWS: Final = [{"when": f"12:{number:02}", "what": f"number {number} <pears>"} for number in range(50)]
_PAGE: Final = (
    "<!doctype html><html lang=en><title>Bare</title><table>{% for row in rows %}"
    "<tr><td>{{ row.when }}</td><td>{{ row.what }}</td><td>{{ row.what }}</td></tr>{% endfor %}</table>"
)
_TEMPLATES: Final = Environment(loader=DictLoader({"page.html": _PAGE}), autoescape=True)


async def page(request: Request) -> Response:
    return HTMLResponse(_TEMPLATES.get_template("page.html").render(rows=_ROWS))


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    app = Starlette(routes=[Route("/", page)])
    web = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, http="httptools"))
    serving = asyncio.create_task(web.serve([listener]))
    await serve(idle, {"url": f"http://127.0.0.1:{listener.getsockname()[1]}"})
    web.should_exit = True
    await serving


if __name__ == "__main__":
    run(main)
